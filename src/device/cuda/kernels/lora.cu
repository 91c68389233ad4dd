// LoRA of a step's segments (LoraBatch). Each segment has a row of blocks of threads, which reads
// the segment's adapter once. Rows beyond the real number of segments end at once.
//
// sluice_lora_shrink: 16-bit x and A of one type, in rows at multiples of 16 bytes, on tensor
// cores. A block computes 16 ranks of one module from one part of K, for all tokens of its segment.
// As in matmul_stream.cu, the weights are the left operand and go from global memory to registers.
// A warp loads its share of the part, every eighth slab of 32, at once, and keeps it for all
// tokens, 8 at a time. Then the warps' sums are added, warp 0 first. sluice_lora_shrink_plain: any
// other x and A, one warp per dot product. sluice_lora_expand: no tensor cores. At the usual ranks,
// memory traffic of `out` dominates, and tensor cores would round h. A thread computes two columns
// of 16 tokens at a time, and applies DoRA's gains as it writes them.
//
// K and the rank alone fix all orders, so a row's bits do not depend on other rows.
#include "device/cuda/kernels/lora_tiles.h"
#include "device/cuda/kernels/matmul_parts.cuh"
#include "device/cuda/kernels/tensor_core.cuh"

namespace sluice::cuda {
namespace {

constexpr int kThreads = kLoraShrinkBlock;
constexpr int kWarps = kThreads / kWarp;
constexpr int kRanks = kLoraRanks;                                                  // of a block
constexpr int kDepth = 32;                                                          // of a slab
constexpr int kSlabs = static_cast<int>(LoraHidden::kPartDepth) / kDepth / kWarps;  // of a warp
constexpr int kPad = 4;  // floats between rows of sums: lanes write to different banks
constexpr int kMostTokens = LoraSegment::kMaxTokens;

// The segment of block (x, y); it has no tokens beyond the real number of segments.
__device__ LoraSegment segment_of_block(const LoraTable& table, const LoraBatch& batch,
                                        const LoraHidden& h) {
  if (static_cast<std::int32_t>(blockIdx.y) >= rows_in_use(batch.num_segments)) return {};
  const LoraSegment segment = batch.segments[blockIdx.y];
  if (segment.count < 1 || segment.count > kMostTokens || segment.first < 0 ||
      segment.first + segment.count > h.capacity || segment.slot < 0 ||
      segment.slot >= table.num_slots) {
    __trap();
  }
  return segment;
}

__device__ LoraEntry entry_of(const LoraTable& table, std::int32_t slot, std::int32_t module) {
  const LoraEntry entry = table.entries[slot * table.stride + module];
  if (entry.rank < 0 || entry.rank > table.max_rank) __trap();
  if (entry.a % LoraEntry::kAlignment != 0 || entry.b % LoraEntry::kAlignment != 0) __trap();
  if (entry.gain % LoraEntry::kAlignment != 0) __trap();
  return entry;
}

__device__ const char* weights_at(const LoraTable& table, std::int64_t offset) {
  return static_cast<const char*>(table.base) + offset;
}

__device__ std::int32_t token_at(const LoraBatch& batch, std::int32_t i, std::int64_t rows) {
  const std::int32_t token = batch.tokens[i];
  if (token < 0 || token >= rows) __trap();
  return token;
}

__device__ float* hidden_row(const LoraHidden& h, const LoraTable& table, std::int32_t part,
                             std::int32_t i, std::int32_t module) {
  const std::int64_t row = static_cast<std::int64_t>(part) * h.capacity + i;
  return h.data + (row * table.num_modules + module) * table.max_rank;
}

// The work of a block of a shrinking kernel: ranks [rank, last_rank) of an entry.
struct ShrinkTile {
  LoraSegment segment;  // without tokens there is nothing to do
  std::int32_t module;
  std::int32_t part;
  std::int32_t rank;
  std::int32_t last_rank;
  std::int64_t depth;  // of K, in this part
  const char* a;       // row `rank`, at the part's start
};

__device__ ShrinkTile shrink_tile(const LoraShrinkParams& p) {
  ShrinkTile tile = {};
  const LoraSegment segment = segment_of_block(p.table, p.batch, p.h);
  if (segment.count == 0) return tile;
  const std::int32_t tiles = (p.table.max_rank + kRanks - 1) / kRanks;
  const std::int32_t index = static_cast<std::int32_t>(blockIdx.x);
  tile.rank = index % tiles * kRanks;
  tile.module = index / tiles % p.table.num_modules;
  tile.part = index / tiles / p.table.num_modules;
  const LoraEntry entry = entry_of(p.table, segment.slot, tile.module);
  if (tile.rank >= entry.rank) return tile;
  tile.segment = segment;
  tile.last_rank = entry.rank < tile.rank + kRanks ? entry.rank : tile.rank + kRanks;
  const std::int64_t begin = tile.part * LoraHidden::kPartDepth;
  const std::int64_t left = p.x.dims[1] - begin;
  tile.depth = left < LoraHidden::kPartDepth ? left : LoraHidden::kPartDepth;
  tile.a = weights_at(p.table, entry.a) +
           (tile.rank * p.x.dims[1] + begin) * (p.table.dtype == DType::kF32 ? 4 : 2);
  return tile;
}

// Loads 16 bytes at a lane's place in slab `slab`; zeros beyond the part's end.
__device__ void load_slab(unsigned (&to)[4], const std::uint16_t* from, int slab,
                          std::int64_t depth, bool present) {
  const int k = slab * kDepth + static_cast<int>(threadIdx.x) % 4 * 8;
  if (present && k < depth) {
    load_once(to, from + k);
  } else {
    to[0] = to[1] = to[2] = to[3] = 0;
  }
}

// `partial`: sums[warp][token][rank], kRanks + kPad floats a token.
template <DType kType>
__device__ void shrink(const LoraShrinkParams& p, const ShrinkTile& tile, float* partial) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  unsigned a[kSlabs][2][4];  // ranks lane / 4 and lane / 4 + 8
#pragma unroll
  for (int s = 0; s < kSlabs; ++s) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int rank = lane / 4 + half * 8;
      const bool present = tile.rank + rank < tile.last_rank;
      const auto* row = reinterpret_cast<const std::uint16_t*>(tile.a) + rank * p.x.dims[1];
      load_slab(a[s][half], row, s * kWarps + warp, tile.depth, present);
    }
  }
  for (int first = 0; first < tile.segment.count; first += 8) {
    const int i = first + lane / 4;
    const bool present = i < tile.segment.count;
    const std::int32_t token = present ? token_at(p.batch, tile.segment.first + i, p.x.dims[0]) : 0;
    const std::uint16_t* x = row_of_halves(p.x, token) + tile.part * LoraHidden::kPartDepth;
    unsigned t[kSlabs][4];
#pragma unroll
    for (int s = 0; s < kSlabs; ++s) load_slab(t[s], x, s * kWarps + warp, tile.depth, present);
    float sums[4] = {};
#pragma unroll
    for (int s = 0; s < kSlabs; ++s) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const unsigned left[4] = {a[s][0][2 * half], a[s][1][2 * half], a[s][0][2 * half + 1],
                                  a[s][1][2 * half + 1]};
        multiply_add<kType>(sums, left, t[s][2 * half], t[s][2 * half + 1]);
      }
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int row = warp * kMostTokens + first + lane % 4 * 2 + e % 2;
      partial[row * (kRanks + kPad) + lane / 4 + e / 2 * 8] = sums[e];
    }
  }
  __syncthreads();
  for (int e = static_cast<int>(threadIdx.x); e < kRanks * tile.segment.count; e += kThreads) {
    const int i = e / kRanks;
    const int rank = e % kRanks;
    if (tile.rank + rank >= tile.last_rank) continue;
    float sum = 0.0F;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) sum += partial[(w * kMostTokens + i) * (kRanks + kPad) + rank];
    hidden_row(p.h, p.table, tile.part, tile.segment.first + i, tile.module)[tile.rank + rank] =
        sum;
  }
}

