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
#include "device/cpu/attention_plan.h"
#include "device/cpu/kernels/kernel_table.h"
#include "device/ops.h"

namespace sluice {

class FastOps final : public OpsBase<FastOps> {
 public:
  // Both must outlive the object.
  FastOps(ThreadPool& pool, const kernels::KernelTable& kernels);

  // Declares execute(const Params&) for each op; the definitions are next to the ops' helpers.
  SLUICE_OPS(SLUICE_DECLARE_EXECUTE)
  AttentionPlanSize attention_plan_size(const AttentionPlanLimits& limits) const override;
  std::int64_t plan_attention(const AttentionPlanParams& p) override;
  Work attention_work(const AttentionPlanParams& p) const override;

 private:
  // Handing work to another thread costs 2 to 50 microseconds. One core moves about 10 KB in a
  // microsecond.
  static constexpr std::int64_t kMinParallelBytes = 128 << 10;

  struct FreeAligned {
    void operator()(void* p) const { ::operator delete[](p, std::align_val_t{64}); }
  };

  // Calls task(begin, end) over [0, rows) in pieces, or in one piece if `bytes`, the memory that
  // the op touches, is too little to wake a thread for.
  void split_rows(std::int32_t rows, std::int64_t bytes,
                  FunctionRef<void(std::int32_t, std::int32_t)> task);
  // Calls task(i, worker) for i in [0, n). Each worker has its own scratch.
  void split_tasks(int n, bool worth_it, FunctionRef<void(int, int)> task);
  // Calls task(i, next, worker), where `next` is what the worker does after i, or -1 if that is not
  // known yet.
  void split_tasks_ahead(int n, bool worth_it, FunctionRef<void(int, int, int)> task);
  // How many of n tasks, from the first on, take the next one before they begin.
  int taken_ahead(int n) const;
  // The same, where tasks before `ahead_until` do so.
  void take_tasks(int n, bool worth_it, int ahead_until, FunctionRef<void(int, int, int)> task);
  // Rows of x, as the kernels take them.
  struct MatmulInput {
    const void* data = nullptr;
    std::int64_t stride = 0;
    const kernels::QuantizedRow* quantized = nullptr;  // if the rows are in INT8
    bool packed = false;                               // for kernels_.packed_matmul
    bool lines = false;                                // packed for kernels_.quantized_matmul
    bool passes = false;                               // rows of the weight are read in passes
    std::int32_t first = 0;                            // row of out
    std::int32_t rows = 0;
  };
  void multiply(const MatmulParams& p, const MatmulInput& x);
  // Gives a piece the scratch memory of a worker.
  void give_scratch(int worker, const MatmulInput& x, kernels::MatmulPiece& piece);
  // Whether kernels of x fetch the first columns of the piece that comes next.
  bool fetches_next(const MatmulInput& x) const;
  // How rows of x reach a product with a weight.
  enum class InputForm { kAsTheyAre, kPacked, kCodes, kPackedCodes, kLines };
  InputForm form_of(DType x, DType weight, std::int32_t rows) const;
  // Whether rows of x in `dtype` are packed for a product with such a weight.
  bool packs(DType dtype, DType weight, std::int32_t rows) const;
  // Calls part(input) for parts of the rows of x, brought into that form.
  void in_parts(const TensorView& x, InputForm form, std::int32_t rows,
                FunctionRef<void(const MatmulInput&)> part);
  void in_packed_parts(const TensorView& x, std::int32_t rows,
                       FunctionRef<void(const MatmulInput&)> part);
  void in_code_parts(const TensorView& x, std::int32_t rows, bool packed,
                     FunctionRef<void(const MatmulInput&)> part);
  void in_line_parts(const TensorView& x, std::int32_t rows,
                     FunctionRef<void(const MatmulInput&)> part);
  void pack(const TensorView& x, std::int32_t rows);
  void multiply_each(const MatmulParams& p);
  void multiply_ordered(const MatmulParams& p, std::int32_t rows);
  // Adds up the keys of a part of a cut item, for one piece of its heads.
  void add_part(const AttentionParams& p, const AttentionItem& item, kernels::AttentionPiece piece,
                std::int32_t index);
  void multiply_gated(const GatedMatmulParams& p, const MatmulInput& x);
  // Null: products are computed first and activated then.
  kernels::GatedKernel gated_kernel(const GatedMatmulParams& p, const MatmulInput& x) const;
  // For rows of x as they are.
  kernels::MatmulKernel matmul_kernel(DType x, DType weight) const;
  // A segment of a matmul and how its columns are cut into pieces. The rest, a shorter piece, comes
  // after all whole pieces of all segments: threads end at about the same time if short pieces are
  // taken last.
  struct SegmentPieces {
    bool has(int piece) const { return piece == rest || (piece >= first && piece < first + count); }
    std::int64_t column_of(int piece) const {
      return (piece == rest ? count : piece - first) * cols;
    }
    bool has_rest() const { return count * cols < whole.col_end; }

