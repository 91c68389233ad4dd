#include "device/cuda/cuda_ops.h"

#include <string>

#include "base/log.h"
#include "device/cuda/attention_launch.h"
#include "device/cuda/attention_plan.h"
#include "device/cuda/launch_shapes.h"
#include "device/cuda/library_matmul.h"
#include "device/cuda/lora_launch.h"

namespace sluice::cuda {

template <class Params>
bool CudaOps::begin(OpId op, const Params& p) {
  if (recording()) {
    record_->append(op, p);
    return false;
  }
  if (!gpu_.ready()) return false;  // the next call that can fail returns the error
  auto current = gpu_.make_current();
  if (!current) gpu_.refuse(std::move(current).error());
  return current.has_value();
}

template <class Params>
void CudaOps::submit(OpId op, KernelId kernel, const Params& p) {
  if (!begin(op, p)) return;
  auto shape = launch_shape(p);
  if (!shape) return gpu_.refuse(std::move(shape).error());
  kernels_.launch(kernel, *shape, &p, sizeof(p));
}

template <class Params>
void CudaOps::submit_lora(OpId op, const Params& p) {
  if (!begin(op, p)) return;
  auto launch = launch_lora(p);
  if (!launch) return gpu_.refuse(std::move(launch).error());
  kernels_.launch(launch->kernel, launch->shape, &p, sizeof(p));
}

void CudaOps::embed(const EmbedParams& p) { submit(OpId::kEmbed, KernelId::kEmbed, p); }
void CudaOps::rms_norm(const RmsNormParams& p) { submit(OpId::kRmsNorm, KernelId::kRmsNorm, p); }
void CudaOps::layer_norm(const LayerNormParams& p) {
  submit(OpId::kLayerNorm, KernelId::kLayerNorm, p);
}

bool CudaOps::suits_library(const MatmulPlan& plan, const MatmulParams& p) {
  if (!plan.many_rows || library_ == nullptr || !library_allowed_) return false;
  if (library_workspace() == nullptr) return false;
  if (p.segments[0].weight.dtype == DType::kF8E4M3) {
    if (!std::exchange(told_fp8_, true)) {
      log_info(
          gpu_.name() +
          ": using built-in kernels for products with FP8 weights: cuBLASLt takes them with FP8 "
          "activations only");
    }
    return false;
  }
  return true;
}

bool CudaOps::use_library_for(const MatmulPlan& plan, const MatmulParams& p) {
  if (!suits_library(plan, p) || !library_->submit(p, library_workspace())) return false;
  products().add(p.rows, p.rows.capacity);
  return true;
}

template <class Params>
void CudaOps::choose_algorithm(const Params& p, const MatmulParams& product) {
  const auto plan = plan_matmul(p, matmul_);
  if (plan && suits_library(*plan, product)) library_->prepare(product, library_workspace());
}

// A wrong op is reported when it runs.
void CudaOps::prepare(const Graph& graph) {
  for (std::size_t i = 0; i < graph.num_nodes(); ++i) {
    const GraphNode node = graph.node(i);
    if (node.op == OpId::kMatmul) {
      const auto p = read_params<MatmulParams>(node);
      choose_algorithm(p, p);
    } else if (node.op == OpId::kGatedMatmul) {
      const auto p = read_params<GatedMatmulParams>(node);
      choose_algorithm(p, p.product());
    }
  }
}

template <class Params>
void CudaOps::launch_product(const MatmulPlan& plan, const Params& p) {
  products().add(p.rows, row_multiple(plan.kernel));
  kernels_.launch(plan.kernel, plan.shape, &p, sizeof(p));
}

void CudaOps::matmul(const MatmulParams& p) {
  if (!begin(OpId::kMatmul, p)) return;
  auto plan = plan_matmul(p, matmul_);
  if (!plan) return gpu_.refuse(std::move(plan).error());
  if (!use_library_for(*plan, p)) launch_product(*plan, p);
}
void CudaOps::lora_shrink(const LoraShrinkParams& p) { submit_lora(OpId::kLoraShrink, p); }
void CudaOps::lora_expand(const LoraExpandParams& p) { submit_lora(OpId::kLoraExpand, p); }
void CudaOps::rope_write_kv(const RopeWriteKvParams& p) {
  submit(OpId::kRopeWriteKv, KernelId::kRopeWriteKv, p);
}
void CudaOps::attention(const AttentionParams& p) {
  if (!begin(OpId::kAttention, p)) return;
  auto launch = launch_attention(p, gpu_.info());
  if (!launch) return gpu_.refuse(std::move(launch).error());
  if (!launch->why_plain.empty() && !std::exchange(told_plain_, true)) {
    log_warning(gpu_.name() + ": attention runs without tensor cores: " + launch->why_plain);
  }
  kernels_.launch(launch->kernel, launch->shape, &p, sizeof(p));
}
void CudaOps::gated_activation(const GatedActivationParams& p) {
  submit(OpId::kGatedActivation, KernelId::kGatedActivation, p);
}
void CudaOps::gated_matmul(const GatedMatmulParams& p) {
  if (!begin(OpId::kGatedMatmul, p)) return;
  auto plan = plan_matmul(p, matmul_);
  if (!plan) return gpu_.refuse(std::move(plan).error());
  if (use_library_for(*plan, p.product())) {
    const GatedActivationParams rest = p.activated();
    const auto shape = launch_shape(rest);  // which the plan has looked at
    return kernels_.launch(KernelId::kGatedActivation, *shape, &rest, sizeof(rest));
  }
  launch_product(*plan, p);
}
void CudaOps::gather_rows(const GatherRowsParams& p) {
  submit(OpId::kGatherRows, KernelId::kGatherRows, p);
}
void CudaOps::copy_blocks(const CopyBlocksParams& p) {
  submit(OpId::kCopyBlocks, KernelId::kCopyBlocks, p);
}
void CudaOps::sample(const SampleParams& p) { submit(OpId::kSample, KernelId::kSample, p); }

void CudaOps::all_reduce(const AllReduceParams& p) {
  if (recording()) return record_->append(OpId::kAllReduce, p);
  // One rank: the sum over ranks is what is there already.
  if (p.world_size == 1) return;
  gpu_.refuse(unsupported("all_reduce: " + std::to_string(p.world_size) +
                          " ranks; this backend runs on one GPU"));
}

AttentionPlanSize CudaOps::attention_plan_size(const AttentionPlanLimits& limits) const {
  return cuda::attention_plan_size(limits);
}

std::int64_t CudaOps::plan_attention(const AttentionPlanParams& p) {
  return write_attention_plan(p, attention_blocks(gpu_.info(), p.limits.head_dim));
}

Work CudaOps::attention_work(const AttentionPlanParams& p) const { return cuda::attention_work(p); }

}  // namespace sluice::cuda
