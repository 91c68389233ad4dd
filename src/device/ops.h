// Ops: the fused operations a decoder is made of, one virtual each, all pure, so that an
// unfinished backend fails to compile and not at run time. Shapes: op_params.h.
//
// Execution: ops run in call order on the device's compute stream; while the device captures, they
// are recorded instead. None allocates. On the CPU each row's result is bitwise independent of the
// other rows in the call (fixed order along K and along KV).
// Threads: the engine's thread only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/op_params.h"
#include "device/padding.h"

namespace sluice {

// Ids are stable: they name ops in captured graphs and snapshot files. Append only.
enum class OpId : std::uint16_t {
  kEmbed = 1,
  kRmsNorm = 2,
  kMatmul = 3,
  kRopeWriteKv = 4,
  kAttention = 5,
  kGatedActivation = 6,
  kGatherRows = 7,
  kAllReduce = 8,
  kCopyBlocks = 9,
  kSample = 10,
  kGatedMatmul = 11,
  kLoraShrink = 12,
  kLoraExpand = 13,
  kLayerNorm = 14,
};

class Ops {
 public:
  virtual ~Ops() = default;

  virtual void embed(const EmbedParams& p) = 0;
  virtual void rms_norm(const RmsNormParams& p) = 0;
  virtual void layer_norm(const LayerNormParams& p) = 0;
  virtual void matmul(const MatmulParams& p) = 0;
  virtual void lora_shrink(const LoraShrinkParams& p) = 0;
  virtual void lora_expand(const LoraExpandParams& p) = 0;
  virtual void rope_write_kv(const RopeWriteKvParams& p) = 0;
  virtual void attention(const AttentionParams& p) = 0;
  virtual void gated_activation(const GatedActivationParams& p) = 0;
  virtual void gated_matmul(const GatedMatmulParams& p) = 0;
  virtual void gather_rows(const GatherRowsParams& p) = 0;
  virtual void all_reduce(const AllReduceParams& p) = 0;
  virtual void copy_blocks(const CopyBlocksParams& p) = 0;
  virtual void sample(const SampleParams& p) = 0;

  // Host work, never captured. plan_attention returns how many bytes it wrote: those must be on
  // the device when attention runs.
  virtual AttentionPlanSize attention_plan_size(const AttentionPlanLimits& limits) const = 0;
  virtual std::int64_t plan_attention(const AttentionPlanParams& p) = 0;

  // What attention of one layer computes in such a step, and what it has to.
  virtual Work attention_work(const AttentionPlanParams& p) const = 0;
  // The matrix products that were called since this was cleared, in captures too.
  ProductRows& products() { return products_; }

  // Device memory of DeviceTraits::library_workspace bytes, or null. It must stay backed while ops
  // and graphs that were captured with it run.
  void set_library_workspace(std::byte* memory) { library_workspace_ = memory; }
  std::byte* library_workspace() const { return library_workspace_; }

 private:
  ProductRows products_;
  std::byte* library_workspace_ = nullptr;
};

}  // namespace sluice
