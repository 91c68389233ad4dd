// CudaOps: submits the kernel of each op to the GPU's stream. While the device captures, ops are
// only listed; graph_capture.h makes a graph of the list.
// An op that cannot be submitted leaves an error that the GPU keeps (Gpu::take_error).
// Owner: the CUDA device. Threads: the engine's thread only.
#pragma once

#include <memory>
#include <utility>

#include "device/cuda/gpu.h"
#include "device/cuda/kernel_set.h"
#include "device/cuda/matmul_plan.h"
#include "device/ops.h"
#include "device/recorded_ops.h"

namespace sluice::cuda {

class LibraryMatmul;

class CudaOps final : public Ops {
 public:
  CudaOps(Gpu& gpu, KernelSet& kernels, bool deterministic)
      : gpu_(gpu), kernels_(kernels), matmul_{deterministic, gpu.info().multiprocessors} {}

  // From now on `library` does matrix products of many rows, while there is a workspace for it. It
  // must outlive this.
  void use_library(LibraryMatmul& library) { library_ = &library; }
  bool has_library() const { return library_ != nullptr; }
  // Whether the library is used, where there is one.
  void allow_library(bool allowed) { library_allowed_ = allowed; }

  bool recording() const { return record_ != nullptr; }
  void start_recording() { record_ = std::make_unique<RecordedOps>(); }
  std::unique_ptr<RecordedOps> take_record() { return std::move(record_); }
  // Does what the ops of a list need and a capture of the driver forbids: the library chooses its
  // algorithms, and runs each once, so that its code is loaded. Writes `out` of these products.
  void prepare(const Graph& graph);

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
  // Of the kernel on tensor cores, also where the plain one runs.
  Work attention_work(const AttentionPlanParams& p) const override;

 private:
  // Whether the op can be submitted; while capturing it is listed instead.
  template <class Params>
  bool begin(OpId op, const Params& p);
  template <class Params>
  void submit(OpId op, KernelId kernel, const Params& p);
  // Whether the library may do it.
  bool suits_library(const MatmulPlan& plan, const MatmulParams& p);
  // Whether it does.
  bool use_library_for(const MatmulPlan& plan, const MatmulParams& p);
  template <class Params>
  void choose_algorithm(const Params& p, const MatmulParams& product);
  template <class Params>
  void launch_product(const MatmulPlan& plan, const Params& p);

  template <class Params>
  void submit_lora(OpId op, const Params& p);

  Gpu& gpu_;
  KernelSet& kernels_;
  LibraryMatmul* library_ = nullptr;
  bool library_allowed_ = true;
  MatmulChoice matmul_;
  bool told_fp8_ = false;                // that the library is not used
  bool told_plain_ = false;              // that attention is slow, and why
  std::unique_ptr<RecordedOps> record_;  // while capturing
};

}  // namespace sluice::cuda
