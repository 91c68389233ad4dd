// ReferenceOps: every op as slow, obvious scalar loops on one thread. It is the oracle that fast
// kernels are compared with, and the fallback for machines without AVX2. Sums (dot products, norms,
// softmax) are accumulated in double in index order and rounded to float once. Values that other
// backends round to a 16-bit type between ops are rounded here too.
// Each row is computed by itself, so results do not depend on the batch.
// Threads: one at a time.
#pragma once

#include "device/ops.h"

namespace sluice {

class ReferenceOps final : public OpsBase<ReferenceOps> {
 public:
  // Declares execute(const Params&) for each op; the definitions are in this folder's source files.
  SLUICE_OPS(SLUICE_DECLARE_EXECUTE)
  // Attention reads the lengths and needs no plan.
  AttentionPlanSize attention_plan_size(const AttentionPlanLimits& limits) const override;
  std::int64_t plan_attention(const AttentionPlanParams& p) override;
  Work attention_work(const AttentionPlanParams& p) const override;
};

}  // namespace sluice
