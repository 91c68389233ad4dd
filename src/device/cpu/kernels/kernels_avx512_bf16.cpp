// Compiled with the flags of AVX-512 F, BW, DQ, VL and BF16: see CMakeLists.txt. Only the product
// of BF16 with BF16 differs from AVX-512.
#include "device/cpu/kernels/kernel_table.h"
#include "device/cpu/kernels/matmul.h"
#include "device/cpu/kernels/simd_avx512.h"

namespace sluice::kernels {
namespace {

// Pairs of BF16 products, added in F32 by the hardware; denormals count as zero.
struct DotBf16Pairs {
  static constexpr bool kScaled = false;
  using Simd = Avx512;
  using X = std::uint16_t;
  using W = std::uint16_t;
  using Vector = __m512i;
  static constexpr int kStep = 32;
  static constexpr int kPhases = 1;
  static constexpr int kRows = Avx512::kDotRows;
  static constexpr int kCols = Avx512::kDotCols;
  template <int>
  SLUICE_INLINE static Vector load_x(const X* p) {
    return Avx512::load_pairs(p);
  }
  template <int>
  SLUICE_INLINE static Vector load_w(const W* p) {
    return Avx512::load_pairs(p);
  }
  template <int>
  SLUICE_INLINE static Vector load_x(const X* p, int n) {
    return Avx512::load_pairs(p, n);
  }
  template <int>
  SLUICE_INLINE static Vector load_w(const W* p, int n) {
    return Avx512::load_pairs(p, n);
  }
  SLUICE_INLINE static __m512 multiply_add(Vector x, Vector w, __m512 sum) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(w));
  }
};

}  // namespace

const KernelTable& avx512_bf16_kernels() {
  static const KernelTable kTable = [] {
    KernelTable table = avx512_kernels();
    table.matmul_bf16_bf16 = matmul<DotBf16Pairs>;
    return table;
  }();
  return kTable;
}

}  // namespace sluice::kernels
