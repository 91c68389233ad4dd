// Attention over block tables on tensor cores, for prefill chunks and decodes in one launch. A
// fixed number of blocks of threads takes tasks from the plan's list (attention_work.h) until none
// is left. Scores stay in registers: a step's weights are the left operand of the product with the
// values. Keys and values are copied to slots of shared memory ahead of use, one step's keys or
// values per slot.
//
// Queries and weights are rounded to the KV dtype for the tensor cores. Products are exact and sums
// are float32. A weight is exp2(score - largest score so far). The sum of weights is a product with
// ones: it adds the rounded weights in the same order as the values.
//
// Exactness: a row of a product does not depend on the other rows. So a warp's result for a row and
// a part's steps is the same in a narrow and in a wide tile. Parts and spans are always added in
// the same order by the same expression (blend). A step in which a row sees no key changes nothing:
// its weights are 0 and the largest score stays. A NaN or an infinity in a value may reach earlier
// tokens of the same chunk (0 * NaN). Keys and values that no token of a tile sees are not read.
#include "device/cuda/kernels/attention_work.h"
#include "device/cuda/kernels/elements.cuh"
#include "device/cuda/kernels/tensor_core.cuh"

namespace sluice::cuda {
namespace {

constexpr int kThreads = kAttentionWarps * kWarp;
constexpr int kStepTiles = kStepKeys / 8;    // columns of 8 keys
constexpr int kStepHalves = kStepKeys / 16;  // a product takes 16 keys
constexpr int kPartSteps = kPartKeys / kStepKeys;
constexpr int kSpanSteps = kSpanKeys / kStepKeys;
constexpr float kLog2E = 1.44269504F;
constexpr float kNone = -INFINITY;  // the largest score of no keys

struct alignas(8) Pair {
  float low;
  float high;
};
struct alignas(16) Quad {
  float v[4];
};

// Shared memory is divided into places of one size. Each holds a step's keys or values, or float
// sums of a warp's rows. Narrow tile: each warp has a ring of two slots; its sums of a part; one
// place for the total. Wide tile: one ring of four slots; for each warp its total and its sums of a
// span.
template <int kDim>
struct Places {
  static constexpr int kBytes = kStepKeys * kDim * 2;
  static_assert(kBytes == kWarpRows * kDim * 4);
  static constexpr int kWideTotals = kAttentionWarps;
  static constexpr int kSums = 2 * kAttentionWarps;
  static constexpr int kNarrowTotal = 3 * kAttentionWarps;
};

template <int kDim>
__device__ inline unsigned char* place(int index) {
  return dynamic_shared() + index * Places<kDim>::kBytes;
}

// A thread's results for rows g and g + 8 of a warp's 16: of a product's element c[i], row i / 2.
template <int kDim>
struct State {
  float out[kDim / 8][4];
  float sum[4];  // of weights: [0] of row g, [2] of row g + 8
  float max[2];  // of scores
};

// Factors that combine two sums with different largest scores.
struct Blend {
  float kept;
  float added;
  float max;
};

__device__ inline Blend blend(float max, float added_max) {
  const float both = fmaxf(max, added_max);
  const float base = both == kNone ? 0.0F : both;
  return {power_of_two(max - base), power_of_two(added_max - base), both};
}

__device__ inline float blended(const Blend& b, float sum, float added) {
  return fmaf(added, b.added, sum * b.kept);
}

// Weight and largest score of sums that are no longer in registers, rows g and g + 8.
struct Weights {
  float sum[2] = {0.0F, 0.0F};
  float max[2] = {kNone, kNone};
};

// A block's current task, in shared memory because registers are scarce.
struct Work {
  AttentionTask task;
  const std::int32_t* table;  // of the row
  std::int32_t kv_head;
  std::int32_t ratio;          // query heads of a KV head
  std::int32_t first_visible;  // first position that some row of the tile sees
  std::int32_t last_visible;
  bool wide;
};

// The positions that a pair of the tile sees: from its window's start to its token's position.
struct VisibleRange {
  std::int32_t first;
  std::int32_t last;
};

__device__ inline VisibleRange visible_range(const AttentionParams& p, const Work& w,
                                             std::int32_t pair) {
  const std::int32_t last = w.task.first_position + (w.task.first_pair + pair) / w.ratio;
  const std::int32_t window = p.window;
  return {window > 0 && last >= window ? last - window + 1 : 0, last};
}

// The visible ranges of a warp's rows: of a thread's two rows, common to all rows, of any row.
struct Rows {
  std::int32_t first = 0;  // of the tile
  VisibleRange own[2] = {};
  VisibleRange all = {};
  VisibleRange any = {};
  bool none = false;  // the warp is beyond the end of the tile
};

__device__ inline Rows rows_of_warp(const AttentionParams& p, const Work& w, int first) {
  Rows rows;
  rows.first = first;
  const std::int32_t end = w.task.num_pairs;
  rows.none = first >= end;
  if (rows.none) return rows;
  const int g = static_cast<int>(threadIdx.x) % kWarp / 4;
  for (int r = 0; r < 2; ++r) {
    const std::int32_t pair = first + g + 8 * r;
    rows.own[r] = visible_range(p, w, pair < end ? pair : end - 1);
  }
  const VisibleRange low = visible_range(p, w, first);
  const VisibleRange high =
      visible_range(p, w, first + kWarpRows < end ? first + kWarpRows - 1 : end - 1);
  rows.all = {high.first, low.last};
  rows.any = {low.first, high.last};
  return rows;
}

__device__ inline Pair load_pair(const TensorView& q, std::int64_t index) {
  switch (q.dtype) {
    case DType::kF32:
      return *reinterpret_cast<const Pair*>(static_cast<const float*>(q.data) + index);
    case DType::kF16:
    case DType::kBF16: {
      const unsigned both =
          *reinterpret_cast<const unsigned*>(static_cast<const std::uint16_t*>(q.data) + index);
      const auto low = static_cast<std::uint16_t>(both);
      const auto high = static_cast<std::uint16_t>(both >> 16);
      if (q.dtype == DType::kF16) return {f16_to_f32(low), f16_to_f32(high)};
      return {bf16_to_f32(low), bf16_to_f32(high)};
    }
    default: __trap();
  }
  return {};
}

__device__ inline void store_pair(const TensorView& out, std::int64_t index, Pair pair) {
  switch (out.dtype) {
    case DType::kF32:
      *reinterpret_cast<Pair*>(static_cast<float*>(out.data) + index) = pair;
      return;
    case DType::kF16:
      *reinterpret_cast<unsigned*>(static_cast<std::uint16_t*>(out.data) + index) =
          pack_f16(pair.low, pair.high);
      return;
    case DType::kBF16:
      *reinterpret_cast<unsigned*>(static_cast<std::uint16_t*>(out.data) + index) =
          pack_bf16(pair.low, pair.high);
      return;
    default: __trap();
  }
}

// The place of a pair's query and output: token and query head.
struct PairPlace {
  std::int64_t token;
  std::int64_t column;
};

__device__ inline PairPlace place_of_pair(const AttentionParams& p, const Work& w,
                                          std::int32_t pair) {
  const std::int32_t of_row = w.task.first_pair + pair;
  const std::int32_t head = w.kv_head * w.ratio + of_row % w.ratio;
  return {w.task.first_token + of_row / w.ratio, static_cast<std::int64_t>(head) * p.head_dim};
}

// Loads the left operand of the product with keys: zeros beyond head_dim and beyond the tile's
// rows.
template <DType kType, int kDim>
__device__ inline void load_queries(const AttentionParams& p, const Work& w, int first_row,
                                    unsigned (&q)[kDim / 16][4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const std::int32_t pair = first_row + lane / 4 + 8 * r;
    const bool present = pair < w.task.num_pairs;
    const PairPlace from = place_of_pair(p, w, present ? pair : 0);
    const std::int64_t begin = from.token * p.q.strides[0] + from.column;
#pragma unroll
    for (int i = 0; i < kDim / 8; ++i) {
      const int column = 8 * i + lane % 4 * 2;
      unsigned both = 0;
      if (present && column < p.head_dim) {
        const Pair pair_of = load_pair(p.q, begin + column);
        both = pack<kType>(pair_of.low, pair_of.high);
      }
      q[i / 2][r + i % 2 * 2] = both;
    }
  }
}

// ---- Copies

// The place of the key or value of position `step * kStepKeys + lane`, in elements from the base of
// keys or values; -1 if no row of the tile sees it.
__device__ inline long long locate_key(const AttentionParams& p, const Work& w, std::int32_t step) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int32_t position = step * kStepKeys + lane;
  if (position < w.first_visible || position > w.last_visible) return -1;
  const KvLayerView& kv = p.kv;
  const std::int64_t block = w.table[position / kv.block_size];
  return block * kv.block_stride + w.kv_head * kv.head_stride +
         position % kv.block_size * kv.token_stride;
}

// Starts the copy of a step's keys or values to a slot. Row k's chunk c of 16 bytes goes to place
// c ^ (k % 8), so that neither copies nor load_matrices have bank conflicts. In a wide tile each
// warp copies its share.
template <int kDim>
__device__ inline void copy_step(const AttentionParams& p, const Work& w, const void* base,
                                 long long location, unsigned char* slot) {
  constexpr int kChunks = kDim / 8;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int share = kStepKeys * kChunks / kWarp / (w.wide ? kAttentionWarps : 1);
  const int first = w.wide ? warp * share : 0;
#pragma unroll 4
  for (int i = first; i < first + share; ++i) {
    const int element = i * kWarp + lane;
    const int key = element / kChunks;
    const int chunk = element % kChunks;
    const long long from = __shfl_sync(0xFFFFFFFFU, location, key);
    const bool present = from >= 0 && chunk * 8 < p.head_dim;
    copy_async(slot + (key * kChunks + (chunk ^ (key % 8))) * 16,
               static_cast<const std::uint16_t*>(base) + (present ? from + chunk * 8 : 0), present);
  }
}

// ---- One step

template <int kDim>
__device__ inline const unsigned char* chunk_of(const unsigned char* slot, int key, int chunk) {
  return slot + (key * (kDim / 8) + (chunk ^ (key % 8))) * 16;
}

template <DType kType, int kDim>
__device__ inline void score(const unsigned char* keys, const unsigned (&q)[kDim / 16][4],
                             float (&scores)[kStepTiles][4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int n = 0; n < kStepTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) scores[n][i] = 0.0F;
  }
#pragma unroll
  for (int k = 0; k < kDim / 16; ++k) {
#pragma unroll
    for (int half = 0; half < kStepHalves; ++half) {
      unsigned b[4];  // keys 0 to 7 with both halves of 16 dims, keys 8 to 15 likewise
      const int key = 16 * half + lane / 16 * 8 + lane % 8;
      load_matrices(b, chunk_of<kDim>(keys, key, 2 * k + lane / 8 % 2));
      multiply_add<kType>(scores[2 * half], q[k], b[0], b[1]);
      multiply_add<kType>(scores[2 * half + 1], q[k], b[2], b[3]);
    }
  }
}