// Columns `column` and, where `both`, column + 1 of a row of B.
struct TwoColumns {
  float first;
  float second;
};
__device__ TwoColumns load_columns(const void* row, DType dtype, std::int64_t index, bool both,
                                   bool packed) {
  if (packed) {
    const unsigned pair =
        *reinterpret_cast<const unsigned*>(static_cast<const std::uint16_t*>(row) + index);
    if (dtype == DType::kBF16)
      return {__uint_as_float(pair << 16), __uint_as_float(pair & ~0xFFFFU)};
    return {f16_to_f32(static_cast<std::uint16_t>(pair)),
            f16_to_f32(static_cast<std::uint16_t>(pair >> 16))};
  }
  return {load_element(row, dtype, index), both ? load_element(row, dtype, index + 1) : 0.0F};
}

// An entry's gains and shifts of `column` and, where `both`, column + 1.
struct ColumnGains {
  bool present = false;
  TwoColumns gain = {1.0F, 1.0F};
  TwoColumns shift = {0.0F, 0.0F};
};
__device__ ColumnGains gains_of(const LoraTable& table, const LoraEntry& entry, std::int64_t width,
                                std::int64_t column, bool both) {
  ColumnGains gains;
  if (entry.gain == LoraEntry::kNoGain || column >= width) return gains;
  const char* at = weights_at(table, entry.gain);
  gains.present = true;
  gains.gain = load_columns(at, DType::kF32, column, both, false);
  gains.shift = load_columns(at, DType::kF32, width + column, both, false);
  return gains;
}

