// CudaOps: submits the kernel of each op to the GPU's stream. While the device captures, ops are
// only listed; graph_capture.h makes a graph of the list.
// An op that cannot be submitted leaves an error that the GPU keeps (Gpu::take_error).
// Owner: the CUDA device. Threads: the engine's thread only.
#pragma once

#include <cstddef>
#include <optional>
#include <utility>

#include "device/cuda/gpu.h"
#include "device/cuda/kernel_set.h"
#include "device/cuda/launch_shapes.h"
#include "device/cuda/lora_launch.h"
#include "device/cuda/matmul_plan.h"
#include "device/op_list.h"
#include "device/ops.h"

namespace sluice::cuda {

class LibraryMatmul;

class CudaOps final : public OpsBase<CudaOps> {
 public:
  CudaOps(Gpu& gpu, KernelSet& kernels, bool deterministic)
      : gpu_(gpu), kernels_(kernels), matmul_{deterministic, gpu.info().multiprocessors} {}

  // From now on `library` does matrix products of many rows, while there is a workspace for it. It
  // must outlive this.
  void use_library(LibraryMatmul& library) { library_ = &library; }
  bool has_library() const { return library_ != nullptr; }
  // Whether the library is used, where there is one.
  void allow_library(bool allowed) { library_allowed_ = allowed; }

  bool recording() const { return list_.has_value(); }
  void start_recording() { list_.emplace(); }
  // REQUIRES: recording.
  OpList end_recording();
  // Does what the ops of a list need and a capture of the driver forbids: the library chooses its
  // algorithms, and runs each once, so that its code is loaded. Writes `out` of these products.
  void prepare(const OpList& list);

  template <class Params>
  void execute(const Params& p) {
    if (list_) return list_->append(p);
    if (ready()) submit(p);
  }
  AttentionPlanSize attention_plan_size(const AttentionPlanLimits& limits) const override;
  std::int64_t plan_attention(const AttentionPlanParams& p) override;
  // The work of the kernel on tensor cores, also where the plain one runs.
  Work attention_work(const AttentionPlanParams& p) const override;

 private:
  // Whether ops can be submitted.
  bool ready();
  // Most ops are one kernel.
  template <class Params>
  void submit(const Params& p) {
    launch(plan_launch(p), &p, sizeof(p));
  }
  void submit(const MatmulParams& p);
  void submit(const GatedMatmulParams& p);
  void submit(const AttentionParams& p);
  void submit(const AllReduceParams& p);

  void launch(Result<KernelLaunch> planned, const void* params, std::size_t bytes);

  // Whether the library may do it.
  bool suits_library(const MatmulPlan& plan, const MatmulParams& p);
  // Whether it does.
  bool use_library_for(const MatmulPlan& plan, const MatmulParams& p);
  template <class Params>
  void choose_algorithm(const Params& p, const MatmulParams& product);
  template <class Params>
  void launch_product(const MatmulPlan& plan, const Params& p);

  Gpu& gpu_;
  KernelSet& kernels_;
  LibraryMatmul* library_ = nullptr;
  bool library_allowed_ = true;
  MatmulChoice matmul_;
  bool told_fp8_ = false;       // that the library is not used
  bool told_plain_ = false;     // that attention is slow, and why
  std::optional<OpList> list_;  // while capturing
};

}  // namespace sluice::cuda
