#include "device/cpu/recording_ops.h"

#include <cstring>
#include <utility>

#include <fmt/core.h>

namespace sluice {
namespace {

// 0 for an unknown id.
std::size_t params_bytes(OpId op) {
  switch (op) {
    case OpId::kEmbed: return sizeof(EmbedParams);
    case OpId::kRmsNorm: return sizeof(RmsNormParams);
    case OpId::kMatmul: return sizeof(MatmulParams);
    case OpId::kRopeWriteKv: return sizeof(RopeWriteKvParams);
    case OpId::kAttention: return sizeof(AttentionParams);
    case OpId::kGatedActivation: return sizeof(GatedActivationParams);
    case OpId::kGatherRows: return sizeof(GatherRowsParams);
    case OpId::kAllReduce: return sizeof(AllReduceParams);
    case OpId::kCopyBlocks: return sizeof(CopyBlocksParams);
    case OpId::kSample: return sizeof(SampleParams);
    case OpId::kLoraShrink: return sizeof(LoraShrinkParams);
    case OpId::kLoraExpand: return sizeof(LoraExpandParams);
    case OpId::kGatedMatmul: return sizeof(GatedMatmulParams);
  }
  return 0;
}

// By copy: bytes of a graph need not be aligned.
template <class Params>
Params read_params(const GraphNode& node) {
  Params params;
  std::memcpy(static_cast<void*>(&params), node.params.data(), sizeof(params));
  return params;
}

}  // namespace

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
  for (std::size_t i = 0; i < graph.num_nodes(); ++i) {
    const GraphNode node = graph.node(i);
    const std::size_t expected = params_bytes(node.op);
    if (expected == 0 || node.params.size() != expected) {
      return invalid_argument(
          fmt::format("replay: node {} has op id {} with {} bytes of parameters,"
                      " expected {}",
                      i, static_cast<int>(node.op), node.params.size(), expected));
    }
  }
  for (std::size_t i = 0; i < graph.num_nodes(); ++i) run_node(graph.node(i));
  return {};
}

void RecordingOps::run_node(const GraphNode& node) {
  switch (node.op) {
    case OpId::kEmbed: return target_->embed(read_params<EmbedParams>(node));
    case OpId::kRmsNorm: return target_->rms_norm(read_params<RmsNormParams>(node));
    case OpId::kMatmul: return target_->matmul(read_params<MatmulParams>(node));
    case OpId::kRopeWriteKv: return target_->rope_write_kv(read_params<RopeWriteKvParams>(node));
    case OpId::kAttention: return target_->attention(read_params<AttentionParams>(node));
    case OpId::kGatedActivation:
      return target_->gated_activation(read_params<GatedActivationParams>(node));
    case OpId::kGatherRows: return target_->gather_rows(read_params<GatherRowsParams>(node));
    case OpId::kAllReduce: return target_->all_reduce(read_params<AllReduceParams>(node));
    case OpId::kCopyBlocks: return target_->copy_blocks(read_params<CopyBlocksParams>(node));
    case OpId::kSample: return target_->sample(read_params<SampleParams>(node));
    case OpId::kLoraShrink: return target_->lora_shrink(read_params<LoraShrinkParams>(node));
    case OpId::kLoraExpand: return target_->lora_expand(read_params<LoraExpandParams>(node));
    case OpId::kGatedMatmul: return target_->gated_matmul(read_params<GatedMatmulParams>(node));
  }
}

void RecordingOps::embed(const EmbedParams& p) {
  capturing() ? graph_->append(OpId::kEmbed, p) : target_->embed(p);
}
void RecordingOps::rms_norm(const RmsNormParams& p) {
  capturing() ? graph_->append(OpId::kRmsNorm, p) : target_->rms_norm(p);
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
