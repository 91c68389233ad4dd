// The types of weights that matmul_quantized.h multiplies: how their codes and scales are read for
// a tile of columns, and how the products of a line are added to a sum. `B`: see bytes_avx512.h.
//
// A type has kLines lines in a group, whose scales read_group() reads; read_codes() reads the codes
// of kTogether lines, four along K in each lane. add() is one row of x: sum = fma(float(products of
// the line), scale of the weight * scale of x, sum), with products of the codes less their zero
// point. That is taken off by way of the sum of x's codes, in integers. Q4_K then adds minus its
// minimum times the scaled sum of x's codes, and a scale of 16 elements of Q6_K is part of the
// integers, which stay below 2^24. Included by kernels_*.cpp only; see simd_avx512.h.
#pragma once

#include "device/cpu/kernels/quantized_input.h"
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

// Shared by the types.
template <class B, DType dtype, int lines, int together>
struct QuantizedBlocks {
  using S = typename B::Simd;
  using F = typename S::F;
  using V = typename B::V;
  using Columns = ColumnsOfBytes<B::kCols>;
  using Constants = typename B::Constants;
  static constexpr DType kDType = dtype;
  static constexpr std::int64_t kBytes = block_of(dtype).bytes;
  static constexpr int kLines = lines;
  static constexpr int kTogether = together;
  using Numbers = std::int32_t[B::kCols];
  using Floats = float[B::kCols];

  SLUICE_INLINE static F add_products(V products, const Floats& scales, float x_scale, F sum) {
    return S::fma(B::to_float(products), S::mul(S::load(scales), S::set1(x_scale)), sum);
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

// Blocks of 32 elements that begin with their scale.
template <class B, DType dtype>
struct QuantizedScaled : QuantizedBlocks<B, dtype, 4, 1> {
  using Base = QuantizedBlocks<B, dtype, 4, 1>;
  using typename Base::Columns, typename Base::Constants, typename Base::V;
  struct Group {
    alignas(64) typename Base::Floats scales[4];
  };
  SLUICE_INLINE static void read_group(const Constants& constants, const Columns& w, Group& group) {
    V heads[4];
    B::template read_heads<Base::kBytes>(constants, w, heads);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) Base::S::store(group.scales[i], B::halves(heads[i]));
  }
};

template <class B>
struct QuantizedI4 : QuantizedScaled<B, DType::kI4> {
  using Base = QuantizedScaled<B, DType::kI4>;
  using typename Base::Columns, typename Base::F, typename Base::Group, typename Base::V;
  SLUICE_INLINE static void read_codes(const Columns& w, int line, V (&codes)[1][kLineQuads]) {
    V bytes[4];
    B::read_16(w.from(line * Base::kBytes), 2, bytes);
    Base::split(bytes, codes[0], codes[0] + 4);
  }
  template <class X>
  SLUICE_INLINE static F add(const Group& group, int line, const V (&codes)[kLineQuads], const X& x,
                             F sum) {
    const V offset = B::template left<3>(B::set1(x.minus_sum()));
    return Base::add_products(B::template multiply<4, 8>(codes, x, 0, offset), group.scales[line],
                              x.scale(), sum);
  }
};

template <class B>
struct QuantizedQ8 : QuantizedScaled<B, DType::kQ8_0> {
  using Base = QuantizedScaled<B, DType::kQ8_0>;
  using typename Base::Columns, typename Base::F, typename Base::Group, typename Base::V;
  SLUICE_INLINE static void read_codes(const Columns& w, int line, V (&codes)[1][kLineQuads]) {
    Base::template read_bytes<!B::kSigned>(w.from(line * Base::kBytes + 2), codes[0]);
  }
  template <class X>
  SLUICE_INLINE static F add(const Group& group, int line, const V (&codes)[kLineQuads], const X& x,
                             F sum) {
    const V offset = B::kSigned ? B::set1(0) : B::template left<7>(B::set1(x.minus_sum()));
    return Base::add_products(B::template multiply<8, 8>(codes, x, 0, offset), group.scales[line],
                              x.scale(), sum);
  }
};

template <class B>
struct QuantizedQ4K : QuantizedBlocks<B, DType::kQ4K, 8, 2> {
  using Base = QuantizedBlocks<B, DType::kQ4K, 8, 2>;
  using typename Base::Columns, typename Base::Constants, typename Base::F, typename Base::V;
  using S = typename Base::S;
  struct Group {
    alignas(64) typename Base::Floats scales[8];
    alignas(64) typename Base::Floats minima[8];  // times -1
  };
  // See BlocksOfQ4K::unpack. A factor times an integer of 6 bits is exact.
  SLUICE_INLINE static void read_group(const Constants& /*constants*/, const Columns& w,
                                       Group& group) {
    V heads[4];
    B::read_16(w, 0, heads);
    const F factor = B::halves(heads[0]);
    const F minimum = S::sub(S::zero(), B::halves(B::template right<16>(heads[0])));
    const V six = B::set1_byte(63);
    const V nibble = B::set1_byte(15);
    const V top = B::set1_byte(0x30);
    write(factor, heads[1] & six, group.scales);
    write(factor, (heads[3] & nibble) | (B::template right<2>(heads[1]) & top), group.scales + 4);
    write(minimum, heads[2] & six, group.minima);
    write(minimum,
          (B::template right<4>(heads[3]) & nibble) | (B::template right<2>(heads[2]) & top),
          group.minima + 4);
  }
  SLUICE_INLINE static void read_codes(const Columns& w, int line, V (&codes)[2][kLineQuads]) {
    const Columns from = w.from(16 * line);
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      V bytes[4];
      B::read_16(from, 16 + 16 * i, bytes);
      Base::split(bytes, codes[0] + 4 * i, codes[1] + 4 * i);
    }
  }
  template <class X>
  SLUICE_INLINE static F add(const Group& group, int line, const V (&codes)[kLineQuads], const X& x,
                             F sum) {
    sum = Base::add_products(B::template multiply<4, 8>(codes, x, 0, B::set1(0)),
                             group.scales[line], x.scale(), sum);
    return S::fma(S::load(group.minima[line]), S::set1(x.scaled_sum()), sum);
  }

