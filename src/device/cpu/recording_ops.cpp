#include "device/cpu/recording_ops.h"

#include <cstring>
#include <utility>

#include <fmt/core.h>

namespace sluice {
Status RecordingOps::begin_capture() {
  if (capturing()) return internal_error("capture: one is on already, and captures do not nest");
  graph_ = std::make_unique<RecordedOps>();
  return {};
}

Result<std::unique_ptr<Graph>> RecordingOps::end_capture() {
  if (!capturing()) return internal_error("capture: none is on");
  return std::unique_ptr<Graph>(std::move(graph_));
}

Status RecordingOps::replay(const Graph& graph) {
  if (capturing()) return internal_error("replay: not possible while capturing");
  return call_recorded(*target_, graph);
}

void RecordingOps::embed(const EmbedParams& p) {
  capturing() ? graph_->append(OpId::kEmbed, p) : target_->embed(p);
}
void RecordingOps::rms_norm(const RmsNormParams& p) {
  capturing() ? graph_->append(OpId::kRmsNorm, p) : target_->rms_norm(p);
}
void RecordingOps::layer_norm(const LayerNormParams& p) {
  capturing() ? graph_->append(OpId::kLayerNorm, p) : target_->layer_norm(p);
}
void RecordingOps::matmul(const MatmulParams& p) {
  products().add(p.rows, 1);
  capturing() ? graph_->append(OpId::kMatmul, p) : target_->matmul(p);
}
void RecordingOps::lora_shrink(const LoraShrinkParams& p) {
  capturing() ? graph_->append(OpId::kLoraShrink, p) : target_->lora_shrink(p);
}
void RecordingOps::lora_expand(const LoraExpandParams& p) {
  capturing() ? graph_->append(OpId::kLoraExpand, p) : target_->lora_expand(p);
}
void RecordingOps::rope_write_kv(const RopeWriteKvParams& p) {
  capturing() ? graph_->append(OpId::kRopeWriteKv, p) : target_->rope_write_kv(p);
}
void RecordingOps::attention(const AttentionParams& p) {
  capturing() ? graph_->append(OpId::kAttention, p) : target_->attention(p);
}
void RecordingOps::gated_activation(const GatedActivationParams& p) {
  capturing() ? graph_->append(OpId::kGatedActivation, p) : target_->gated_activation(p);
}
void RecordingOps::gated_matmul(const GatedMatmulParams& p) {
  products().add(p.rows, 1);
  capturing() ? graph_->append(OpId::kGatedMatmul, p) : target_->gated_matmul(p);
}
void RecordingOps::gather_rows(const GatherRowsParams& p) {
  capturing() ? graph_->append(OpId::kGatherRows, p) : target_->gather_rows(p);
}
void RecordingOps::all_reduce(const AllReduceParams& p) {
  capturing() ? graph_->append(OpId::kAllReduce, p) : target_->all_reduce(p);
}
void RecordingOps::copy_blocks(const CopyBlocksParams& p) {
  capturing() ? graph_->append(OpId::kCopyBlocks, p) : target_->copy_blocks(p);
}
void RecordingOps::sample(const SampleParams& p) {
  capturing() ? graph_->append(OpId::kSample, p) : target_->sample(p);
}

AttentionPlanSize RecordingOps::attention_plan_size(const AttentionPlanLimits& limits) const {
  return target_->attention_plan_size(limits);
}

std::int64_t RecordingOps::plan_attention(const AttentionPlanParams& p) {
  return target_->plan_attention(p);
}

Work RecordingOps::attention_work(const AttentionPlanParams& p) const {
  return target_->attention_work(p);
}

}  // namespace sluice