// Sets the weight of keys that a row does not see to 0.
__device__ inline void hide_unseen(const Rows& rows, std::int32_t begin,
                                   float (&scores)[kStepTiles][4]) {
  const std::int32_t first_key = begin + static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
  for (int n = 0; n < kStepTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::int32_t key = first_key + 8 * n + i % 2;
      const VisibleRange& visible = rows.own[i / 2];
      if (key < visible.first || key > visible.last) scores[n][i] = kNone;
    }
  }
}

// Turns scores into weights, the left operand of the product with values, and scales the state to
// the largest score so far.
template <DType kType, int kDim>
__device__ inline void weigh(const Rows& rows, std::int32_t step, float scale,
                             float (&scores)[kStepTiles][4], unsigned (&weights)[kStepHalves][4],
                             State<kDim>& state) {
  const std::int32_t begin = step * kStepKeys;
  const bool all_seen = begin >= rows.all.first && begin + kStepKeys - 1 <= rows.all.last;
#pragma unroll
  for (int n = 0; n < kStepTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) scores[n][i] *= scale;
  }
  if (!all_seen) hide_unseen(rows, begin, scores);
  float max[2] = {state.max[0], state.max[1]};
#pragma unroll
  for (int n = 0; n < kStepTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) max[i / 2] = fmaxf(max[i / 2], scores[n][i]);
  }
  float base[2];
  float fade[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    max[r] = fmaxf(max[r], __shfl_xor_sync(0xFFFFFFFFU, max[r], 1));
    max[r] = fmaxf(max[r], __shfl_xor_sync(0xFFFFFFFFU, max[r], 2));
    base[r] = max[r] == kNone ? 0.0F : max[r];
    fade[r] = power_of_two(state.max[r] - base[r]);
  }
  // A factor of 1 changes nothing, so all lanes may scale when one needs it.
  if (__any_sync(0xFFFFFFFFU, max[0] != state.max[0] || max[1] != state.max[1])) {
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) state.out[n][i] *= fade[i / 2];
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) state.sum[i] *= fade[i / 2];
    state.max[0] = max[0];
    state.max[1] = max[1];
  }
