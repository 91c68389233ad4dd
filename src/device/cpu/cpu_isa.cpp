#include "device/cpu/cpu_isa.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <string>

namespace sluice {
namespace {

constexpr std::array kAll = {CpuIsa::kReference,     CpuIsa::kAvx2,       CpuIsa::kAvx2Vnni,
                             CpuIsa::kAvx512,        CpuIsa::kAvx512Vnni, CpuIsa::kAvx512Bf16,
                             CpuIsa::kAvx512Bf16Fma, CpuIsa::kAmx};

// Whether vdpbf16ps does more products in a cycle than FMA in F32 does. Measured by `sluice
// doctor`: twice as many on AMD's Zen 4 and 5, half as many on Intel's Sapphire and Emerald Rapids.
bool has_fast_bf16_pairs() { return !__builtin_cpu_is("intel"); }

// Whether the CPU has vpdpbusd in the encoding of AVX. Compilers do not all know its name at run
// time.
bool has_avx_vnni() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0 || eax < 1) return false;
  constexpr unsigned kBit = 1U << 4;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & kBit) != 0;
}

// Whether the CPU has AMX for BF16 and INT8. The system saves tile registers only for processes
// that ask for it; the answer holds for all threads.
bool may_use_amx() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  constexpr unsigned kBits = 1U << 22 | 1U << 24 | 1U << 25;  // BF16, tiles, INT8
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0 || (edx & kBits) != kBits) return false;
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

bool emulates_amx = false;

}  // namespace

std::string_view cpu_isa_name(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kReference: return "reference";
    case CpuIsa::kAvx2: return "avx2";
    case CpuIsa::kAvx2Vnni: return "avx2_vnni";
    case CpuIsa::kAvx512: return "avx512";
    case CpuIsa::kAvx512Vnni: return "avx512_vnni";
    case CpuIsa::kAvx512Bf16: return "avx512_bf16";
    case CpuIsa::kAvx512Bf16Fma: return "avx512_bf16_fma";
    case CpuIsa::kAmx: return "amx";
  }
  return "?";
}

Result<CpuIsa> parse_cpu_isa(std::string_view name) {
  for (const CpuIsa isa : kAll) {
    if (cpu_isa_name(isa) == name) return isa;
  }
  return invalid_argument("unknown instruction set '" + std::string(name) +
                          "': known are reference, avx2, avx2_vnni, avx512, avx512_vnni, "
                          "avx512_bf16, avx512_bf16_fma, amx");
}

std::vector<CpuIsa> available_cpu_isas() {
  // The compiler's run-time checks look at the CPU and at what the operating system saves.
  __builtin_cpu_init();
  std::vector<CpuIsa> isas = {CpuIsa::kReference};
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !__builtin_cpu_supports("f16c")) {
    return isas;
  }
  isas.push_back(CpuIsa::kAvx2);
  if (has_avx_vnni()) isas.push_back(CpuIsa::kAvx2Vnni);
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl")) {
    return isas;
  }
  isas.push_back(CpuIsa::kAvx512);
  if (!__builtin_cpu_supports("avx512vnni")) return isas;
  isas.push_back(CpuIsa::kAvx512Vnni);
  if (!__builtin_cpu_supports("avx512bf16") || !__builtin_cpu_supports("avx512vbmi")) return isas;
  const bool pairs = has_fast_bf16_pairs();
  isas.push_back(pairs ? CpuIsa::kAvx512Bf16Fma : CpuIsa::kAvx512Bf16);
  isas.push_back(pairs ? CpuIsa::kAvx512Bf16 : CpuIsa::kAvx512Bf16Fma);
  if (may_use_amx()) {
    isas.push_back(CpuIsa::kAmx);
  } else if (emulates_amx) {
    isas.insert(isas.begin() + 1, CpuIsa::kAmx);
  }
  return isas;
}

void count_amx_as_emulated() { emulates_amx = true; }

}  // namespace sluice