constexpr int kTokens = 16;                 // whose sums a thread holds
constexpr int kHiddenStride = kTokens + 4;  // floats
constexpr int kRanksAhead = 8;              // rows of B loaded ahead

// Gathers h of tokens [first, first + kTokens) of the segment, one row per rank, with parts added
// in order. Fills with zeros beyond the last token, and beyond the last rank up to a multiple of
// kRanksAhead.
__device__ void gather_hidden(const LoraExpandParams& p, const LoraSegment& segment,
                              std::int32_t first, std::int32_t module, std::int32_t rank,
                              float (*h)[kHiddenStride]) {
  const int ranks = (rank + kRanksAhead - 1) / kRanksAhead * kRanksAhead;
  for (int e = static_cast<int>(threadIdx.x); e < ranks * kTokens; e += kLoraExpandBlock) {
    const int r = e % ranks;
    const int i = first + e / ranks;
    float sum = 0.0F;
    if (r < rank && i < segment.count) {
      for (std::int32_t part = 0; part < p.h.parts; ++part) {
        sum += hidden_row(p.h, p.table, part, segment.first + i, module)[r];
      }
    }
    h[r][e / ranks] = sum;
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads, 2)
    sluice_lora_shrink(const LoraShrinkParams p) {
  __shared__ float partial[kWarps * kMostTokens * (kRanks + kPad)];
  const ShrinkTile tile = shrink_tile(p);
  if (tile.segment.count == 0) return;
  if (p.x.dtype == DType::kBF16) {
    shrink<DType::kBF16>(p, tile, partial);
  } else {
    shrink<DType::kF16>(p, tile, partial);
  }
}

extern "C" __global__ void __launch_bounds__(kThreads)
    sluice_lora_shrink_plain(const LoraShrinkParams p) {
  const ShrinkTile tile = shrink_tile(p);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int ranks = tile.last_rank - tile.rank;
  const std::int64_t x_column = tile.part * LoraHidden::kPartDepth;
  for (int e = warp; e < ranks * tile.segment.count; e += kWarps) {
    const std::int32_t i = tile.segment.first + e / ranks;
    const std::int32_t token = token_at(p.batch, i, p.x.dims[0]);
    float sum = 0.0F;
    for (std::int64_t k = lane; k < tile.depth; k += kWarp) {
      sum = fmaf(load_element(p.x, token, x_column + k),
                 load_element(tile.a, p.table.dtype, e % ranks * p.x.dims[1] + k), sum);
    }
    sum = warp_sum(sum);
    if (lane == 0) {
      hidden_row(p.h, p.table, tile.part, i, tile.module)[tile.rank + e % ranks] = sum;
    }
  }
}

extern "C" __global__ void __launch_bounds__(kLoraExpandBlock)
    sluice_lora_expand(const LoraExpandParams p) {
  __shared__ float h[LoraTable::kMaxRank][kHiddenStride];
  const LoraSegment segment = segment_of_block(p.table, p.batch, p.h);
  if (segment.count == 0) return;
  std::int64_t tile = blockIdx.x;
  std::int64_t out_column = 0;
  std::int32_t module = 0;
  for (; module < p.table.num_modules; ++module) {
    const std::int64_t tiles = (p.widths[module] + kLoraColumns - 1) / kLoraColumns;
    if (tile < tiles) break;
    tile -= tiles;
    out_column += p.widths[module];
  }
  if (module == p.table.num_modules) return;
  const LoraEntry entry = entry_of(p.table, segment.slot, module);
  if (entry.rank == 0) return;
  const std::int64_t width = p.widths[module];
  const std::int64_t column = tile * kLoraColumns + 2 * static_cast<std::int64_t>(threadIdx.x);
  const bool first_column = column < width;
  const bool both = column + 1 < width;
  const bool packed = both && width % 2 == 0 && p.table.dtype != DType::kF32;
  const char* b = weights_at(p.table, entry.b);
  const ColumnGains gains = gains_of(p.table, entry, width, column, both);
  for (std::int32_t first = 0; first < segment.count; first += kTokens) {
    gather_hidden(p, segment, first, module, entry.rank, h);
    __syncthreads();
    const std::int32_t tokens = segment.count - first < kTokens ? segment.count - first : kTokens;
    float sums[kTokens][2] = {};
    for (std::int32_t rank = 0; first_column && rank < entry.rank; rank += kRanksAhead) {
      TwoColumns rows[kRanksAhead];
#pragma unroll
      for (int r = 0; r < kRanksAhead; ++r) {
        const bool present = rank + r < entry.rank;
        rows[r] = present
                      ? load_columns(b, p.table.dtype, (rank + r) * width + column, both, packed)
                      : TwoColumns{0.0F, 0.0F};
      }
#pragma unroll
      for (int r = 0; r < kRanksAhead; ++r) {
#pragma unroll
        for (int i = 0; i < kTokens; ++i) {
          // Four tokens at a time, because a decode has few.
          if (i / 4 * 4 >= tokens) continue;
          sums[i][0] = fmaf(h[rank + r][i], rows[r].first, sums[i][0]);
          sums[i][1] = fmaf(h[rank + r][i], rows[r].second, sums[i][1]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      if (!first_column || i >= tokens) continue;
      const std::int32_t token = token_at(p.batch, segment.first + first + i, p.out.dims[0]);
      float* to = static_cast<float*>(p.out.data) + token * p.out.strides[0] + out_column + column;
      float low = fmaf(entry.scale, sums[i][0], to[0]);
      float high = both ? fmaf(entry.scale, sums[i][1], to[1]) : 0.0F;
      if (gains.present) {
        low = fmaf(gains.gain.first, low, gains.shift.first);
        high = fmaf(gains.gain.second, high, gains.shift.second);
      }
      if (both && reinterpret_cast<std::uintptr_t>(to) % sizeof(TwoFloats) == 0) {
        *reinterpret_cast<TwoFloats*>(to) = {low, high};
      } else {
        to[0] = low;
        if (both) to[1] = high;
      }
    }
    __syncthreads();  // all threads have read h
  }
}

}  // namespace sluice::cuda