    kernels::MatmulKernel kernel = nullptr;
    kernels::MatmulPiece whole;
    std::int64_t cols = 0;  // per piece
    int first = 0;          // the segment's first piece, counted over all segments
    int count = 0;          // whole pieces
    int rest = -1;          // the number of the rest, if there is one
  };
  // Pieces of packed rows and lines have a multiple of this many columns.
  std::int64_t columns_multiple(const MatmulInput& x) const;
  // Columns of `weight` per piece, of `all` columns of the product.
  std::int64_t piece_columns(const TensorView& weight, std::int64_t all, const MatmulInput& x,
                             bool shared) const;
  SegmentPieces cut_segment(const MatmulParams& p, const MatmulSegment& segment,
                            std::int64_t column, const MatmulInput& x, bool shared) const;

  ThreadPool& pool_;
  const kernels::KernelTable& kernels_;
  std::int64_t scratch_floats_ = 0;  // per worker
  std::unique_ptr<float[], FreeAligned> scratch_;
  // A tile of a weight, widened; what products of many rows need; of each worker.
  std::unique_ptr<std::uint16_t[], FreeAligned> widened_;
  std::unique_ptr<float[], FreeAligned> wide_;
  // Rows of x in INT8. A matmul with more rows than fit runs in several parts.
  static constexpr std::int64_t kCodeBytes = 2 << 20;
  static constexpr std::int64_t kCodeRows = 4096;
  std::unique_ptr<std::int8_t[], FreeAligned> codes_;
  std::unique_ptr<kernels::QuantizedRow[]> code_rows_;
  // Rows of x whose columns are in the order of a weight, in parts.
  static constexpr std::int64_t kOrderedElements = 4 << 20;
  std::unique_ptr<std::uint16_t[], FreeAligned> ordered_;
  // Lines of x in INT8, packed, in parts of at most kPackedRows.
  static constexpr std::int64_t kLineBytes = 8 << 20;
  std::unique_ptr<std::uint8_t[], FreeAligned> lines_;
  // Packed rows of x, in parts of at most kPackedRows; sums of each worker. Empty where rows are
  // taken as they are.
  static constexpr std::int64_t kPackedElements = 8 << 20;
  std::unique_ptr<std::uint16_t[], FreeAligned> packed_;
  std::unique_ptr<float[], FreeAligned> sums_;
  // Columns of a gated product that are computed together, and these products of each worker: they
  // stay in the cache until they are activated.
  static constexpr std::int32_t kGatedCols = 128;
  // One more line, so that rows lie in different sets of a cache.
  static constexpr std::int64_t kGatedStride = 2 * kGatedCols + kernels::kMaxLanes;
  static constexpr std::int64_t kGatedFloats = kGatedStride * kernels::kPackedRows;
  std::unique_ptr<float[], FreeAligned> gated_;
  std::atomic<int> next_{0};
};

}  // namespace sluice