 private:
  // Four integers of each column.
  SLUICE_INLINE static void write(F factor, V bytes, typename Base::Floats* to) {
    const V low = B::set1(255);
    S::store(to[0], S::mul(factor, B::to_float(bytes & low)));
    S::store(to[1], S::mul(factor, B::to_float(B::template right<8>(bytes) & low)));
    S::store(to[2], S::mul(factor, B::to_float(B::template right<16>(bytes) & low)));
    S::store(to[3], S::mul(factor, B::to_float(B::template right<24>(bytes))));
  }
};

template <class B>
struct QuantizedQ6K : QuantizedBlocks<B, DType::kQ6K, 8, 4> {
  using Base = QuantizedBlocks<B, DType::kQ6K, 8, 4>;
  using typename Base::Columns, typename Base::Constants, typename Base::F, typename Base::V;
  using S = typename Base::S;
  struct Group {
    alignas(64) typename Base::Floats runs[16];  // scales of 16 elements
    alignas(64) typename Base::Floats factor;
  };
  SLUICE_INLINE static void read_group(const Constants& /*constants*/, const Columns& w,
                                       Group& group) {
    V bytes[4];
    B::read_16(w, 192, bytes);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      S::store(group.runs[4 * i], byte<24>(bytes[i]));
      S::store(group.runs[4 * i + 1], byte<16>(bytes[i]));
      S::store(group.runs[4 * i + 2], byte<8>(bytes[i]));
      S::store(group.runs[4 * i + 3], byte<0>(bytes[i]));
    }
    B::read_16(w, 194, bytes);
    S::store(group.factor, B::halves(B::template right<16>(bytes[3])));
  }
  // 32 bytes of high bits serve four lines, two bits each.
  SLUICE_INLINE static void read_codes(const Columns& w, int line, V (&codes)[4][kLineQuads]) {
    const Columns low = w.from(16 * line);
    const Columns high = w.from(128 + 8 * line);
    const V top = B::set1_byte(0x30);
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      V bits[4];
      V bytes[4];
      B::read_16(high, 16 * i, bits);
      B::read_16(low, 16 * i, bytes);
      Base::split(bytes, codes[0] + 4 * i, codes[2] + 4 * i);
      B::read_16(low, 32 + 16 * i, bytes);
      Base::split(bytes, codes[1] + 4 * i, codes[3] + 4 * i);
#pragma GCC unroll 4
      for (int q = 0; q < 4; ++q) {
        codes[0][4 * i + q] = codes[0][4 * i + q] | (B::template left<4>(bits[q]) & top);
        codes[1][4 * i + q] = codes[1][4 * i + q] | (B::template left<2>(bits[q]) & top);
        codes[2][4 * i + q] = codes[2][4 * i + q] | (bits[q] & top);
        codes[3][4 * i + q] = codes[3][4 * i + q] | (B::template right<2>(bits[q]) & top);
      }
    }
  }
  template <class X>
  SLUICE_INLINE static F add(const Group& group, int line, const V (&codes)[kLineQuads], const X& x,
                             F sum) {
    const V first = B::template multiply<6, 4>(codes, x, 0, B::set1(x.first_offset()));
    const V second = B::template multiply<6, 4>(codes + 4, x, 4, B::set1(x.second_offset()));
    const F products = S::fma(B::to_float(second), S::load(group.runs[2 * line + 1]),
                              S::mul(B::to_float(first), S::load(group.runs[2 * line])));
    return S::fma(products, S::mul(S::load(group.factor), S::set1(x.scale())), sum);
  }

 private:
  // A byte with a sign, `bits` bits from the top.
  template <int bits>
  SLUICE_INLINE static F byte(V bytes) {
    return B::to_float(B::template right_signed<24>(B::template left<bits>(bytes)));
  }
};

// Groups with a zero point.
template <class B, DType dtype, int together>
struct QuantizedShifted : QuantizedBlocks<B, dtype, 4, together> {
  using Base = QuantizedBlocks<B, dtype, 4, together>;
  using typename Base::Columns, typename Base::Constants, typename Base::F, typename Base::V;

