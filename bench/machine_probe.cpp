#include "bench/machine_probe.h"

#include <immintrin.h>

#pragma GCC diagnostic ignored "-Wuninitialized"  // in g++ 12's own AVX-512 header
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

namespace sluice::bench {
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

__attribute__((target("avx512f,avx512bf16"))) float multiply_avx512(std::int64_t rounds) {
  __m512 sums[24] = {};
  __m512i x = _mm512_set1_epi32(0x3F803F80);
  // Opaque, or the compiler would see that all sums are the same.
  for (__m512& sum : sums) asm volatile("" : "+v"(sum));
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 24
    for (int i = 0; i < 24; ++i) {
      sums[i] =
          _mm512_dpbf16_ps(sums[i], reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(x));
    }
  }
  for (int i = 1; i < 24; ++i) sums[0] = _mm512_add_ps(sums[0], sums[i]);
  return _mm512_cvtss_f32(sums[0]);
}

}  // namespace

std::uint64_t read_memory(const std::byte* data, std::size_t bytes) {
  return read_avx2(data, bytes);
}

bool has_bf16_products() { return __builtin_cpu_supports("avx512bf16") != 0; }

float multiply_bf16_pairs(std::int64_t rounds) { return multiply_avx512(rounds); }

}  // namespace sluice::bench