#pragma unroll
  for (int n = 0; n < kStepTiles; ++n) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      weights[n / 2][r + n % 2 * 2] = pack<kType>(power_of_two(scores[n][2 * r] - base[r]),
                                                  power_of_two(scores[n][2 * r + 1] - base[r]));
    }
  }
}

template <DType kType, int kDim>
__device__ inline void add_values(const unsigned char* values,
                                  const unsigned (&weights)[kStepHalves][4], State<kDim>& state) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const unsigned ones = pack<kType>(1.0F, 1.0F);
#pragma unroll
  for (int half = 0; half < kStepHalves; ++half) {
    multiply_add<kType>(state.sum, weights[half], ones, ones);
#pragma unroll
    for (int n = 0; n < kDim / 16; ++n) {
      unsigned b[4];  // both halves of 16 keys with dims 0 to 7, then with dims 8 to 15
      const int key = 16 * half + lane / 8 % 2 * 8 + lane % 8;
      load_matrices_transposed(b, chunk_of<kDim>(values, key, 2 * n + lane / 16));
      multiply_add<kType>(state.out[2 * n], weights[half], b[0], b[1]);
      multiply_add<kType>(state.out[2 * n + 1], weights[half], b[2], b[3]);
    }
  }
}

template <int kDim>
__device__ inline void clear(State<kDim>& state) {
#pragma unroll
  for (int n = 0; n < kDim / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) state.out[n][i] = 0.0F;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) state.sum[i] = 0.0F;
  state.max[0] = state.max[1] = kNone;
}

