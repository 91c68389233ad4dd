// The split of the fast matmul kernels' work, shared by the kernels and the host code that launches
// them.
#pragma once

namespace sluice::cuda {

inline constexpr int kMatmulBlock = 256;  // threads

// "Columns" are rows of weights: as many columns of out, or half as many where gate and up make
// one.

// kernels/matmul_stream.cuh: a block computes all rows by `columns` columns. Each warp loads
// weights `slabs_ahead` slabs along K ahead.
struct StreamShape {
  static constexpr int kSlabBytes = 64;  // of a row of weights
  static constexpr int kWarps = kMatmulBlock / 32;

  int tokens;
  int columns;
  int slabs_ahead;
  bool fp8 = false;  // the weights
  constexpr int bytes_ahead() const { return kWarps * slabs_ahead * columns * kSlabBytes; }
};
inline constexpr StreamShape kStream8 = {8, 16, 4};
inline constexpr StreamShape kStream16 = {16, 32, 2};
// For weights with few rows: uses more blocks, each of which reads all tokens.
inline constexpr StreamShape kStream16Narrow = {16, 16, 4};
// A slab of codes needs twice as many elements of tokens, so fewer slabs fit into registers.
inline constexpr StreamShape kFp8Stream8 = {8, 16, 3, true};
inline constexpr StreamShape kFp8Stream16 = {16, 32, 1, true};
inline constexpr StreamShape kFp8Stream16Narrow = {16, 16, 2, true};

// kernels/matmul_tile.cuh: tokens by columns per block, with a pipeline of stages in shared memory.
struct TileShape {
  static constexpr int kDepth = 64;       // elements of 2 bytes along K, a stage
  static constexpr int kTokenWarps = 2;   // the block's 8 warps, over tokens...
  static constexpr int kColumnWarps = 4;  // ... and over columns

  int tokens;
  int columns;
  int stages;
  bool fp8 = false;  // the weights
  // Tokens have 2 bytes per element, weights 2, or 1 byte per code.
  constexpr int stage_bytes() const { return (tokens * 2 + columns * (fp8 ? 1 : 2)) * kDepth; }
  // Two tiles of widened codes follow the stages.
  constexpr int widened_bytes() const { return fp8 ? 2 * columns * kDepth * 2 : 0; }
  constexpr int shared_bytes() const { return stages * stage_bytes() + widened_bytes(); }
  // Tokens that are computed or skipped together.
  constexpr int tokens_of_warp() const { return tokens / kTokenWarps; }
};
// At most 96 KiB each: two blocks on a multiprocessor of capability 9.0.
inline constexpr TileShape kTile64 = {64, 64, 6};
inline constexpr TileShape kTile128 = {128, 128, 3};
// FP8 needs two sets of sums (one for the current block of scales, one for the total), so a tile
// has half the columns.
inline constexpr TileShape kFp8Tile64 = {64, 64, 6, true};
inline constexpr TileShape kFp8Tile128 = {128, 64, 4, true};

}  // namespace sluice::cuda
