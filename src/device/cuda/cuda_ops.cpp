#include "device/cuda/cuda_ops.h"

#include <string>

#include "base/log.h"
#include "device/cuda/attention_launch.h"
#include "device/cuda/attention_plan.h"
#include "device/cuda/library_matmul.h"

namespace sluice::cuda {

OpList CudaOps::end_recording() {
  OpList list = *std::move(list_);
  list_.reset();
  return list;
}

bool CudaOps::ready() {
  if (!gpu_.ready()) return false;  // the next call that can fail returns the error
  auto current = gpu_.make_current();
  if (current) return true;
  gpu_.refuse(std::move(current).error());
  return false;
}

void CudaOps::launch(Result<KernelLaunch> planned, const void* params, std::size_t bytes) {
  if (!planned) return gpu_.refuse(std::move(planned).error());
  kernels_.launch(*planned, params, bytes);
}

bool CudaOps::suits_library(const MatmulPlan& plan, const MatmulParams& p) {
  if (!plan.many_rows || library_ == nullptr || !library_allowed_) return false;
  if (library_workspace() == nullptr) return false;
  if (p.segments[0].weight.dtype == DType::kF8E4M3) {
    if (!std::exchange(logged_fp8_, true)) {
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

// An invalid op is reported when it runs.
void CudaOps::prepare(const OpList& list) {
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i].op == MatmulParams::kOp) {
      const auto p = list[i].as<MatmulParams>();
      choose_algorithm(p, p);
    } else if (list[i].op == GatedMatmulParams::kOp) {
      const auto p = list[i].as<GatedMatmulParams>();
      choose_algorithm(p, p.product());
    }
  }
}

template <class Params>
void CudaOps::launch_product(const MatmulPlan& plan, const Params& p) {
  products().add(p.rows, row_multiple(plan.kernel));
  launch(KernelLaunch{plan.kernel, plan.shape}, &p, sizeof(p));
}

void CudaOps::submit(const MatmulParams& p) {
  auto plan = plan_matmul(p, matmul_);
  if (!plan) return gpu_.refuse(std::move(plan).error());
  if (!use_library_for(*plan, p)) launch_product(*plan, p);
}

void CudaOps::submit(const GatedMatmulParams& p) {
  auto plan = plan_matmul(p, matmul_);
  if (!plan) return gpu_.refuse(std::move(plan).error());
  if (use_library_for(*plan, p.product())) return submit(p.activated());
  launch_product(*plan, p);
}

void CudaOps::submit(const AttentionParams& p) {
  auto planned = launch_attention(p, gpu_.info());
  if (!planned) return gpu_.refuse(std::move(planned).error());
  if (!planned->why_plain.empty() && !std::exchange(logged_plain_, true)) {
    log_warning(gpu_.name() + ": attention runs without tensor cores: " + planned->why_plain);
  }
  launch(KernelLaunch{planned->kernel, planned->shape}, &p, sizeof(p));
}

void CudaOps::submit(const AllReduceParams& p) {
  // With one rank the buffer holds the sum already.
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
