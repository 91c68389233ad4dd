// The work list of paged attention. The host writes it for a step (attention_plan.h), the kernel
// takes tasks from it (paged_attention.cu). Plain integers, C++17, for both compilers.
//
// Attention is cut so that a result depends on absolute positions alone, never on the batch. Keys
// are taken one step at a time. The steps of a part are added up in registers; the parts of a span
// are added in order, and so are the spans of a context. Any warp may compute a part.
//
// The rows of a tile are pairs of a query token and one of the query heads that share a KV head,
// tokens outermost. So one read of a key serves all rows. In a narrow tile (at most kWarpRows rows)
// each warp of the block processes a different part of the keys. In a wide tile each warp has its
// own rows, and all warps share the keys.
#pragma once

#include <cstdint>

namespace sluice::cuda {

constexpr int kStepKeys = 32;
constexpr int kPartKeys = 128;
constexpr int kSpanKeys = 512;
constexpr int kAttentionWarps = 4;
constexpr int kWarpRows = 16;
constexpr int kWideRows = kWarpRows * kAttentionWarps;
static_assert(kPartKeys % kStepKeys == 0 && kSpanKeys == kPartKeys * kAttentionWarps);

// The shared memory of a block of threads, for heads of up to `dim` elements: places that hold a
// step's keys or values, or float sums of a warp's rows (paged_attention.cu).
constexpr int attention_shared_bytes(int dim) {
  return (3 * kAttentionWarps + 1) * kStepKeys * dim * 2;
}

// A block's work for one KV head: a tile over all spans that its rows see, or one span of a cut
// tile. The block that finishes a cut tile last adds its spans.
struct AttentionTask {
  std::int32_t row = 0;             // of the step
  std::int32_t first_token = 0;     // of the row, in the step
  std::int32_t first_position = 0;  // of the row's first token
  std::int32_t first_pair = 0;      // of the tile, among the row's pairs
  std::int32_t num_pairs = 0;       // 1 to kWideRows
  std::int32_t first_span = 0;      // of this task
  std::int32_t num_spans = 0;
  std::int32_t tile_first_span = 0;
  std::int32_t tile_spans = 0;
  // For a cut tile: the first row of its partial results (KV head by KV head, each span by span)
  // and the first of its counters, one per KV head.
  std::int32_t first_partial = -1;
  std::int32_t first_counter = -1;
};

// The header, before the tasks. Offsets are in bytes from its start.
struct AttentionWork {
  std::int32_t num_tasks = 0;
  std::int32_t next = 0;         // the next task and KV head; 0 again after the op
  std::int32_t blocks_done = 0;  // likewise
  std::int32_t reserved = 0;
  std::int64_t tasks_offset = 0;     // longest first
  std::int64_t counters_offset = 0;  // spans done; 0 again after the last
  std::int64_t sums_offset = 0;      // [partial rows, head_dim] F32, not divided by their weight
  std::int64_t weights_offset = 0;   // [partial rows, 2] F32: largest score, sum of weights
};

}  // namespace sluice::cuda
