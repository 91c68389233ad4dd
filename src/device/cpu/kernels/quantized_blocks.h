// Shared by the types of weights that matmul_quantized.h multiplies: where a tile of columns lies,
// and how products of codes become sums. Included by quantized_*.h only; see quantized_weights.h.
#pragma once

#include <bit>
#include <cstdint>

#include "device/cpu/kernels/quantized_input.h"
#include "device/cpu/kernels/widen_blocks.h"
#include "tensor/dtype.h"

namespace sluice::kernels {

// Columns that are `stride` bytes apart, as addresses that instructions can compute from few
// registers.
template <int columns>
class ColumnsOfBytes {
 public:
  static constexpr int kQuarters = columns / 4;
  SLUICE_INLINE ColumnsOfBytes(const std::uint8_t* first, std::int64_t stride)
      : stride_(stride), triple_(3 * stride) {
#pragma GCC unroll 4
    for (int i = 0; i < kQuarters; ++i) quarters_[i] = first + 4 * i * stride;
  }
  // Column c, from the byte `offset` on.
  SLUICE_INLINE const std::uint8_t* at(int c, std::int64_t offset) const {
    const std::uint8_t* const quarter = quarters_[c / 4] + offset;
    switch (c % 4) {
      case 0: return quarter;
      case 1: return quarter + stride_;
      case 2: return quarter + 2 * stride_;
      default: return quarter + triple_;
    }
  }
  SLUICE_INLINE void step(std::int64_t bytes) {
#pragma GCC unroll 4
    for (int i = 0; i < kQuarters; ++i) quarters_[i] += bytes;
  }
  SLUICE_INLINE ColumnsOfBytes from(std::int64_t bytes) const {
    ColumnsOfBytes later = *this;
    later.step(bytes);
    return later;
  }

 private:
  const std::uint8_t* quarters_[kQuarters];
  std::int64_t stride_;
  std::int64_t triple_;
};

// Shared by the types. Codes have `code_bits` bits and a `zero_point`, a power of two or none. A
// line has one or two `runs` of elements whose products are added up alone.
template <class B, DType dtype, int lines, int together, int code_bits, int zero_point = 0,
          int runs = 1>
struct QuantizedBlocks {
  using Bytes = B;
  using S = typename B::Simd;
  using F = typename S::F;
  using V = typename B::V;
  using Columns = ColumnsOfBytes<B::kCols>;
  using Constants = typename B::Constants;
  static constexpr DType kDType = dtype;
  static constexpr std::int64_t kBytes = block_of(dtype).bytes;
  static constexpr int kLines = lines;
  static constexpr int kTogether = together;
  static constexpr int kBits = code_bits;
  static constexpr int kRuns = runs;
  // Whether codes less their zero points are bytes with a sign.
  static constexpr bool kZerosFit = true;
  using Numbers = std::int32_t[B::kCols];
  using Floats = float[B::kCols];

  // Products of codes of a run are too large by this, times -1.
  template <class Group, class X>
  SLUICE_INLINE static V offset(const Group& /*group*/, int /*line*/, int run, const X& x) {
    constexpr int kLog = std::bit_width(static_cast<unsigned>(zero_point)) - 1;
    if constexpr (zero_point == 0) {
      return B::set1(0);
    } else if constexpr (runs == 1) {
      return B::template left<kLog>(B::set1(x.minus_sum()));
    } else {
      // These are for codes less 32.
      const V offset = B::set1(run == 0 ? x.first_offset() : x.second_offset());
      if constexpr (zero_point == 32) return offset;
      return B::template right_signed<5 - kLog>(offset);
    }
  }
  // The zero points of a line, for its bytes.
  template <class Group>
  SLUICE_INLINE static V zeros(const Group& /*group*/, int /*line*/) {
    return B::set1_byte(zero_point);
  }

  SLUICE_INLINE static F add_products(F products, const Floats& scales, float x_scale, F sum) {
    return S::fma(products, S::mul(S::load(scales), S::set1(x_scale)), sum);
  }
  template <class X>
  SLUICE_INLINE static F add_minimum(const Floats& minus_minima, const X& x, F sum) {
    return S::fma(S::load(minus_minima), S::set1(x.scaled_sum()), sum);
  }
  // Numbers below 256, in each byte of their lanes.
  SLUICE_INLINE static V in_all_bytes(V numbers) {
    const V two = numbers | B::template left<8>(numbers);
    return two | B::template left<16>(two);
  }
  // 16 bytes of nibbles: the low halves, then the high ones.
  SLUICE_INLINE static void split(const V (&bytes)[4], V* low, V* high) {
    const V nibble = B::set1_byte(15);
#pragma GCC unroll 4
    for (int q = 0; q < 4; ++q) {
      low[q] = bytes[q] & nibble;
      high[q] = B::template right<4>(bytes[q]) & nibble;
    }
  }
  // The low two bits of bytes, of which each holds those of four lines; `line`: of the four.
  template <int line>
  SLUICE_INLINE static V two_bits(V bytes) {
    return B::template right<2 * line>(bytes) & B::set1_byte(3);
  }
  // Four bytes of each column, less `zero`, as numbers.
  template <int zero = 0>
  SLUICE_INLINE static void store_bytes(V bytes, Floats* to) {
    store_bytes<zero>(bytes, to, [](F numbers) { return numbers; });
  }
  // The same, changed by `map`.
  template <int zero = 0, class Map>
  SLUICE_INLINE static void store_bytes(V bytes, Floats* to, const Map& map) {
    const V low = B::set1(255);
    const V four[] = {bytes & low, B::template right<8>(bytes) & low,
                      B::template right<16>(bytes) & low, B::template right<24>(bytes)};
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      S::store(to[i], map(B::to_float(zero == 0 ? four[i] : B::subtract(four[i], B::set1(zero)))));
    }
  }
  // 32 bytes whose bits belong to different lines.
  SLUICE_INLINE static void read_bits(const Columns& w, V (&bits)[kLineQuads]) {
    read_bytes<false>(w, bits);
  }
  // 16 bytes of nibbles that name values of IQ4_NL; as bytes with a sign.
  SLUICE_INLINE static void read_names(const Columns& w, V (&codes)[kLineQuads]) {
    V bytes[4];
    B::read_16(w, 0, bytes);
    split(bytes, codes, codes + 4);
    const __m128i values = iq4_values<!B::kSigned>();
#pragma GCC unroll 8
    for (int q = 0; q < kLineQuads; ++q) codes[q] = B::look_up(values, codes[q]);
  }
  // Products of two runs of 16 elements, which have scales in integers.
  SLUICE_INLINE static F add_runs(const Floats* scales, const F (&products)[2],
                                  const Floats& factor, float x_scale, F sum) {
    const F scaled =
        S::fma(products[1], S::load(scales[1]), S::mul(products[0], S::load(scales[0])));
    return S::fma(scaled, S::mul(S::load(factor), S::set1(x_scale)), sum);
  }
  // 32 bytes; `flipped`: with 128 added.
  template <bool flipped>
  SLUICE_INLINE static void read_bytes(const Columns& w, V (&codes)[kLineQuads]) {
    const V top = B::set1_byte(128);
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      V bytes[4];
      B::read_16(w, 16 * i, bytes);
#pragma GCC unroll 4
      for (int q = 0; q < 4; ++q) codes[4 * i + q] = flipped ? bytes[q] ^ top : bytes[q];
    }
  }
};

}  // namespace sluice::kernels
