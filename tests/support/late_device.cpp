#include "tests/support/late_device.h"

#include <utility>

#include "base/check.h"

namespace sluice::test {

class LateDevice::LateOps final : public Ops {
 public:
  explicit LateOps(LateDevice& device) : device_(device), ops_(device.inner_->ops()) {}

  void embed(const EmbedParams& p) override { later(&Ops::embed, p); }
  void rms_norm(const RmsNormParams& p) override { later(&Ops::rms_norm, p); }
  void layer_norm(const LayerNormParams& p) override { later(&Ops::layer_norm, p); }
  void matmul(const MatmulParams& p) override {
    products().add(p.rows, 1);
    later(&Ops::matmul, p);
  }
  void lora_shrink(const LoraShrinkParams& p) override { later(&Ops::lora_shrink, p); }
  void lora_expand(const LoraExpandParams& p) override { later(&Ops::lora_expand, p); }
  void rope_write_kv(const RopeWriteKvParams& p) override { later(&Ops::rope_write_kv, p); }
  void attention(const AttentionParams& p) override { later(&Ops::attention, p); }
  void gated_activation(const GatedActivationParams& p) override {
    later(&Ops::gated_activation, p);
  }
  void gated_matmul(const GatedMatmulParams& p) override {
    products().add(p.rows, 1);
    later(&Ops::gated_matmul, p);
  }
  void gather_rows(const GatherRowsParams& p) override { later(&Ops::gather_rows, p); }
  void all_reduce(const AllReduceParams& p) override { later(&Ops::all_reduce, p); }
  void copy_blocks(const CopyBlocksParams& p) override { later(&Ops::copy_blocks, p); }
  void sample(const SampleParams& p) override {
    if (!device_.capturing_ && device_.before_sample) {
      device_.submit([this, p] { device_.before_sample(p); });
    }
    later(&Ops::sample, p);
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
  template <class Params>
  void later(void (Ops::*op)(const Params&), const Params& p) {
    if (device_.capturing_) return (ops_.*op)(p);
    device_.submit([this, op, p] { (ops_.*op)(p); });
  }

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

void LateDevice::submit(std::function<void()> work) {
  CHECK(!capturing_);
  queue_.push_back(std::move(work));
  ++submitted_;
}

void LateDevice::run_until(std::size_t count) {
  CHECK(!capturing_);
  while (submitted_ - queue_.size() < count) {
    const std::function<void()> work = std::move(queue_.front());
    queue_.pop_front();
    work();
  }
}

void LateDevice::unback(AddressRange range, std::size_t offset, std::size_t bytes) {
  CHECK(queue_.empty());
  inner_->unback(range, offset, bytes);
}

void LateDevice::give_host_memory(std::byte* memory) {
  CHECK(queue_.empty());
  inner_->give_host_memory(memory);
}

Status LateDevice::copy_to_device(void* target, const void* source, std::size_t bytes) {
  submit([=, this] { CHECK(inner_->copy_to_device(target, source, bytes)); });
  return {};
}

Status LateDevice::copy_to_host(void* target, const void* source, std::size_t bytes) {
  submit([=, this] { CHECK(inner_->copy_to_host(target, source, bytes)); });
  return {};
}

Status LateDevice::mark(std::size_t number) {
  submit([this, number] { CHECK(inner_->mark(number)); });
  marks_.at(number) = submitted_;
  return {};
}

Result<Duration> LateDevice::time_between(std::size_t first, std::size_t second) {
  const std::size_t done = submitted_ - queue_.size();
  CHECK(marks_.at(first) <= done && marks_.at(second) <= done);
  return inner_->time_between(first, second);
}

Status LateDevice::wait(std::size_t number) {
  ++waits_;
  run_until(marks_.at(number));
  return {};
}

Status LateDevice::synchronize() {
  ++waits_;
  run_until(submitted_);
  return {};
}

Status LateDevice::begin_capture() {
  capturing_ = true;
  return inner_->begin_capture();
}

Result<std::unique_ptr<Graph>> LateDevice::end_capture() {
  capturing_ = false;
  return inner_->end_capture();
}

Status LateDevice::replay(const Graph& graph) {
  submit([this, &graph] { CHECK(inner_->replay(graph)); });
  return {};
}

}  // namespace sluice::test
