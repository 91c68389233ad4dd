#include "device/cpu/cpu_isa.h"

#include <array>
#include <string>

namespace sluice {
namespace {

constexpr std::array kAll = {CpuIsa::kReference, CpuIsa::kAvx2, CpuIsa::kAvx512,
                             CpuIsa::kAvx512Bf16};

}  // namespace

std::string_view cpu_isa_name(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kReference: return "reference";
    case CpuIsa::kAvx2: return "avx2";
    case CpuIsa::kAvx512: return "avx512";
    case CpuIsa::kAvx512Bf16: return "avx512_bf16";
  }
  return "?";
}

Result<CpuIsa> parse_cpu_isa(std::string_view name) {
  for (const CpuIsa isa : kAll) {
    if (cpu_isa_name(isa) == name) return isa;
  }
  return invalid_argument("unknown instruction set '" + std::string(name) +
                          "': known are reference, avx2, avx512, avx512_bf16");
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
  if (__builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni")) {
    isas.push_back(CpuIsa::kAvx512Bf16);
  }
  return isas;
}

}  // namespace sluice
