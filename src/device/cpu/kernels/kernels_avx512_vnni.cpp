// Compiled with the flags of AVX-512 F, BW, DQ, VL and VNNI: see CMakeLists.txt. Only the products
// of INT8 differ from AVX-512, and they have its bits.
#include "device/cpu/kernels/kernel_table.h"
#include "device/cpu/kernels/matmul.h"
#include "device/cpu/kernels/simd_avx512.h"

namespace sluice::kernels {
namespace {

// Four products of INT8 a lane. The instruction takes one factor without a sign, so 128 is added to
// the codes of the weight and taken off their sum.
struct DotI8Quads {
  static constexpr bool kScaled = false;
  using Simd = Avx512;
  using Sum = Avx512::Sums;
  using X = std::int8_t;
  using W = std::int8_t;
  using Vector = __m512i;
  static constexpr int kOffset = 128;
  static constexpr int kStep = 64;
  static constexpr int kPhases = 1;
  static constexpr int kRows = Avx512::kDotRows;
  static constexpr int kCols = Avx512::kDotCols;
  SLUICE_INLINE static Vector with_offset(__m512i codes) {
    return _mm512_xor_si512(codes, _mm512_set1_epi8(static_cast<char>(0x80)));
  }
  template <int>
  SLUICE_INLINE static Vector load_x(const X* p) {
    return _mm512_loadu_si512(p);
  }
  template <int>
  SLUICE_INLINE static Vector load_w(const W* p) {
    return with_offset(_mm512_loadu_si512(p));
  }
  template <int>
  SLUICE_INLINE static Vector load_x(const X* p, int) {
    return _mm512_loadu_si512(p);
  }
  template <int>
  SLUICE_INLINE static Vector load_w(const W* p, int n) {
    return with_offset(_mm512_maskz_loadu_epi8((std::uint64_t{1} << n) - 1U, p));
  }
  SLUICE_INLINE static Sum multiply_add(Vector x, Vector w, Sum sum) {
    return reinterpret_cast<Sum>(_mm512_dpbusd_epi32(reinterpret_cast<__m512i>(sum), w, x));
  }
};

}  // namespace

const KernelTable& avx512_vnni_kernels() {
  static const KernelTable kTable = [] {
    KernelTable table = avx512_kernels();
    table.matmul_i8_i8 = matmul<DotI8Quads>;
    return table;
  }();
  return kTable;
}

}  // namespace sluice::kernels
