// CudaOps: each op is one kernel, submitted to the GPU's stream; while the device captures, the
// driver records the launches, and the ops are listed beside them.
// An op that cannot be submitted leaves an error that the GPU keeps (Gpu::health).
// Owner: the CUDA device. Threads: the engine's thread only.
#pragma once

#include <memory>
#include <utility>

#include "device/cuda/gpu.h"
#include "device/cuda/kernel_set.h"
#include "device/ops.h"
#include "device/recorded_ops.h"

namespace sluice::cuda {

class CudaOps final : public Ops {
 public:
  CudaOps(Gpu& gpu, KernelSet& kernels) : gpu_(gpu), kernels_(kernels) {}

  bool recording() const { return record_ != nullptr; }
  void start_recording() { record_ = std::make_unique<RecordedOps>(); }
  std::unique_ptr<RecordedOps> take_record() { return std::move(record_); }

  void embed(const EmbedParams& p) override;
  void rms_norm(const RmsNormParams& p) override;
  void matmul(const MatmulParams& p) override;
  void rope_write_kv(const RopeWriteKvParams& p) override;
  void attention(const AttentionParams& p) override;
  void gated_activation(const GatedActivationParams& p) override;
  void gather_rows(const GatherRowsParams& p) override;
  void all_reduce(const AllReduceParams& p) override;
  void copy_blocks(const CopyBlocksParams& p) override;
  void sample(const SampleParams& p) override;
  // Attention finds its work from the lengths alone: no plan yet.
  std::int64_t attention_plan_bytes(std::int32_t max_tokens, std::int32_t max_seqs) const override;
  void plan_attention(const AttentionPlanParams& p) override;

 private:
  template <class Params>
  void submit(OpId op, KernelId kernel, const Params& p);

  Gpu& gpu_;
  KernelSet& kernels_;
  std::unique_ptr<RecordedOps> record_;  // while capturing
};

}  // namespace sluice::cuda