// ---- Steps in a row

// Synchronizes the threads that share a ring: the block, or the warp.
__device__ inline void wait_for_sharers(const Work& w) {
  if (w.wide) {
    __syncthreads();
  } else {
    __syncwarp();
  }
}

// Waits until the oldest slot of the ring is full.
__device__ inline void wait_for_oldest(const Work& w) {
  if (w.wide) {
    wait_for_copies(3);
  } else {
    wait_for_copies(1);
  }
  wait_for_sharers(w);
}

// Adds the sums in the warp's registers to those in shared memory, or stores them if `empty`.
template <int kDim>
__device__ inline void move_to_sums(Quad* sums, bool empty, Weights& of_sums, State<kDim>& state) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  Blend b[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    b[r] = blend(of_sums.max[r], state.max[r]);
    of_sums.max[r] = b[r].max;
    of_sums.sum[r] = blended(b[r], of_sums.sum[r], state.sum[2 * r]);
  }
#pragma unroll
  for (int n = 0; n < kDim / 8; ++n) {
    Quad quad = {};
    if (!empty) quad = sums[n * kWarp + lane];
#pragma unroll
    for (int i = 0; i < 4; ++i) quad.v[i] = blended(b[i / 2], quad.v[i], state.out[n][i]);
    sums[n * kWarp + lane] = quad;
  }
  clear(state);
}

