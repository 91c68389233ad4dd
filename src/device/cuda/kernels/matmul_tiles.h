// How the fast matmul kernels cut their work: for the kernels and for the host that launches them.
#pragma once

namespace sluice::cuda {

inline constexpr int kMatmulBlock = 256;  // threads

// "Columns" are rows of weights: of out as many, or half as many where gate and up make one column.

// kernels/matmul_stream.cu: all rows by so many columns a block, whose weights are asked for some
// slabs of kDepth along K ahead, by each of its warps.
struct StreamShape {
  static constexpr int kDepth = 32;
  static constexpr int kWarps = kMatmulBlock / 32;

  int tokens;
  int columns;
  int slabs_ahead;
  constexpr int bytes_ahead() const { return kWarps * slabs_ahead * columns * kDepth * 2; }
};
inline constexpr StreamShape kStream8 = {8, 16, 4};
inline constexpr StreamShape kStream16 = {16, 32, 2};
// More blocks, each of which reads all tokens: for weights of few rows.
inline constexpr StreamShape kStream16Narrow = {16, 16, 4};

// kernels/matmul_tile.cu: tokens by columns a block, with a pipeline of stages in shared memory.
struct TileShape {
  static constexpr int kDepth = 64;  // elements of 2 bytes along K, a stage

  int tokens;
  int columns;
  int stages;
  constexpr int stage_bytes() const { return (tokens + columns) * kDepth * 2; }
  constexpr int shared_bytes() const { return stages * stage_bytes(); }
};
// 96 KiB each: two blocks on a multiprocessor of capability 9.0.
inline constexpr TileShape kTile64 = {64, 64, 6};
inline constexpr TileShape kTile128 = {128, 128, 3};

}  // namespace sluice::cuda
