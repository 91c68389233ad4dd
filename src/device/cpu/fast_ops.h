// FastOps: the ops on the kernels of one instruction set, split over the thread pool. How work is
// split never changes a result. Scratch memory is taken at construction; no op allocates.
// Owner: the CPU device. Threads: the engine's thread only; the pool's threads work inside a call.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/function_ref.h"
#include "base/thread_pool.h"
#include "device/cpu/kernels/kernel_table.h"
#include "device/ops.h"

namespace sluice {

class FastOps final : public Ops {
 public:
  // Both must outlive the object.
  FastOps(ThreadPool& pool, const kernels::KernelTable& kernels);

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
  Work attention_work(const AttentionPlanParams& p) const override;

 private:
  // Handing work to another thread costs 2 to 50 microseconds; one core moves about 10 KB in one.
  static constexpr std::int64_t kMinParallelBytes = 128 << 10;

  struct FreeAligned {
    void operator()(float* p) const { ::operator delete[](p, std::align_val_t{64}); }
  };

  // task(begin, end) over [0, rows) in pieces; at once when `bytes`, the memory the op touches, is
  // too little to be worth waking a thread.
  void split_rows(std::int32_t rows, std::int64_t bytes,
                  FunctionRef<void(std::int32_t, std::int32_t)> task);
  // task(i, worker) for i in [0, n): each worker has scratch of its own.
  void split_tasks(int n, bool worth_it, FunctionRef<void(int, int)> task);
  kernels::MatmulKernel matmul_kernel(DType x, DType weight) const;
  // A segment of a matmul and how its columns are cut.
  struct SegmentPieces {
    kernels::MatmulKernel kernel = nullptr;
    kernels::MatmulPiece whole;
    std::int64_t cols = 0;  // per piece
    int first = 0;          // the segment's first piece, counted over all segments
    int count = 0;
  };
  SegmentPieces cut_segment(const MatmulParams& p, const MatmulSegment& segment,
                            std::int64_t column, std::int32_t rows, bool shared) const;

  ThreadPool& pool_;
  const kernels::KernelTable& kernels_;
  std::int64_t scratch_floats_ = 0;  // per worker
  std::unique_ptr<float[], FreeAligned> scratch_;
  std::atomic<int> next_{0};
};

}  // namespace sluice
