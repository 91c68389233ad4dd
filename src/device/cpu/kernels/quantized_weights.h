// The types of weights that matmul_quantized.h multiplies: how their codes and scales are read for
// a tile of columns, and how the products of a line are added to a sum. `B`: see bytes_avx512.h.
//
// A type has kLines lines in a group, whose scales read_group() reads; read_codes() reads the codes
// of kTogether lines, four along K in each lane. add() is one row of x: sum = fma(float(products of
// the line), scale of the weight * scale of x, sum), with products of the codes less their zero
// point. That is taken off by way of the sum of x's codes, in integers. Types with a minimum then
// add minus that times the scaled sum of x's codes. A scale of 16 elements of Q2_K, Q3_K and Q6_K
// is part of the integers, which stay below 2^24. Included by kernels_*.cpp only; see
// simd_avx512.h.
#pragma once

#include <utility>

#include "device/cpu/kernels/quantized_blocks.h"
#include "device/cpu/kernels/quantized_k_weights.h"

namespace sluice::kernels {

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
  SLUICE_INLINE static void read_codes(const Group& /*group*/, const Columns& w, int line,
                                       V (&codes)[1][kLineQuads]) {
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

// Q4_1, Q5_0 and Q5_1: a minimum or a zero point, and a fifth bit.
template <class B, DType dtype>
struct QuantizedLegacy : QuantizedBlocks<B, dtype, 4, 1> {
  using Base = QuantizedBlocks<B, dtype, 4, 1>;
  using typename Base::Columns, typename Base::Constants, typename Base::F, typename Base::V;
  static constexpr bool kFifth = dtype != DType::kQ4_1;
  static constexpr std::int64_t kFifthAt = has_minimum(dtype) ? 4 : 2;
  struct Group {
    alignas(64) typename Base::Floats scales[4];
    alignas(64) typename Base::Floats minima[4];  // times -1
    alignas(64) typename Base::Numbers fifth[4];
  };
  SLUICE_INLINE static void read_group(const Constants& constants, const Columns& w, Group& group) {
    V heads[4];
    B::template read_heads<Base::kBytes>(constants, w, heads);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      Base::S::store(group.scales[i], B::halves(heads[i]));
      if (has_minimum(dtype)) {
        Base::S::store(group.minima[i], B::halves(B::template right<16>(heads[i])));
      }
    }
    if constexpr (kFifth) {
      B::template read_heads<Base::kBytes, kFifthAt>(constants, w, heads);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) B::store(group.fifth[i], heads[i]);
    }
  }
  SLUICE_INLINE static void read_codes(const Group& group, const Columns& w, int line,
                                       V (&codes)[1][kLineQuads]) {
    V bytes[4];
    B::read_16(w.from(line * Base::kBytes), Base::kBytes - 16, bytes);
    Base::split(bytes, codes[0], codes[0] + 4);
    if constexpr (kFifth) {
      const V bits = B::load(group.fifth[line]);
      [&]<int... quad>(std::integer_sequence<int, quad...>) {
        ((codes[0][quad] = B::template with_fifth<quad>(codes[0][quad], bits)), ...);
      }(std::make_integer_sequence<int, kLineQuads>());
    }
  }
  template <class X>
  SLUICE_INLINE static F add(const Group& group, int line, const V (&codes)[kLineQuads], const X& x,
                             F sum) {
    const V offset = has_minimum(dtype) ? B::set1(0) : B::template left<4>(B::set1(x.minus_sum()));
    sum = Base::add_products(B::template multiply<kFifth ? 5 : 4, 8>(codes, x, 0, offset),
                             group.scales[line], x.scale(), sum);
    return has_minimum(dtype) ? Base::add_minimum(group.minima[line], x, sum) : sum;
  }
};

// Blocks of 32 bytes with a sign.
template <class B, DType dtype>
struct QuantizedBytes : QuantizedScaled<B, dtype> {
  using Base = QuantizedScaled<B, dtype>;
  using typename Base::F, typename Base::Group, typename Base::V;
  template <class X>
  SLUICE_INLINE static F add(const Group& group, int line, const V (&codes)[kLineQuads], const X& x,
                             F sum) {
    return Base::add_products(Base::multiply_bytes(codes, x), group.scales[line], x.scale(), sum);
  }
};

template <class B>
struct QuantizedQ8 : QuantizedBytes<B, DType::kQ8_0> {
  using Base = QuantizedBytes<B, DType::kQ8_0>;
  using typename Base::Columns, typename Base::Group, typename Base::V;
  SLUICE_INLINE static void read_codes(const Group& /*group*/, const Columns& w, int line,
                                       V (&codes)[1][kLineQuads]) {
    Base::template read_bytes<!B::kSigned>(w.from(line * Base::kBytes + 2), codes[0]);
  }
};

template <class B>
struct QuantizedIq4Nl : QuantizedBytes<B, DType::kIq4Nl> {
  using Base = QuantizedBytes<B, DType::kIq4Nl>;
  using typename Base::Columns, typename Base::Group, typename Base::V;
  SLUICE_INLINE static void read_codes(const Group& /*group*/, const Columns& w, int line,
                                       V (&codes)[1][kLineQuads]) {
    Base::read_names(w.from(line * Base::kBytes + 2), codes[0]);
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
  SLUICE_INLINE static void read_codes(const Group& /*group*/, const Columns& w, int line,
                                       V (&codes)[1][kLineQuads]) {
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
  SLUICE_INLINE static void read_codes(const Group& /*group*/, const Columns& w, int /*line*/,
                                       V (&codes)[4][kLineQuads]) {
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
  SLUICE_INLINE static void read_codes(const Group& /*group*/, const Columns& w, int line,
                                       V (&codes)[1][kLineQuads]) {
    Base::template read_bytes<B::kSigned>(w.from(5 + 32 * line), codes[0]);
  }
  template <class X>
  SLUICE_INLINE static F add(const Group& group, int /*line*/, const V (&codes)[kLineQuads],
                             const X& x, F sum) {
    return Base::template add_shifted<8>(group.scales, group.zeros, codes, x, sum);
  }
};

}  // namespace sluice::kernels
