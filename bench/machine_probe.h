// The peak rates of this machine, which kernels are compared with: read bandwidth of memory, and
// products of BF16 pairs.
// Threads: any; each call works on the calling thread alone.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::bench {

// Reads every cache line of [data, data + bytes), bytes a multiple of 256; returns a checksum.
std::uint64_t read_memory(const std::byte* data, std::size_t bytes);

// Whether the machine has AVX-512-BF16; the peak functions need it.
bool has_bf16_products();
// `rounds` times 24 independent products of 512-bit registers; returns something of the result.
float multiply_bf16_pairs(std::int64_t rounds);
// Floating-point operations in one round.
inline constexpr double kBf16FlopsPerRound = 24.0 * 32 * 2;

}  // namespace sluice::bench
