// Compiled with the flags of AVX-512 F, BW, DQ, VL and VNNI: see CMakeLists.txt. Only the products
// of integers differ from AVX-512, and they have its bits.
#include "device/cpu/kernels/bytes_avx512.h"
#include "device/cpu/kernels/codes_in_place.h"
#include "device/cpu/kernels/kernel_table.h"
#include "device/cpu/kernels/matmul_quads.h"
#include "device/cpu/kernels/quad_products.h"
#include "device/cpu/kernels/simd_avx512.h"

namespace sluice::kernels {
namespace {

struct Avx512Vnni : Avx512 {
  using Bytes = __m512i;
  static constexpr int kBytes = 64;
  static constexpr int kQuadsRows = kDotRows;
  static constexpr int kQuadsCols = kDotCols;
  SLUICE_INLINE static Bytes load_bytes(const std::int8_t* p) { return _mm512_loadu_si512(p); }
  SLUICE_INLINE static Bytes load_bytes(const std::int8_t* p, int n) {
    return _mm512_maskz_loadu_epi8((std::uint64_t{1} << n) - 1U, p);
  }
  SLUICE_INLINE static Bytes flip_signs(Bytes v) {
    return _mm512_xor_si512(v, _mm512_set1_epi8(static_cast<char>(0x80)));
  }
  SLUICE_INLINE static Sums add_quads(Bytes without_sign, Bytes with_sign, Sums sums) {
    return reinterpret_cast<Sums>(
        _mm512_dpbusd_epi32(reinterpret_cast<__m512i>(sums), without_sign, with_sign));
  }
};

struct BytesAvx512Vnni : BytesAvx512 {
  using Simd = Avx512Vnni;
  static constexpr bool kSigned = false;
  template <int bits, int quads, class X>
  SLUICE_INLINE static V multiply(const V* codes, const X& x, int first, V start) {
#pragma GCC unroll 8
    for (int q = 0; q < quads; ++q) {
      // Written out, because g++ 12 loads the number by an instruction of its own.
      asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(start) : "v"(codes[q]), "m"(x.quad(first + q)));
    }
    return start;
  }
};

// One or two rows of more than takes_columns() allows are faster by six columns at a time.
void matmul_codes(const MatmulPiece& p) {
  if (p.row_end - p.row_begin <= 2 || takes_columns(p)) return matmul_quads<Avx512Vnni>(p);
  if (CodesInPlace<DotI8Quads<Avx512Vnni>>::takes(p)) {
    return CodesInPlace<DotI8Quads<Avx512Vnni>>(p).run();
  }
  QuadProducts<DotI8Quads<Avx512Vnni>>(p).run();
}

}  // namespace

const KernelTable& avx512_vnni_kernels() {
  static const KernelTable kTable = [] {
    KernelTable table = avx512_kernels();
    table.matmul_i8_i8 = matmul_codes;
    table.code_pass = kCodePass;
    table.quantized_matmul = quantized_matmul<BytesAvx512Vnni>;
    return table;
  }();
  return kTable;
}

}  // namespace sluice::kernels
