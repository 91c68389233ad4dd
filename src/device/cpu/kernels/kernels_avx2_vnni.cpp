// Compiled with the flags of AVX2, FMA, F16C and AVX-VNNI: see CMakeLists.txt. Only the products of
// INT8 and INT4 differ from AVX2, and they have its bits.
#include "device/cpu/kernels/int4_avx2.h"
#include "device/cpu/kernels/kernel_table.h"
#include "device/cpu/kernels/matmul_quads.h"
#include "device/cpu/kernels/simd_avx2.h"

namespace sluice::kernels {
namespace {

struct Avx2Vnni : Avx2 {
  using Bytes = __m256i;
  static constexpr int kBytes = 32;
  static constexpr int kQuadsRows = kDotRows;
  static constexpr int kQuadsCols = kDotCols;
  SLUICE_INLINE static Bytes load_bytes(const std::int8_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  SLUICE_INLINE static Bytes load_bytes(const std::int8_t* p, int n) {
    alignas(32) std::int8_t copy[kBytes] = {};
    __builtin_memcpy(copy, p, static_cast<std::size_t>(n));
    return load_bytes(copy);
  }
  SLUICE_INLINE static Bytes flip_signs(Bytes v) {
    return _mm256_xor_si256(v, _mm256_set1_epi8(static_cast<char>(0x80)));
  }
  SLUICE_INLINE static Sums add_quads(Bytes without_sign, Bytes with_sign, Sums sums) {
    return reinterpret_cast<Sums>(
        _mm256_dpbusd_avx_epi32(reinterpret_cast<__m256i>(sums), without_sign, with_sign));
  }
};

// Four products of INT4 and INT8 a lane.
struct Int4Avx2Vnni : Int4Avx2 {
  using Simd = Avx2Vnni;
  static constexpr int kRows = 8;
  SLUICE_INLINE static __m256 multiply(const Codes (&codes)[kInt4Quads], const std::int32_t* x,
                                       std::int64_t width, std::int32_t start) {
    // A single sum would wait for its last product.
    __m256i sums = _mm256_set1_epi32(start);
    __m256i other = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int q = 0; q < kInt4Quads; q += 2) {
      sums = _mm256_dpbusd_avx_epi32(sums, codes[q], _mm256_set1_epi32(x[q * width]));
      other = _mm256_dpbusd_avx_epi32(other, codes[q + 1], _mm256_set1_epi32(x[(q + 1) * width]));
    }
    sums = _mm256_add_epi32(sums, other);
    return _mm256_cvtepi32_ps(sums);
  }
};

}  // namespace

const KernelTable& avx2_vnni_kernels() {
  static const KernelTable kTable = [] {
    KernelTable table = avx2_kernels();
    table.matmul_i8_i8 = matmul_quads<Avx2Vnni>;
    table.matmul_int4 = matmul_int4<Int4Avx2Vnni>;
    return table;
  }();
  return kTable;
}

}  // namespace sluice::kernels
