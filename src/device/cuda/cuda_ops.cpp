#include "device/cuda/cuda_ops.h"

#include <string>

#include "device/cuda/launch_shapes.h"

namespace sluice::cuda {

template <class Params>
void CudaOps::submit(OpId op, KernelId kernel, const Params& p) {
  if (recording()) record_->append(op, p);
  if (!gpu_.health()) return;  // the step has failed; its caller learns when it waits
  auto shape = launch_shape(p);
  if (!shape) return gpu_.refuse(std::move(shape).error());
  if (auto current = gpu_.make_current(); !current) {
    return gpu_.refuse(std::move(current).error());
  }
  kernels_.launch(kernel, *shape, &p, sizeof(p));
}

void CudaOps::embed(const EmbedParams& p) { submit(OpId::kEmbed, KernelId::kEmbed, p); }
void CudaOps::rms_norm(const RmsNormParams& p) { submit(OpId::kRmsNorm, KernelId::kRmsNorm, p); }
void CudaOps::matmul(const MatmulParams& p) { submit(OpId::kMatmul, KernelId::kMatmul, p); }
void CudaOps::rope_write_kv(const RopeWriteKvParams& p) {
  submit(OpId::kRopeWriteKv, KernelId::kRopeWriteKv, p);
}
void CudaOps::attention(const AttentionParams& p) {
  submit(OpId::kAttention, KernelId::kAttention, p);
}
void CudaOps::gated_activation(const GatedActivationParams& p) {
  submit(OpId::kGatedActivation, KernelId::kGatedActivation, p);
}
void CudaOps::gather_rows(const GatherRowsParams& p) {
  submit(OpId::kGatherRows, KernelId::kGatherRows, p);
}
void CudaOps::copy_blocks(const CopyBlocksParams& p) {
  submit(OpId::kCopyBlocks, KernelId::kCopyBlocks, p);
}
void CudaOps::sample(const SampleParams& p) { submit(OpId::kSample, KernelId::kSample, p); }

void CudaOps::all_reduce(const AllReduceParams& p) {
  if (recording()) record_->append(OpId::kAllReduce, p);
  // One rank: the sum over ranks is what is there already.
  if (p.world_size == 1) return;
  gpu_.refuse(unsupported("all_reduce: " + std::to_string(p.world_size) +
                          " ranks; this backend runs on one GPU"));
}

std::int64_t CudaOps::attention_plan_bytes(std::int32_t, std::int32_t) const { return 0; }

void CudaOps::plan_attention(const AttentionPlanParams&) {}

}  // namespace sluice::cuda
