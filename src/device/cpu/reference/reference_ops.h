// ReferenceOps: every op as slow, obvious scalar loops on one thread: the oracle that fast kernels
// are compared with, and the fallback of machines without AVX2. Sums (dot products, norms, softmax)
// are accumulated in double in index order and rounded to float once; what other backends round to
// a 16-bit type on its way between ops is rounded here too.
// Each row is computed by itself, so results do not depend on the batch.
// Threads: any one at a time.
#pragma once

#include "device/ops.h"

namespace sluice {

class ReferenceOps final : public Ops {
 public:
  void embed(const EmbedParams& p) override;
  void rms_norm(const RmsNormParams& p) override;
  void layer_norm(const LayerNormParams& p) override;
  void matmul(const MatmulParams& p) override;
  void lora_shrink(const LoraShrinkParams& p) override;
  void lora_expand(const LoraExpandParams& p) override;
  void rope_write_kv(const RopeWriteKvParams& p) override;
  void attention(const AttentionParams& p) override;
  void gated_activation(const GatedActivationParams& p) override;
  void gated_matmul(const GatedMatmulParams& p) override;
  void gather_rows(const GatherRowsParams& p) override;
  void all_reduce(const AllReduceParams& p) override;
  void copy_blocks(const CopyBlocksParams& p) override;
  void sample(const SampleParams& p) override;
  // Attention needs no plan here: it goes by the lengths alone.
  AttentionPlanSize attention_plan_size(const AttentionPlanLimits& limits) const override;
  std::int64_t plan_attention(const AttentionPlanParams& p) override;
  Work attention_work(const AttentionPlanParams& p) const override;
};

}  // namespace sluice
