// CudaOps: submits the kernel of each op to the GPU's compute stream. During a capture it only
// lists the ops; graph_capture.h makes a graph of the list. If an op cannot be submitted, the Gpu
// keeps the error (Gpu::take_error).
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

  // Uses `library` for matrix products of many rows from now on, if it has a workspace. It must
  // outlive this.
  void use_library(LibraryMatmul& library) { library_ = &library; }
  bool has_library() const { return library_ != nullptr; }
  // Whether the library, if there is one, may be used.
  void allow_library(bool allowed) { library_allowed_ = allowed; }

  bool recording() const { return list_.has_value(); }
  void start_recording() { list_.emplace(); }
  // REQUIRES: recording.
  OpList end_recording();
  // Prepares the ops of a list for a capture: lets the library choose its algorithms and runs each
  // once, which loads its code. The driver forbids both during a capture. Writes `out` of these
  // products.
  void prepare(const OpList& list);

  template <class Params>
  void execute(const Params& p) {
    if (list_) return list_->append(p);
    if (ready()) submit(p);
  }
  AttentionPlanSize attention_plan_size(const AttentionPlanLimits& limits) const override;
  std::int64_t plan_attention(const AttentionPlanParams& p) override;
  // Counts the work of the kernel on tensor cores, even if the plain kernel runs.
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

  // Whether the library supports the product and may be used.
  bool suits_library(const MatmulPlan& plan, const MatmulParams& p);
  // Whether the library is used for the product. Logs the reason once if it is not.
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
  bool logged_fp8_ = false;     // logged that the library is not used
  bool logged_plain_ = false;   // logged that attention is slow, and why
  std::optional<OpList> list_;  // while capturing
};

}  // namespace sluice::cuda