// Adds the sums of a span to the total, for a warp of a wide tile.
template <int kDim>
__device__ inline void move_to_total(Quad* total, bool empty, Weights& of_total, const Quad* sums,
                                     Weights& of_sums) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  Blend b[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    b[r] = blend(of_total.max[r], of_sums.max[r]);
    of_total.max[r] = b[r].max;
    of_total.sum[r] = blended(b[r], of_total.sum[r], of_sums.sum[r]);
  }
  for (int n = 0; n < kDim / 8; ++n) {
    Quad quad = {};
    if (!empty) quad = total[n * kWarp + lane];
    const Quad added = sums[n * kWarp + lane];
    for (int i = 0; i < 4; ++i) quad.v[i] = blended(b[i / 2], quad.v[i], added.v[i]);
    total[n * kWarp + lane] = quad;
  }
  of_sums = {};
}

// Runs steps [begin, end) for the warp's rows. In a narrow tile they are of one part and go into
// `state`; in a wide tile they are of any parts and go into the warp's total.
template <DType kType, int kDim>
__device__ inline void take_steps(const AttentionParams& p, const Work& w, const Rows& rows,
                                  std::int32_t begin, std::int32_t end,
                                  const unsigned (&q)[kDim / 16][4], State<kDim>& state,
                                  Weights& of_total) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int depth = w.wide ? 2 : 1;  // steps copied ahead
  unsigned char* ring = place<kDim>(w.wide ? 0 : 2 * warp);
  Quad* sums = reinterpret_cast<Quad*>(place<kDim>(Places<kDim>::kSums + warp));
  Quad* total = reinterpret_cast<Quad*>(place<kDim>(Places<kDim>::kWideTotals + warp));
  Weights of_sums;
  const float scale = p.scale * kLog2E;
  for (std::int32_t step = begin; step < begin + depth; ++step) {
    const long long location = locate_key(p, w, step);
    unsigned char* slot = ring + (step - begin) * 2 * Places<kDim>::kBytes;
    if (step < end) copy_step<kDim>(p, w, p.kv.k_base, location, slot);
    commit_copies();
    if (step < end) copy_step<kDim>(p, w, p.kv.v_base, location, slot + Places<kDim>::kBytes);
    commit_copies();
  }
  for (std::int32_t step = begin; step < end; ++step) {
    unsigned char* keys = ring + (step - begin) % depth * 2 * Places<kDim>::kBytes;
    unsigned char* values = keys + Places<kDim>::kBytes;
    const bool seen = !rows.none && step * kStepKeys <= rows.any.last &&
                      step * kStepKeys + kStepKeys > rows.any.first;
    const long long ahead = locate_key(p, w, step + depth);
    const bool copies = step + depth < end;  // no copy may be outstanding after the last step
    float scores[kStepTiles][4];
    unsigned weights[kStepHalves][4];
    wait_for_oldest(w);
    if (seen) score<kType, kDim>(keys, q, scores);
    wait_for_sharers(w);
    if (copies) copy_step<kDim>(p, w, p.kv.k_base, ahead, keys);
    commit_copies();
    if (seen) weigh<kType, kDim>(rows, step, scale, scores, weights, state);
    wait_for_oldest(w);
    if (seen) add_values<kType, kDim>(values, weights, state);
    wait_for_sharers(w);
    if (copies) copy_step<kDim>(p, w, p.kv.v_base, ahead, values);
    commit_copies();
    if (!w.wide) continue;
    if ((step + 1) % kPartSteps == 0 || step + 1 == end) {
      const std::int32_t part_begin = step - step % kPartSteps;
      move_to_sums(sums, part_begin % kSpanSteps == 0 || part_begin <= begin, of_sums, state);
    }
    if ((step + 1) % kSpanSteps == 0 || step + 1 == end) {
      move_to_total<kDim>(total, step - step % kSpanSteps <= begin, of_total, sums, of_sums);
    }
  }
}

