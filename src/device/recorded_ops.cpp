#include "device/recorded_ops.h"

#include <fmt/format.h>

#include <cstring>
#include <span>

#include "base/check.h"

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
    case OpId::kLayerNorm: return sizeof(LayerNormParams);
  }
  return 0;
}

void call_node(Ops& ops, const GraphNode& node) {
  switch (node.op) {
    case OpId::kEmbed: return ops.embed(read_params<EmbedParams>(node));
    case OpId::kRmsNorm: return ops.rms_norm(read_params<RmsNormParams>(node));
    case OpId::kMatmul: return ops.matmul(read_params<MatmulParams>(node));
    case OpId::kRopeWriteKv: return ops.rope_write_kv(read_params<RopeWriteKvParams>(node));
    case OpId::kAttention: return ops.attention(read_params<AttentionParams>(node));
    case OpId::kGatedActivation:
      return ops.gated_activation(read_params<GatedActivationParams>(node));
    case OpId::kGatherRows: return ops.gather_rows(read_params<GatherRowsParams>(node));
    case OpId::kAllReduce: return ops.all_reduce(read_params<AllReduceParams>(node));
    case OpId::kCopyBlocks: return ops.copy_blocks(read_params<CopyBlocksParams>(node));
    case OpId::kSample: return ops.sample(read_params<SampleParams>(node));
    case OpId::kLoraShrink: return ops.lora_shrink(read_params<LoraShrinkParams>(node));
    case OpId::kLoraExpand: return ops.lora_expand(read_params<LoraExpandParams>(node));
    case OpId::kGatedMatmul: return ops.gated_matmul(read_params<GatedMatmulParams>(node));
    case OpId::kLayerNorm: return ops.layer_norm(read_params<LayerNormParams>(node));
  }
}

}  // namespace

GraphNode RecordedOps::node(std::size_t index) const {
  CHECK(index < nodes_.size());
  const Node& node = nodes_[index];
  return {node.op, std::span(params_).subspan(node.offset, node.bytes)};
}

void RecordedOps::append_bytes(OpId op, const void* params, std::size_t bytes) {
  const std::size_t offset = params_.size();
  params_.resize(offset + bytes);
  std::memcpy(params_.data() + offset, params, bytes);
  nodes_.push_back({op, offset, bytes});
}

Status call_recorded(Ops& ops, const Graph& graph) {
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
  for (std::size_t i = 0; i < graph.num_nodes(); ++i) call_node(ops, graph.node(i));
  return {};
}

}  // namespace sluice
