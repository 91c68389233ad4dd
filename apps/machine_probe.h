// Loops that reach the peak rate of one unit of this machine's cores: reads of memory, FP32 fused
// multiply-adds, BF16 and INT8 dot products of AVX-512, INT8 dot products of AVX-VNNI, and the
// tiles of AMX. Threads: any; each call works on the calling thread alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sluice {

// Reads every cache line of [data, data + bytes), bytes a multiple of 256; returns a checksum.
std::uint64_t read_memory(const std::byte* data, std::size_t bytes);

enum class MathUnit : std::uint8_t {
  kFma,           // FP32 fused multiply-add, 512 bits wide where the CPU is, else 256
  kBf16Pairs,     // vdpbf16ps
  kInt8Quads,     // vpdpbusd, 512 bits wide
  kAvxInt8Quads,  // vpdpbusd of AVX-VNNI, 256 bits wide
  kAmxBf16,       // tdpbf16ps
  kAmxInt8,       // tdpbssd
};
inline constexpr std::array kMathUnits = {MathUnit::kFma,       MathUnit::kBf16Pairs,
                                          MathUnit::kInt8Quads, MathUnit::kAvxInt8Quads,
                                          MathUnit::kAmxBf16,   MathUnit::kAmxInt8};

// "fma", "avx512_bf16", "vnni", "avx_vnni", "amx_bf16", "amx_int8".
std::string_view math_unit_name(MathUnit unit);

// Whether the CPU has the unit and the system lets this process use it. The first call for a unit
// of AMX asks the system for the permission, which the process then keeps.
bool has_math_unit(MathUnit unit);

// Runs `rounds` rounds of independent operations of the unit, their operands in registers. Returns
// how many additions and multiplications these were. REQUIRES: has_math_unit(unit).
double run_math_unit(MathUnit unit, std::int64_t rounds);

}  // namespace sluice
