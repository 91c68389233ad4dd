#include "tests/support/late_device.h"

#include <type_traits>
#include <utility>

#include "base/check.h"

namespace sluice::test {

class LateDevice::LateOps final : public OpsBase<LateDevice::LateOps> {
 public:
  explicit LateOps(LateDevice& device) : device_(device), ops_(device.inner_->ops()) {}

  template <class Params>
  void execute(const Params& p) {
    if constexpr (std::is_same_v<Params, MatmulParams> ||
                  std::is_same_v<Params, GatedMatmulParams>) {
      products().add(p.rows, 1);
    }
    if (device_.capturing_) return ops_.run(p);
    if constexpr (std::is_same_v<Params, SampleParams>) {
      if (device_.before_sample) device_.submit([this, p] { device_.before_sample(p); });
    }
    device_.submit([this, p] { ops_.run(p); });
  }
  AttentionPlanSize attention_plan_size(const AttentionPlanLimits& limits) const override {
    return ops_.attention_plan_size(limits);
  }
  std::int64_t plan_attention(const AttentionPlanParams& p) override {
    return ops_.plan_attention(p);
  }
  Work attention_work(const AttentionPlanParams& p) const override {
    return ops_.attention_work(p);
  }

 private:
  LateDevice& device_;
  Ops& ops_;
};

LateDevice::LateDevice(std::unique_ptr<Device> inner)
    : inner_(std::move(inner)), traits_(inner_->traits()), ops_(std::make_unique<LateOps>(*this)) {
  CHECK(traits_.host_accessible);
  traits_.host_accessible = false;
  traits_.maps_files = false;
  traits_.asynchronous = true;
}

LateDevice::~LateDevice() = default;

void LateDevice::submit(Queue queue, Pending work) {
  CHECK(!capturing_ || queue == Queue::kTransfer);
  line(queue).pending.push_back(std::move(work));
  ++line(queue).submitted;
}

void LateDevice::run_until(Queue queue, std::size_t count) {
  while (line(queue).done() < count) {
    const Pending work = std::move(line(queue).pending.front());
    line(queue).pending.pop_front();
    work.run();
  }
}

bool LateDevice::is_used(const std::byte* begin, std::size_t bytes) const {
  const auto overlaps = [&](const void* other, std::size_t size) {
    const auto* at = static_cast<const std::byte*>(other);
    return at < begin + bytes && begin < at + size;
  };
  for (const Line& each : lines_) {
    for (const Pending& work : each.pending) {
      if (overlaps(work.target, work.bytes) || overlaps(work.source, work.bytes)) return true;
    }
  }
  return false;
}

void LateDevice::unback(AddressRange range, std::size_t offset, std::size_t bytes) {
  CHECK(!is_used(range.base + offset, bytes));
  inner_->unback(range, offset, bytes);
}

Result<std::byte*> LateDevice::take_host_memory(std::size_t bytes) {
  ASSIGN_OR_RETURN(std::byte* const memory, inner_->take_host_memory(bytes));
  host_memory_[memory] = bytes;
  return memory;
}

void LateDevice::give_host_memory(std::byte* memory) {
  CHECK(!is_used(memory, host_memory_.at(memory)));
  host_memory_.erase(memory);
  inner_->give_host_memory(memory);
}

Status LateDevice::copy(Queue queue, CopyKind kind, void* target, const void* source,
                        std::size_t bytes) {
  // The inner device runs copies of its compute queue at once.
  const auto run = [=, this] { CHECK(inner_->copy(Queue::kCompute, kind, target, source, bytes)); };
  submit(queue, {run, target, source, bytes});
  return {};
}

Status LateDevice::mark(Queue queue, std::size_t number) {
  submit(queue, {[=, this] {
           if (queue == Queue::kCompute) CHECK(inner_->mark(queue, number));
         }});
  line(queue).marks.at(number) = line(queue).submitted;
  line(queue).polls.at(number) = 0;
  return {};
}

Status LateDevice::wait(Queue queue, std::size_t number) {
  ++waits_;
  run_until(queue, line(queue).marks.at(number));
  return {};
}

Result<bool> LateDevice::reached(Queue queue, std::size_t number) {
  Line& of = line(queue);
  if (of.done() < of.marks.at(number)) {
    if (of.polls.at(number)++ < polls_before_reached) return false;
    run_until(queue, of.marks.at(number));
  }
  return true;
}

Status LateDevice::wait_in(Queue waiter, Queue marked, std::size_t number) {
  const std::size_t count = line(marked).marks.at(number);
  CHECK(count > 0);
  submit(waiter, {[this, marked, count] { run_until(marked, count); }});
  return {};
}

Result<Duration> LateDevice::time_between(std::size_t first, std::size_t second) {
  const Line& compute = line(Queue::kCompute);
  CHECK(compute.marks.at(first) <= compute.done() && compute.marks.at(second) <= compute.done());
  return inner_->time_between(first, second);
}

Status LateDevice::synchronize(Queue queue) {
  ++waits_;
  run_until(queue, line(queue).submitted);
  return {};
}

Status LateDevice::begin_capture() {
  capturing_ = true;
  return inner_->begin_capture();
}

Result<OpList> LateDevice::end_listing() {
  capturing_ = false;
  return inner_->end_listing();
}

Result<std::unique_ptr<Graph>> LateDevice::make_graph(OpList ops) {
  return inner_->make_graph(std::move(ops));
}

Status LateDevice::replay(const Graph& graph) {
  submit([this, &graph] { CHECK(inner_->replay(graph)); });
  return {};
}

}  // namespace sluice::test
