// Compiled with the flags of AVX2, FMA, F16C and AVX-VNNI: see CMakeLists.txt. Only the products of
// integers differ from AVX2, and they have its bits.
#include "device/cpu/kernels/bytes_avx2.h"
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

struct BytesAvx2Vnni : BytesAvx2 {
  using Simd = Avx2Vnni;
  static constexpr int kRows = 8;
  static constexpr bool kSigned = false;
  template <int bits, int quads, class X>
  SLUICE_INLINE static V multiply(const V* codes, const X& x, int first, V start) {
    // A single sum would wait for its last product.
    V other = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int q = 0; q < quads; q += 2) {
      start = _mm256_dpbusd_avx_epi32(start, codes[q], set1(x.quad(first + q)));
      other = _mm256_dpbusd_avx_epi32(other, codes[q + 1], set1(x.quad(first + q + 1)));
    }
    return _mm256_add_epi32(start, other);
  }
};

}  // namespace

const KernelTable& avx2_vnni_kernels() {
  static const KernelTable kTable = [] {
    KernelTable table = avx2_kernels();
    table.matmul_i8_i8 = matmul_quads<Avx2Vnni>;
    table.quantized_matmul = quantized_matmul<BytesAvx2Vnni>;
    table.pack_lines = pack_lines<Avx2Vnni, BytesAvx2Vnni::kRows>;
    table.line_tile_rows = BytesAvx2Vnni::kRows;
    return table;
  }();
  return kTable;
}

}  // namespace sluice::kernels
