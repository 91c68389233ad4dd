// Compiled with the flags of AVX-512 F, BW, DQ, VL and VNNI: see CMakeLists.txt. Only the products
// of INT8 and INT4 differ from AVX-512, and they have its bits.
#include "device/cpu/kernels/int4_avx512.h"
#include "device/cpu/kernels/kernel_table.h"
#include "device/cpu/kernels/matmul.h"
#include "device/cpu/kernels/prefetch.h"
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

// Four products of INT4 and INT8 a lane.
struct Int4Avx512Vnni : Int4Avx512 {
  SLUICE_INLINE static __m512 multiply(const Codes (&codes)[kInt4Quads], const std::int32_t* x,
                                       std::int64_t width, std::int32_t start) {
    __m512i sums = _mm512_set1_epi32(start);
#pragma GCC unroll 8
    for (int q = 0; q < kInt4Quads; ++q) {
      sums = _mm512_dpbusd_epi32(sums, codes[q], _mm512_set1_epi32(x[q * width]));
    }
    return _mm512_cvtepi32_ps(sums);
  }
};

// The most rows of x that take one column of the weight after the other, and their elements: they
// stay in the first-level cache, and memory is slower than their products.
constexpr std::int64_t kColumnRows = 4;
constexpr std::int64_t kColumnElements = 32 << 10;

// All rows of a piece, `rows` of them, by its columns in the order in which they lie in memory: a
// core reads one run of lines faster than several side by side (matmul_few.h).
template <int rows>
void multiply_columns(const MatmulPiece& p) {
  using P = DotI8Quads;
  using Tile = DotTile<P, rows, 1>;
  constexpr std::int64_t kLead = kFewLead * P::kStep;
  // A single sum would wait for its last product.
  constexpr int kSums = rows == 1 ? 2 : 1;
  const P::X* x[rows];
  for (int r = 0; r < rows; ++r) {
    x[r] = static_cast<const P::X*>(p.x) + (p.row_begin + r) * p.x_stride;
  }
  const auto* const weight = static_cast<const P::W*>(p.weight);
  const P::W* const weight_end = weight + (p.col_end - 1) * p.weight_stride + p.depth;
  for (std::int64_t col = p.col_begin; col < p.col_end; ++col) {
    const P::W* const w[1] = {weight + col * p.weight_stride};
    P::Sum sums[kSums][rows][1] = {};
    std::int64_t k = 0;
    const auto step = [&](P::Sum(&to)[rows][1]) {
      if (weight_end - w[0] > k + kLead) {
        prefetch_near(w[0] + k + kLead);
      }
      Tile::phases(x, w, k, to);
      k += P::kStep;
    };
    while (k + kSums * P::kStep <= p.depth) {
#pragma GCC unroll 2
      for (int s = 0; s < kSums; ++s) step(sums[s]);
    }
    if (k + P::kStep <= p.depth) step(sums[0]);
    if (k < p.depth) Tile::phases(x, w, k, sums[0], static_cast<int>(p.depth - k));
    for (int s = 1; s < kSums; ++s) sums[0][0][0] += sums[s][0][0];
    Tile::store(sums[0], p, p.row_begin, col);
  }
}

void matmul_quads(const MatmulPiece& p) {
  const std::int64_t rows = p.row_end - p.row_begin;
  if (rows > kColumnRows || rows * p.depth > kColumnElements) return matmul<DotI8Quads>(p);
  switch (rows) {
    case 1: multiply_columns<1>(p); break;
    case 2: multiply_columns<2>(p); break;
    case 3: multiply_columns<3>(p); break;
    default: multiply_columns<4>(p); break;
  }
  if (p.bias != nullptr) add_bias<Avx512>(p);
}

}  // namespace

const KernelTable& avx512_vnni_kernels() {
  static const KernelTable kTable = [] {
    KernelTable table = avx512_kernels();
    table.matmul_i8_i8 = matmul_quads;
    table.matmul_int4 = matmul_int4<Int4Avx512Vnni>;
    return table;
  }();
  return kTable;
}

}  // namespace sluice::kernels