// For a narrow tile, in which each warp's registers hold a different part of a span. Adds the parts
// in order, then the span to the total. Each thread holds a share of the total: groups of 8 columns
// are assigned to the warps in turn.
template <int kDim>
__device__ inline void add_parts(bool empty, State<kDim>& state, Weights& of_total) {
  __shared__ float part_sum[kAttentionWarps][kWarpRows];
  __shared__ float part_max[kAttentionWarps][kWarpRows];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  Quad* own = reinterpret_cast<Quad*>(place<kDim>(Places<kDim>::kSums + warp));
#pragma unroll
  for (int n = 0; n < kDim / 8; ++n) {
    Quad quad;
#pragma unroll
    for (int i = 0; i < 4; ++i) quad.v[i] = state.out[n][i];
    own[n * kWarp + lane] = quad;
  }
  if (lane % 4 == 0) {
    for (int r = 0; r < 2; ++r) {
      part_sum[warp][lane / 4 + 8 * r] = state.sum[2 * r];
      part_max[warp][lane / 4 + 8 * r] = state.max[r];
    }
  }
  clear(state);
  __syncthreads();
  Weights of_span;
  Blend parts[kAttentionWarps][2];
  Blend spans[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int part = 0; part < kAttentionWarps; ++part) {
      const Blend b = blend(of_span.max[r], part_max[part][lane / 4 + 8 * r]);
      of_span.max[r] = b.max;
      of_span.sum[r] = blended(b, of_span.sum[r], part_sum[part][lane / 4 + 8 * r]);
      parts[part][r] = b;
    }
    spans[r] = blend(of_total.max[r], of_span.max[r]);
    of_total.max[r] = spans[r].max;
    of_total.sum[r] = blended(spans[r], of_total.sum[r], of_span.sum[r]);
  }
  Quad* total = reinterpret_cast<Quad*>(place<kDim>(Places<kDim>::kNarrowTotal));
  for (int n = warp; n < kDim / 8; n += kAttentionWarps) {
    Quad of_parts = {};
#pragma unroll
    for (int part = 0; part < kAttentionWarps; ++part) {
      const Quad* sums = reinterpret_cast<const Quad*>(place<kDim>(Places<kDim>::kSums + part));
      const Quad added = sums[n * kWarp + lane];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        of_parts.v[i] = blended(parts[part][i / 2], of_parts.v[i], added.v[i]);
      }
    }
    Quad quad = {};
    if (!empty) quad = total[n * kWarp + lane];
#pragma unroll
    for (int i = 0; i < 4; ++i) quad.v[i] = blended(spans[i / 2], quad.v[i], of_parts.v[i]);
    total[n * kWarp + lane] = quad;
  }
  __syncthreads();  // the sums are read before the next span's are written
}

// ---- Results

// The place of a cut tile's partial results.
struct Partials {
  float* sums;    // [rows, head_dim]
  Pair* weights;  // [rows]: largest score, sum
  std::int32_t* counter;
};

__device__ inline Partials partials_of(const AttentionParams& p, const Work& w) {
  auto* base = static_cast<unsigned char*>(p.plan);
  const auto* work = reinterpret_cast<const AttentionWork*>(base);
  return {reinterpret_cast<float*>(base + work->sums_offset),
          reinterpret_cast<Pair*>(base + work->weights_offset),
          reinterpret_cast<std::int32_t*>(base + work->counters_offset) + w.task.first_counter +
              w.kv_head};
}

// The row of a pair's partial result of a span, counted from the tile's first.
__device__ inline std::int64_t partial_row(const Work& w, std::int32_t span, std::int32_t pair) {
  const AttentionTask& t = w.task;
  return t.first_partial +
         (static_cast<std::int64_t>(w.kv_head) * t.tile_spans + span) * t.num_pairs + pair;
}

