// The split of LoRA into blocks of threads, shared by the kernels and the host code that launches
// them. Values: constants.
#pragma once

namespace sluice::cuda {

inline constexpr int kLoraShrinkBlock = 256;  // threads
inline constexpr int kLoraRanks = 16;         // of a block, of one module and one part of K
inline constexpr int kLoraExpandBlock = 128;
inline constexpr int kLoraColumns = 2 * kLoraExpandBlock;  // of a block, of one module

}  // namespace sluice::cuda
