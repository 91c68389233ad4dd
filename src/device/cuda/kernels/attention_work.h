// The work list of paged attention: what the host plans for a step (attention_plan.h) and what the
// kernel takes from it (paged_attention.cu). Plain integers, C++17, for both compilers.
//
// Attention is cut so that a result depends on absolute positions alone, never on the batch: keys
// are taken a step at a time; the steps of a part are summed up in one go; the parts of a span are
// added in order, and so are the spans of a context. Who computes a part, and where it waits until
// it is added, is free.
//
// Rows of a tile are pairs of a query token and one of the query heads that share a KV head, tokens
// outermost: so a key that is read serves all of them. A tile of at most kWarpRows rows is a narrow
// one: each warp of the block takes another part of the keys. In a wide one each warp takes its own
// rows, and all warps share the keys.
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

// Of a block of threads, for heads of up to `dim` elements: places that hold a step's keys or
// values, or float sums of a warp's rows (paged_attention.cu).
constexpr int attention_shared_bytes(int dim) {
  return (3 * kAttentionWarps + 1) * kStepKeys * dim * 2;
}

// What a block of threads does for one KV head: a tile against all spans that its rows see, or
// against one of several; then the block that is last adds them.
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
  // Of a tile that is cut: where its partial results lie, in rows, one KV head behind the other,
  // each span by span; and the first of its counters, one a KV head.
  std::int32_t first_partial = -1;
  std::int32_t first_counter = -1;
};

// In front of the tasks. Offsets are in bytes from here.
struct AttentionWork {
  std::int32_t num_tasks = 0;
  std::int32_t next = 0;         // task and KV head to take; 0 again when the op is done
  std::int32_t blocks_done = 0;  // likewise
  std::int32_t reserved = 0;
  std::int64_t tasks_offset = 0;     // longest first
  std::int64_t counters_offset = 0;  // spans done; 0 again when all are
  std::int64_t sums_offset = 0;      // [partial rows, head_dim] F32, not divided by their weight
  std::int64_t weights_offset = 0;   // [partial rows, 2] F32: largest score, sum of weights
};

}  // namespace sluice::cuda
