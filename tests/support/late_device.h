// LateDevice: makes an asynchronous device of a device whose memory the host can reach. Submitted
// work runs as late as allowed: when the host waits for it or for later work. So tests detect a
// missing wait, and host memory that is overwritten too early.
// Owner: a test. Threads: one.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>

#include "device/device.h"

namespace sluice::test {

class LateDevice final : public Device {
 public:
  explicit LateDevice(std::unique_ptr<Device> inner);
  ~LateDevice() override;

  // Called before each sampling op outside of graphs, so that a test can corrupt its logits.
  std::function<void(const SampleParams&)> before_sample;

  // The number of waits by the host, and of submitted pieces of work that have not run.
  int waits() const { return waits_; }
  std::size_t outstanding() const { return queue_.size(); }

  const DeviceTraits& traits() const override { return traits_; }
  Result<MemoryInfo> memory_info() const override { return inner_->memory_info(); }
  Result<AddressRange> reserve(std::size_t bytes) override { return inner_->reserve(bytes); }
  void release(AddressRange range) override { inner_->release(range); }
  Status back(AddressRange range, std::size_t offset, std::size_t bytes) override {
    return inner_->back(range, offset, bytes);
  }
  Status back_with_file(AddressRange, std::size_t, int, std::size_t) override {
    return unsupported("files cannot be mapped");
  }
  // CHECKs that nothing that might use it is outstanding.
  void unback(AddressRange range, std::size_t offset, std::size_t bytes) override;
  Status protect(AddressRange range, std::size_t offset, std::size_t bytes,
                 Protection protection) override {
    return inner_->protect(range, offset, bytes, protection);
  }
  Result<std::byte*> take_host_memory(std::size_t bytes) override {
    return inner_->take_host_memory(bytes);
  }
  void give_host_memory(std::byte* memory) override;
  Status copy_to_device(void* target, const void* source, std::size_t bytes) override;
  Status copy_to_host(void* target, const void* source, std::size_t bytes) override;
  Status mark(std::size_t number) override;
  Status wait(std::size_t number) override;
  // CHECKs that both have been reached.
  Result<Duration> time_between(std::size_t first, std::size_t second) override;
  Status synchronize() override;
  Ops& ops() override { return *ops_; }
  Status begin_capture() override;
  Result<std::unique_ptr<Graph>> end_capture() override;
  Status replay(const Graph& graph) override;

 private:
  class LateOps;

  void submit(std::function<void()> work);
  void run_until(std::size_t count);

  std::unique_ptr<Device> inner_;
  DeviceTraits traits_;
  std::unique_ptr<Ops> ops_;
  bool capturing_ = false;
  std::deque<std::function<void()>> queue_;
  std::size_t submitted_ = 0;  // since the start
  std::array<std::size_t, kMarks> marks_ = {};
  int waits_ = 0;
};

}  // namespace sluice::test
