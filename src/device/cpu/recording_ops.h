// RecordingOps: the Ops that callers of a CPU device see. Runs each op at once on another Ops, or,
// while a capture is on, appends it to a list that becomes a graph. Running a graph is calling the
// ops of its list again, with the same parameters and the batch that memory holds now.
// Rows of matrix products are computed one by one here: none is padding.
// Owner: the CPU device. Threads: the engine's thread only.
#pragma once

#include <memory>

#include "base/result.h"
#include "device/graph.h"
#include "device/ops.h"
#include "device/recorded_ops.h"

namespace sluice {

class RecordingOps final : public Ops {
 public:
  explicit RecordingOps(std::unique_ptr<Ops> target) : target_(std::move(target)) {}

  bool capturing() const { return graph_ != nullptr; }
  Status begin_capture();
  Result<std::unique_ptr<Graph>> end_capture();
  // As call_recorded.
  Status replay(const Graph& graph);

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
  AttentionPlanSize attention_plan_size(const AttentionPlanLimits& limits) const override;
  std::int64_t plan_attention(const AttentionPlanParams& p) override;
  Work attention_work(const AttentionPlanParams& p) const override;

 private:
  std::unique_ptr<Ops> target_;
  std::unique_ptr<RecordedOps> graph_;  // while capturing
};

}  // namespace sluice
