// How the fast matmul kernels cut their work: for the kernels and for the host that launches them.
#pragma once

namespace sluice::cuda {

inline constexpr int kMatmulBlock = 256;  // threads

// kernels/matmul_stream.cu: all rows by so many columns a block.
struct StreamShape {
  int tokens;
  int columns;
};
inline constexpr StreamShape kStream8 = {8, 16};
inline constexpr StreamShape kStream16 = {16, 32};

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
