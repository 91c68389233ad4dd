#include "apps/machine_probe.h"

#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "base/check.h"
#include "device/cpu/cpu_isa.h"

#pragma GCC diagnostic ignored "-Wuninitialized"  // in g++ 12's own AVX-512 header
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

namespace sluice {
namespace {

__attribute__((target("avx2"))) std::uint64_t read_avx2(const std::byte* data, std::size_t bytes) {
  __m256i sums[8] = {};
  for (std::size_t at = 0; at + 256 <= bytes; at += 256) {
#pragma GCC unroll 8
    for (std::size_t i = 0; i < 8; ++i) {
      const auto* p = reinterpret_cast<const __m256i*>(data + at + i * 32);
      sums[i] = _mm256_xor_si256(sums[i], _mm256_loadu_si256(p));
    }
  }
  for (int i = 1; i < 8; ++i) sums[0] = _mm256_xor_si256(sums[0], sums[i]);
  return static_cast<std::uint64_t>(_mm256_extract_epi64(sums[0], 0));
}

// The compiler must take the sums for different and their values for used. They are in memory here,
// because a function for any CPU has no wide registers.
template <class Vector>
void hide(Vector& value) {
  asm volatile("" : "+m"(value));
}

// Accumulators, enough to hide the latency of one operation behind the others.
constexpr int kSums512 = 24;
constexpr int kSums256 = 12;

__attribute__((target("avx2,fma"))) void multiply_fma256(std::int64_t rounds) {
  __m256 sums[kSums256] = {};
  const __m256 x = _mm256_set1_ps(1.0F);
  for (__m256& sum : sums) hide(sum);
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (__m256& sum : sums) sum = _mm256_fmadd_ps(x, x, sum);
  }
  for (__m256& sum : sums) hide(sum);
}

__attribute__((target("avx512f"))) void multiply_fma512(std::int64_t rounds) {
  __m512 sums[kSums512] = {};
  const __m512 x = _mm512_set1_ps(1.0F);
  for (__m512& sum : sums) hide(sum);
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 24
    for (__m512& sum : sums) sum = _mm512_fmadd_ps(x, x, sum);
  }
  for (__m512& sum : sums) hide(sum);
}

__attribute__((target("avx512f,avx512bf16"))) void multiply_bf16_pairs(std::int64_t rounds) {
  __m512 sums[kSums512] = {};
  const auto x = reinterpret_cast<__m512bh>(_mm512_set1_epi32(0x3F803F80));
  for (__m512& sum : sums) hide(sum);
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 24
    for (__m512& sum : sums) sum = _mm512_dpbf16_ps(sum, x, x);
  }
  for (__m512& sum : sums) hide(sum);
}

__attribute__((target("avx512f,avx512vnni"))) void multiply_int8_quads(std::int64_t rounds) {
  // With __m512i, g++ 12 copies each sum, and where the unit is fast the copies take half of the
  // time.
  __v16si sums[kSums512] = {};
  const __m512i x = _mm512_set1_epi32(0x01010101);
  for (__v16si& sum : sums) hide(sum);
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 24
    for (__v16si& sum : sums) {
      sum = reinterpret_cast<__v16si>(_mm512_dpbusd_epi32(reinterpret_cast<__m512i>(sum), x, x));
    }
  }
  for (__v16si& sum : sums) hide(sum);
}

__attribute__((target("avx2,avxvnni"))) void multiply_avx_int8_quads(std::int64_t rounds) {
  __v8si sums[kSums256] = {};
  const __m256i x = _mm256_set1_epi32(0x01010101);
  for (__v8si& sum : sums) hide(sum);
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (__v8si& sum : sums) {
      sum = reinterpret_cast<__v8si>(_mm256_dpbusd_avx_epi32(reinterpret_cast<__m256i>(sum), x, x));
    }
  }
  for (__v8si& sum : sums) hide(sum);
}

struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// Tiles 0 to 3 are sums, tiles 4 to 7 operands: the shape that matrix products have, two by two.
#define SLUICE_MULTIPLY_TILES(PRODUCT)                                           \
  const TileConfig config;                                                       \
  /* g++ 12 takes only 8 bytes of the operand for read, and drops the stores. */ \
  asm volatile("" : : "r"(&config) : "memory");                                  \
  _tile_loadconfig(&config);                                                     \
  _tile_zero(0);                                                                 \
  _tile_zero(1);                                                                 \
  _tile_zero(2);                                                                 \
  _tile_zero(3);                                                                 \
  _tile_zero(4);                                                                 \
  _tile_zero(5);                                                                 \
  _tile_zero(6);                                                                 \
  _tile_zero(7);                                                                 \
  for (std::int64_t round = 0; round < rounds; ++round) {                        \
    PRODUCT(0, 4, 6);                                                            \
    PRODUCT(1, 4, 7);                                                            \
    PRODUCT(2, 5, 6);                                                            \
    PRODUCT(3, 5, 7);                                                            \
  }                                                                              \
  _tile_release()

__attribute__((target("amx-tile,amx-bf16"))) void multiply_bf16_tiles(std::int64_t rounds) {
  SLUICE_MULTIPLY_TILES(_tile_dpbf16ps);
}

__attribute__((target("amx-tile,amx-int8"))) void multiply_int8_tiles(std::int64_t rounds) {
  SLUICE_MULTIPLY_TILES(_tile_dpbssd);
}
#undef SLUICE_MULTIPLY_TILES

// Operations in one round of each unit: sums, lanes, and a multiplication and an addition in each.
constexpr double kTileProducts = 4.0 * 16 * 16;

// Bits of CPUID leaf 7, subleaf 0, register EDX.
constexpr unsigned kCpuidAmxBf16 = 1U << 22;
constexpr unsigned kCpuidAmxTile = 1U << 24;
constexpr unsigned kCpuidAmxInt8 = 1U << 25;

bool has_amx(unsigned kind) {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  if ((d & kCpuidAmxTile) == 0 || (d & kind) == 0) return false;
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM of asm/prctl.h
  constexpr long kTileData = 18;
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

std::uint64_t read_memory(const std::byte* data, std::size_t bytes) {
  return read_avx2(data, bytes);
}

std::string_view math_unit_name(MathUnit unit) {
  switch (unit) {
    case MathUnit::kFma: return "fma";
    case MathUnit::kBf16Pairs: return "avx512_bf16";
    case MathUnit::kInt8Quads: return "vnni";
    case MathUnit::kAvxInt8Quads: return "avx_vnni";
    case MathUnit::kAmxBf16: return "amx_bf16";
    case MathUnit::kAmxInt8: return "amx_int8";
  }
  return "";
}

bool has_math_unit(MathUnit unit) {
  switch (unit) {
    case MathUnit::kFma: return __builtin_cpu_supports("fma") != 0;
    case MathUnit::kBf16Pairs: return __builtin_cpu_supports("avx512bf16") != 0;
    case MathUnit::kInt8Quads: return __builtin_cpu_supports("avx512vnni") != 0;
    case MathUnit::kAvxInt8Quads:
      return std::ranges::count(available_cpu_isas(), CpuIsa::kAvx2Vnni) > 0;
    case MathUnit::kAmxBf16: return has_amx(kCpuidAmxBf16);
    case MathUnit::kAmxInt8: return has_amx(kCpuidAmxInt8);
  }
  return false;
}

double run_math_unit(MathUnit unit, std::int64_t rounds) {
  const auto times = 2.0 * static_cast<double>(rounds);
  switch (unit) {
    case MathUnit::kFma:
      if (__builtin_cpu_supports("avx512f") == 0) {
        multiply_fma256(rounds);
        return times * kSums256 * 8;
      }
      multiply_fma512(rounds);
      return times * kSums512 * 16;
    case MathUnit::kBf16Pairs: multiply_bf16_pairs(rounds); return times * kSums512 * 32;
    case MathUnit::kInt8Quads: multiply_int8_quads(rounds); return times * kSums512 * 64;
    case MathUnit::kAvxInt8Quads: multiply_avx_int8_quads(rounds); return times * kSums256 * 32;
    case MathUnit::kAmxBf16: multiply_bf16_tiles(rounds); return times * kTileProducts * 32;
    case MathUnit::kAmxInt8: multiply_int8_tiles(rounds); return times * kTileProducts * 64;
  }
  CHECK(!"a unit that the list lacks");
  return 0;
}

}  // namespace sluice
