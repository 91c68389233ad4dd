// LateDevice: makes an asynchronous device of a device whose memory the host can reach. Each queue
// runs its work as late as allowed: when the host waits for it or for later work. The queues run
// independently of each other, except for marks that one waits for on the other. So tests detect a
// missing wait, and host memory that is overwritten too early.
// Owner: a test. Threads: one.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "device/device.h"

namespace sluice::test {

class LateDevice : public Device {
 public:
  explicit LateDevice(std::unique_ptr<Device> inner);
  ~LateDevice() override;

  // Called before each sampling op outside of graphs, so that a test can corrupt its logits.
  std::function<void(const SampleParams&)> before_sample;

  // How often reached() returns false before the work up to the mark runs.
  int polls_before_reached = 2;

  // The number of waits by the host, and of submitted pieces of work that have not run.
  int waits() const { return waits_; }
  std::size_t outstanding(Queue queue = Queue::kCompute) const {
    return line(queue).pending.size();
  }

  const DeviceTraits& traits() const override { return traits_; }
  Result<MemoryInfo> memory_info() const override { return inner_->memory_info(); }
  Result<AddressRange> reserve(std::size_t bytes) override { return inner_->reserve(bytes); }
  Result<AddressRange> reserve_at(std::byte* base, std::size_t bytes) override {
    return inner_->reserve_at(base, bytes);
  }
  void release(AddressRange range) override { inner_->release(range); }
  // Memory only: what a GPU without a peer has.
  Status back(AddressRange range, std::size_t offset, std::size_t bytes,
              const Backing& backing) override {
    if (backing.kind != Backing::Kind::kMemory) return unsupported("memory only");
    return inner_->back(range, offset, bytes, backing);
  }
  // CHECKs that no copy of the piece is outstanding. An op that is and uses it faults when it runs.
  void unback(AddressRange range, std::size_t offset, std::size_t bytes) override;
  Status populate(AddressRange range, std::size_t offset, std::size_t bytes) override {
    return inner_->populate(range, offset, bytes);
  }
  void discard(AddressRange range, std::size_t offset, std::size_t bytes) override {
    inner_->discard(range, offset, bytes);
  }
  Status protect(AddressRange range, std::size_t offset, std::size_t bytes,
                 Protection protection) override {
    return inner_->protect(range, offset, bytes, protection);
  }
  Result<FileDescriptor> export_memory(AddressRange, std::size_t) override {
    return unsupported("no export");
  }
  Result<std::byte*> take_host_memory(std::size_t bytes) override;
  // CHECKs that no copy of it is outstanding.
  void give_host_memory(std::byte* memory) override;
  using Device::synchronize;
  Status copy(Queue queue, CopyKind kind, void* target, const void* source,
              std::size_t bytes) override;
  Status mark(Queue queue, std::size_t number) override;
  Status wait(Queue queue, std::size_t number) override;
  Result<bool> reached(Queue queue, std::size_t number) override;
  Status wait_in(Queue waiter, Queue marked, std::size_t number) override;
  // CHECKs that both have been reached.
  Result<Duration> time_between(std::size_t first, std::size_t second) override;
  Status synchronize(Queue queue) override;
  Ops& ops() override { return *ops_; }
  Status begin_capture() override;
  Result<OpList> end_listing() override;
  Result<std::unique_ptr<Graph>> make_graph(OpList ops) override;
  Status replay(const Graph& graph) override;

 private:
  class LateOps;

  struct Pending {
    std::function<void()> run;
    // Memory of a copy; null: an op, which may use any.
    const void* target = nullptr;
    const void* source = nullptr;
    std::size_t bytes = 0;
  };
  struct Line {
    std::deque<Pending> pending;
    std::size_t submitted = 0;  // since the start
    std::array<std::size_t, kMarks> marks = {};
    std::array<int, kMarks> polls = {};  // since the mark was made
    std::size_t done() const { return submitted - pending.size(); }
  };

  Line& line(Queue queue) { return lines_[static_cast<std::size_t>(queue)]; }
  const Line& line(Queue queue) const { return lines_[static_cast<std::size_t>(queue)]; }
  void submit(std::function<void()> run) { submit(Queue::kCompute, {std::move(run)}); }
  void submit(Queue queue, Pending work);
  void run_until(Queue queue, std::size_t count);
  bool is_used(const std::byte* begin, std::size_t bytes) const;

  std::unique_ptr<Device> inner_;
  DeviceTraits traits_;
  std::unique_ptr<Ops> ops_;
  bool capturing_ = false;
  std::array<Line, kNumQueues> lines_;
  std::map<const std::byte*, std::size_t> host_memory_;  // bytes by address
  int waits_ = 0;
};

}  // namespace sluice::test