// Stores a thread's share of the total: divided by its weight in the output, or undivided in the
// partial results.
template <int kDim>
__device__ inline void write_total(const AttentionParams& p, const Work& w,
                                   const Weights& of_total) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int from = w.wide ? Places<kDim>::kWideTotals + warp : Places<kDim>::kNarrowTotal;
  const Quad* total = reinterpret_cast<const Quad*>(place<kDim>(from));
  const int first = w.wide ? 0 : warp;
  const int step = w.wide ? 1 : kAttentionWarps;
  const bool cut = w.task.first_partial >= 0;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const std::int32_t pair = (w.wide ? warp * kWarpRows : 0) + lane / 4 + 8 * r;
    if (pair >= w.task.num_pairs) continue;
    const float factor = 1.0F / of_total.sum[r];
    const PairPlace to = place_of_pair(p, w, pair);
    const std::int64_t begin = to.token * p.out.strides[0] + to.column;
    Partials partials = {};
    std::int64_t row = 0;
    if (cut) {
      partials = partials_of(p, w);
      row = partial_row(w, w.task.first_span - w.task.tile_first_span, pair);
      if (lane % 4 == 0 && first == 0) partials.weights[row] = {of_total.max[r], of_total.sum[r]};
    }
    for (int n = first; n < kDim / 8; n += step) {
      const int column = 8 * n + lane % 4 * 2;
      if (column >= p.head_dim) break;
      const Quad quad = total[n * kWarp + lane];
      const Pair sums = {quad.v[2 * r], quad.v[2 * r + 1]};
      if (cut) {
        *reinterpret_cast<Pair*>(partials.sums + row * p.head_dim + column) = sums;
      } else {
        store_pair(p.out, begin + column, {sums.low * factor, sums.high * factor});
      }
    }
  }
}

// Adds the spans of a cut tile in order. REQUIRES: all are complete.
__device__ inline void merge_spans(const AttentionParams& p, const Work& w) {
  constexpr int kAhead = 8;
  const Partials partials = partials_of(p, w);
  const std::int32_t quads = p.head_dim / 4;
  const std::int32_t spans = w.task.tile_spans;
  for (std::int32_t e = static_cast<std::int32_t>(threadIdx.x); e < w.task.num_pairs * quads;
       e += kThreads) {
    const std::int32_t pair = e / quads;
    const std::int32_t column = e % quads * 4;
    float max = kNone;
    float sum = 0.0F;
    Quad total = {};
    for (std::int32_t first = 0; first < spans; first += kAhead) {
      Quad quads_ahead[kAhead];
      Pair weights_ahead[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        if (first + i >= spans) continue;
        const std::int64_t row = partial_row(w, first + i, pair);
        weights_ahead[i] = partials.weights[row];
        quads_ahead[i] = *reinterpret_cast<const Quad*>(partials.sums + row * p.head_dim + column);
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        if (first + i >= spans) continue;
        const Blend b = blend(max, weights_ahead[i].low);
        max = b.max;
        sum = blended(b, sum, weights_ahead[i].high);
#pragma unroll
        for (int v = 0; v < 4; ++v) total.v[v] = blended(b, total.v[v], quads_ahead[i].v[v]);
      }
    }
    const float factor = 1.0F / sum;
    const PairPlace to = place_of_pair(p, w, pair);
    const std::int64_t at = to.token * p.out.strides[0] + to.column + column;
    store_pair(p.out, at, {total.v[0] * factor, total.v[1] * factor});
    store_pair(p.out, at + 2, {total.v[2] * factor, total.v[3] * factor});
  }
}

// The block that completes a cut tile merges it. It sees the other blocks' results: each block
// writes, fences and counts; the block that counts last fences and reads.
__device__ inline void merge_if_last(const AttentionParams& p, const Work& w) {
  __shared__ std::int32_t spans_before;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    std::int32_t* counter = partials_of(p, w).counter;
    __threadfence();
    spans_before = atomicAdd(counter, 1);
    if (spans_before == w.task.tile_spans - 1) *counter = 0;  // for the next op
    __threadfence();
  }
  __syncthreads();
  if (spans_before != w.task.tile_spans - 1) return;
  __threadfence();
  merge_spans(p, w);
}

// ---- Tasks

__device__ inline void set_work(const AttentionParams& p, const AttentionTask& task,
                                std::int32_t kv_head, Work& w) {
  w.task = task;
  w.table = p.block_tables + static_cast<std::int64_t>(p.row_slots[task.row]) * p.table_stride;
  w.kv_head = kv_head;
  w.ratio = p.num_heads / p.num_kv_heads;
  w.wide = task.num_pairs > kWarpRows;
  const VisibleRange low = visible_range(p, w, 0);
  const VisibleRange high = visible_range(p, w, task.num_pairs - 1);
  w.first_visible = low.first;
  w.last_visible = high.last;
}

