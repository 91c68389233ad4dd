// The split of a row over a block in the norm kernels, shared by the kernels and the host code that
// launches them.
#pragma once

namespace sluice::cuda {

inline constexpr int kNormElements = 4;      // neighbours of a thread: 16 bytes of floats
inline constexpr int kMaxNormThreads = 512;  // of a block
inline constexpr int kMaxNormRounds = 4;     // held in registers: rows of up to 8192 elements

}  // namespace sluice::cuda
