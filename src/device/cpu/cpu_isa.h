// The instruction sets that kernels of the CPU device are built for.
// Values: plain; any thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice {

enum class CpuIsa : std::uint8_t {
  kReference,      // the slow, obvious loops; any x86-64
  kAvx2,           // AVX2, FMA, F16C
  kAvx2Vnni,       // and AVX-VNNI, without AVX-512
  kAvx512,         // AVX-512 F, BW, DQ, VL
  kAvx512Vnni,     // and AVX-512 VNNI
  kAvx512Bf16,     // and AVX-512 BF16 and VBMI
  kAvx512Bf16Fma,  // the same, but products of BF16 run in F32
  kAmx,            // and AMX for BF16 and INT8
};

// "reference", "avx2", "avx2_vnni", "avx512", "avx512_vnni", "avx512_bf16", "avx512_bf16_fma",
// "amx": as on command lines and in test names.
std::string_view cpu_isa_name(CpuIsa isa);
Result<CpuIsa> parse_cpu_isa(std::string_view name);

// Those this machine (CPU and operating system) can run, slowest first; never empty. kAvx512Bf16
// stands before kAvx512Bf16Fma on CPUs whose instruction for pairs of BF16 is slower than FMA in
// F32.
std::vector<CpuIsa> available_cpu_isas();

// For tests: this process emulates tile registers (tests/support/tiles). From now on
// available_cpu_isas() names kAmx where nothing else of it is missing: after kReference, because it
// is about as slow. Before other threads.
void count_amx_as_emulated();

}  // namespace sluice