template <DType kType, int kDim>
__device__ inline void do_task(const AttentionParams& p, const Work& w) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const Rows rows = rows_of_warp(p, w, w.wide ? warp * kWarpRows : 0);
  unsigned q[kDim / 16][4];
  load_queries<kType, kDim>(p, w, rows.first, q);
  State<kDim> state;
  clear(state);
  Weights of_total;
  // One round for all spans of a wide tile, one for each span of a narrow one.
  const std::int32_t steps = w.wide ? w.task.num_spans * kSpanSteps : kPartSteps;
  std::int32_t low = w.task.first_span * kSpanSteps + (w.wide ? 0 : warp * kPartSteps);
  const std::int32_t rounds = w.wide ? 1 : w.task.num_spans;
  for (std::int32_t round = 0; round < rounds; ++round) {
    const std::int32_t first = w.first_visible / kStepKeys;
    const std::int32_t last_step_end = w.last_visible / kStepKeys + 1;
    const std::int32_t begin = low > first ? low : first;
    const std::int32_t end = low + steps < last_step_end ? low + steps : last_step_end;
    take_steps<kType, kDim>(p, w, rows, begin, end, q, state, of_total);
    if (!w.wide) add_parts(round == 0, state, of_total);
    low += kSpanSteps;
  }
  write_total<kDim>(p, w, of_total);
  if (w.task.first_partial >= 0) merge_if_last(p, w);
}

template <DType kType, int kDim>
__device__ inline void attend(const AttentionParams& p) {
  __shared__ std::int32_t taken;
  __shared__ Work current;
  auto* work = static_cast<AttentionWork*>(p.plan);
  const auto* tasks = reinterpret_cast<const AttentionTask*>(
      static_cast<const unsigned char*>(p.plan) + work->tasks_offset);
  const std::int32_t count = work->num_tasks * p.num_kv_heads;
  while (true) {
    __syncthreads();  // shared memory is free again, and all threads have read the task
    if (threadIdx.x == 0) {
      const std::int32_t unit = atomicAdd(&work->next, 1);
      taken = unit;
      if (unit < count) {
        set_work(p, tasks[unit / p.num_kv_heads], unit % p.num_kv_heads, current);
      }
    }
    __syncthreads();
    if (taken >= count) break;
    do_task<kType, kDim>(p, current);
  }
  // When the last block is done, all have taken their last task: reset the list.
  if (threadIdx.x == 0 &&
      atomicAdd(&work->blocks_done, 1) == static_cast<std::int32_t>(gridDim.x) - 1) {
    work->next = 0;
    work->blocks_done = 0;
  }
}

}  // namespace

// attention_launch.cpp assumes this many blocks per multiprocessor.
extern "C" __global__ void __launch_bounds__(kThreads, 3)
    sluice_attention_bf16_64(const __grid_constant__ AttentionParams p) {
  attend<DType::kBF16, 64>(p);
}
extern "C" __global__ void __launch_bounds__(kThreads, 2)
    sluice_attention_bf16_128(const __grid_constant__ AttentionParams p) {
  attend<DType::kBF16, 128>(p);
}
extern "C" __global__ void __launch_bounds__(kThreads, 1)
    sluice_attention_bf16_256(const __grid_constant__ AttentionParams p) {
  attend<DType::kBF16, 256>(p);
}
extern "C" __global__ void __launch_bounds__(kThreads, 3)
    sluice_attention_f16_64(const __grid_constant__ AttentionParams p) {
  attend<DType::kF16, 64>(p);
}
extern "C" __global__ void __launch_bounds__(kThreads, 2)
    sluice_attention_f16_128(const __grid_constant__ AttentionParams p) {
  attend<DType::kF16, 128>(p);
}
extern "C" __global__ void __launch_bounds__(kThreads, 1)
    sluice_attention_f16_256(const __grid_constant__ AttentionParams p) {
  attend<DType::kF16, 256>(p);
}

}  // namespace sluice::cuda