 protected:
  template <int bits, class X>
  SLUICE_INLINE static F add_shifted(const typename Base::Floats& scales,
                                     const typename Base::Numbers& zeros,
                                     const V (&codes)[kLineQuads], const X& x, F sum) {
    const V offset = B::times(B::load(zeros), x.minus_sum());
    return Base::add_products(B::template multiply<bits, 8>(codes, x, 0, offset), scales, x.scale(),
                              sum);
  }
};

template <class B>
struct QuantizedU4G32 : QuantizedShifted<B, DType::kU4G32, 1> {
  using Base = QuantizedShifted<B, DType::kU4G32, 1>;
  using typename Base::Columns, typename Base::Constants, typename Base::F, typename Base::V;
  struct Group {
    alignas(64) typename Base::Floats scales[4];
    alignas(64) typename Base::Numbers zeros[4];
  };
  SLUICE_INLINE static void read_group(const Constants& constants, const Columns& w, Group& group) {
    V heads[4];
    B::template read_heads<Base::kBytes>(constants, w, heads);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      Base::S::store(group.scales[i], B::halves(heads[i]));
      B::store(group.zeros[i], B::template right<16>(heads[i]) & B::set1(255));
    }
  }
  SLUICE_INLINE static void read_codes(const Columns& w, int line, V (&codes)[1][kLineQuads]) {
    V bytes[4];
    B::read_16(w.from(line * Base::kBytes), 3, bytes);
    Base::split(bytes, codes[0], codes[0] + 4);
  }
  template <class X>
  SLUICE_INLINE static F add(const Group& group, int line, const V (&codes)[kLineQuads], const X& x,
                             F sum) {
    return Base::template add_shifted<4>(group.scales[line], group.zeros[line], codes, x, sum);
  }
};

// Groups of 128 have one scale and one zero point.
template <class B>
struct QuantizedU4G128 : QuantizedShifted<B, DType::kU4G128, 4> {
  using Base = QuantizedShifted<B, DType::kU4G128, 4>;
  using typename Base::Columns, typename Base::Constants, typename Base::F, typename Base::V;
  struct Group {
    alignas(64) typename Base::Floats scales;
    alignas(64) typename Base::Numbers zeros;
  };
  SLUICE_INLINE static void read_group(const Constants& /*constants*/, const Columns& w,
                                       Group& group) {
    V heads[4];
    B::read_16(w, 0, heads);
    Base::S::store(group.scales, B::as_floats(heads[0]));
    B::store(group.zeros, heads[1] & B::set1(255));
  }
  // Words of four codes, one of each line.
  SLUICE_INLINE static void read_codes(const Columns& w, int /*line*/, V (&codes)[4][kLineQuads]) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      V bytes[4];
      B::template read_16<true>(w, 5 + 16 * i, bytes);
      const V nibble = B::set1_byte(15);
#pragma GCC unroll 2
      for (int q = 0; q < 2; ++q) {
        codes[0][2 * i + q] = bytes[q] & nibble;
        codes[1][2 * i + q] = B::template right<4>(bytes[q]) & nibble;
        codes[2][2 * i + q] = bytes[2 + q] & nibble;
        codes[3][2 * i + q] = B::template right<4>(bytes[2 + q]) & nibble;
      }
    }
  }
  template <class X>
  SLUICE_INLINE static F add(const Group& group, int /*line*/, const V (&codes)[kLineQuads],
                             const X& x, F sum) {
    return Base::template add_shifted<4>(group.scales, group.zeros, codes, x, sum);
  }
};

template <class B>
struct QuantizedU8G128 : QuantizedShifted<B, DType::kU8G128, 1> {
  using Base = QuantizedShifted<B, DType::kU8G128, 1>;
  using typename Base::Columns, typename Base::Constants, typename Base::F, typename Base::V;
  struct Group {
    alignas(64) typename Base::Floats scales;
    alignas(64) typename Base::Numbers zeros;  // less 128 where codes have a sign
  };
  SLUICE_INLINE static void read_group(const Constants& /*constants*/, const Columns& w,
                                       Group& group) {
    V heads[4];
    B::read_16(w, 0, heads);
    Base::S::store(group.scales, B::as_floats(heads[0]));
    const V zeros = heads[1] & B::set1(255);
    // In 16 bits: see times().
    B::store(group.zeros, B::kSigned ? B::subtract(zeros, B::set1(128)) & B::set1(0xFFFF) : zeros);
  }
  SLUICE_INLINE static void read_codes(const Columns& w, int line, V (&codes)[1][kLineQuads]) {
    Base::template read_bytes<B::kSigned>(w.from(5 + 32 * line), codes[0]);
  }
  template <class X>
  SLUICE_INLINE static F add(const Group& group, int /*line*/, const V (&codes)[kLineQuads],
                             const X& x, F sum) {
    return Base::template add_shifted<8>(group.scales, group.zeros, codes, x, sum);
  }
};

}  // namespace sluice::kernels
