// FastOps: LoRA. Shrinking is a matmul of a segment's tokens with A; expanding has a kernel.
#include <algorithm>

#include "base/check.h"
#include "device/cpu/fast_ops.h"
#include "device/cpu/lora_view.h"

namespace sluice {
namespace {

// Columns of one task of lora_expand: a few memory pages of a rank's row of B.
constexpr std::int64_t kExpandColumns = 4096;

// The sizes of a step's adapters, which decide how the work is split.
struct LoraWork {
  std::int64_t ranks = 0;  // sum over all segments and modules
  std::int32_t max_rank = 0;
};

LoraWork work_of(const LoraTable& table, const LoraBatch& batch, std::int32_t segments) {
  LoraWork work;
  for (std::int32_t s = 0; s < segments; ++s) {
    for (std::int32_t m = 0; m < table.num_modules; ++m) {
      const std::int32_t rank = lora_entry(table, batch.segments[s].slot, m).rank;
      work.ranks += rank;
      work.max_rank = std::max(work.max_rank, rank);
    }
  }
  return work;
}

}  // namespace

void FastOps::execute(const LoraShrinkParams& p) {
  const std::int64_t depth = p.x.dims[1];
  CHECK(p.h.parts == LoraHidden::parts_of(depth));
  const std::int32_t segments = check_lora(p.table, p.batch, p.h, p.x.dims[0]);
  const LoraWork work = work_of(p.table, p.batch, segments);
  if (work.ranks == 0) return;
  const kernels::MatmulKernel kernel = matmul_kernel(p.x.dtype, p.table.dtype);
  const auto element = static_cast<std::int64_t>(size_of(p.table.dtype));
  const auto x_bytes = static_cast<std::int64_t>(size_of(p.x.dtype));
  const std::int32_t ranks = 2 * kernels_.matmul_cols;  // per task
  const std::int32_t rank_tasks = (work.max_rank + ranks - 1) / ranks;
  const std::int32_t tasks = p.h.parts * rank_tasks;  // per segment and module
  const auto run = [&](int task, int worker) {
    const LoraSegment& segment = p.batch.segments[task / tasks / p.table.num_modules];
    const std::int32_t module = task / tasks % p.table.num_modules;
    const LoraEntry& entry = lora_entry(p.table, segment.slot, module);
    const std::int32_t part = task % tasks / rank_tasks;
    const std::int64_t first_rank = task % rank_tasks * ranks;
    if (first_rank >= entry.rank) return;
    const std::int64_t k = part * LoraHidden::kPartDepth;
    const char* x = static_cast<const char*>(p.x.data) + k * x_bytes;
    kernels::MatmulPiece piece;
    piece.x_stride = p.x.strides[0];
    piece.weight = static_cast<const char*>(lora_weights(p.table, entry.a)) + k * element;
    piece.weight_stride = depth;
    piece.out_stride = std::int64_t{p.table.num_modules} * p.table.max_rank;
    piece.depth = std::min(depth - k, LoraHidden::kPartDepth);
    piece.col_begin = first_rank;
    piece.col_end = std::min<std::int64_t>(entry.rank, first_rank + ranks);
    piece.wide = wide_.get() + worker * kernels::kManyFloats;
    // Consecutive tokens are rows of one product.
    const std::int32_t* tokens = p.batch.tokens + segment.first;
    std::int32_t end = 0;
    for (std::int32_t i = 0; i < segment.count; i = end) {
      end = i + 1;
      while (end < segment.count && tokens[end] == tokens[end - 1] + 1) ++end;
      piece.x = x + tokens[i] * p.x.strides[0] * x_bytes;
      piece.out = lora_hidden_row(p.h, p.table, part, segment.first + i, module);
      piece.row_end = end - i;
      kernel(piece);
    }
  };
  split_tasks(segments * p.table.num_modules * tasks,
              work.ranks * depth * element >= kMinParallelBytes, run);
}

void FastOps::execute(const LoraExpandParams& p) {
  CHECK(p.out.dtype == DType::kF32);
  const std::int32_t segments = check_lora(p.table, p.batch, p.h, p.out.dims[0]);
  const LoraWork work = work_of(p.table, p.batch, segments);
  if (work.ranks == 0) return;
  std::int64_t columns[LoraTable::kMaxModules + 1] = {};  // first column of each module
  std::int64_t widest = 0;
  for (std::int32_t m = 0; m < p.table.num_modules; ++m) {
    columns[m + 1] = columns[m] + p.widths[m];
    widest = std::max(widest, p.widths[m]);
  }
  CHECK(columns[p.table.num_modules] == p.out.dims[1]);
  const auto tasks = static_cast<std::int32_t>((widest + kExpandColumns - 1) / kExpandColumns);
  const std::int64_t h_stride = std::int64_t{p.table.num_modules} * p.table.max_rank;
  const auto run = [&](int task, int) {
    const LoraSegment& segment = p.batch.segments[task / tasks / p.table.num_modules];
    const std::int32_t module = task / tasks % p.table.num_modules;
    const LoraEntry& entry = lora_entry(p.table, segment.slot, module);
    const std::int64_t begin = task % tasks * kExpandColumns;
    if (entry.rank == 0 || begin >= p.widths[module]) return;
    const std::int64_t end = std::min(p.widths[module], begin + kExpandColumns);
    kernels_.lora_expand({.h = lora_hidden_row(p.h, p.table, 0, segment.first, module),
                          .h_stride = h_stride,
                          .part_stride = h_stride * p.h.capacity,
                          .parts = p.h.parts,
                          .count = segment.count,
                          .tokens = p.batch.tokens + segment.first,
                          .b = lora_weights(p.table, entry.b),
                          .dtype = p.table.dtype,
                          .b_stride = p.widths[module],
                          .rank = entry.rank,
                          .scale = entry.scale,
                          .out = static_cast<float*>(p.out.data) + columns[module],
                          .out_stride = p.out.strides[0],
                          .col_begin = begin,
                          .col_end = end});
    for (std::int32_t i = segment.first; i < segment.first + segment.count; ++i) {
      apply_lora_gains(
          p.table, entry, p.widths[module], begin, end,
          static_cast<float*>(p.out.data) + p.batch.tokens[i] * p.out.strides[0] + columns[module]);
    }
  };
  const std::int64_t bytes =
      work.ranks * widest * static_cast<std::int64_t>(size_of(p.table.dtype));
  split_tasks(segments * p.table.num_modules * tasks, bytes >= kMinParallelBytes, run);
}

}  // namespace sluice
