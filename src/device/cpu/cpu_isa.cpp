#include "device/cpu/cpu_isa.h"

namespace sluice {

std::string_view cpu_isa_name(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kReference: return "reference";
    case CpuIsa::kAvx2: return "avx2";
    case CpuIsa::kAvx512: return "avx512";
    case CpuIsa::kAvx512Bf16: return "avx512_bf16";
  }
  return "?";
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
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl")) {
    return isas;
  }
  isas.push_back(CpuIsa::kAvx512);
  if (__builtin_cpu_supports("avx512bf16")) isas.push_back(CpuIsa::kAvx512Bf16);
  return isas;
}

}  // namespace sluice
