// The types of weights that matmul_quantized.h multiplies: how their codes and scales are read for
// a tile of columns, and how the products of a line are added to a sum. `B`: see bytes_avx512.h.
//
// A type has kLines lines in a group, whose scales read_group() reads; read_codes() reads the codes
// of kTogether lines, four along K in each lane. Products of kRuns parts of a line are exact sums,
// of codes less their zero point: offset() takes that off by way of the sum of x's codes, in
// integers, or the codes are less zeros() before. add() is one row of x: sum = fma(products of the
// line, scale of the weight * scale of x, sum). Types with a minimum then add minus that times the
// scaled sum of x's codes. A scale of 16 elements of Q2_K, Q3_K and Q6_K
// is part of the integers, which stay below 2^24. Included by kernels_*.cpp only; see
// simd_avx512.h.
#pragma once

#include <utility>

#include "device/cpu/kernels/quantized_blocks.h"
#include "device/cpu/kernels/quantized_k_weights.h"

namespace sluice::kernels {

// Blocks of 32 elements that begin with their scale.
template <class B, DType dtype, int bits, int zero>
struct QuantizedScaled : QuantizedBlocks<B, dtype, 4, 1, bits, zero> {
  using Base = QuantizedBlocks<B, dtype, 4, 1, bits, zero>;
  using typename Base::Columns, typename Base::Constants, typename Base::F, typename Base::V;
  struct Group {
    alignas(64) typename Base::Floats scales[4];
  };
  SLUICE_INLINE static void read_group(const Constants& constants, const Columns& w, Group& group) {
    V heads[4];
    B::template read_heads<Base::kBytes>(constants, w, heads);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) Base::S::store(group.scales[i], B::halves(heads[i]));
  }
  template <class X>
  SLUICE_INLINE static F add(const Group& group, int line, const F (&products)[1], const X& x,
                             F sum) {
    return Base::add_products(products[0], group.scales[line], x.scale(), sum);
  }
};

template <class B>
struct QuantizedI4 : QuantizedScaled<B, DType::kI4, 4, 8> {
  using Base = QuantizedScaled<B, DType::kI4, 4, 8>;
  using typename Base::Columns, typename Base::Group, typename Base::V;
  SLUICE_INLINE static void read_codes(const Group& /*group*/, const Columns& w, int line,
                                       V (&codes)[1][kLineQuads]) {
    V bytes[4];
    B::read_16(w.from(line * Base::kBytes), 2, bytes);
    Base::split(bytes, codes[0], codes[0] + 4);
  }
};

// Q4_1, Q5_0 and Q5_1: a minimum or a zero point, and a fifth bit.
template <class B, DType dtype>
struct QuantizedLegacy
    : QuantizedBlocks<B, dtype, 4, 1, dtype == DType::kQ4_1 ? 4 : 5, has_minimum(dtype) ? 0 : 16> {
  using Base =
      QuantizedBlocks<B, dtype, 4, 1, dtype == DType::kQ4_1 ? 4 : 5, has_minimum(dtype) ? 0 : 16>;
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
  SLUICE_INLINE static F add(const Group& group, int line, const F (&products)[1], const X& x,
                             F sum) {
    sum = Base::add_products(products[0], group.scales[line], x.scale(), sum);
    return has_minimum(dtype) ? Base::add_minimum(group.minima[line], x, sum) : sum;
  }
};

// Blocks of 32 bytes with a sign, read with 128 added where they are not multiplied with one.
template <class B, DType dtype>
using QuantizedBytes = QuantizedScaled<B, dtype, 8, B::kSigned ? 0 : 128>;

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

// Groups with a zero point for each column.
template <class B>
struct QuantizedU4G32 : QuantizedBlocks<B, DType::kU4G32, 4, 1, 4> {
  using Base = QuantizedBlocks<B, DType::kU4G32, 4, 1, 4>;
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
  SLUICE_INLINE static V offset(const Group& group, int line, int /*run*/, const X& x) {
    return B::times(B::load(group.zeros[line]), x.minus_sum());
  }
  SLUICE_INLINE static V zeros(const Group& group, int line) {
    return Base::in_all_bytes(B::load(group.zeros[line]));
  }
  template <class X>
  SLUICE_INLINE static F add(const Group& group, int line, const F (&products)[1], const X& x,
                             F sum) {
    return Base::add_products(products[0], group.scales[line], x.scale(), sum);
  }
};

// Groups of 128 have one scale and one zero point.
template <class B>
struct QuantizedU4G128 : QuantizedBlocks<B, DType::kU4G128, 4, 4, 4> {
  using Base = QuantizedBlocks<B, DType::kU4G128, 4, 4, 4>;
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
  SLUICE_INLINE static V offset(const Group& group, int /*line*/, int /*run*/, const X& x) {
    return B::times(B::load(group.zeros), x.minus_sum());
  }
  SLUICE_INLINE static V zeros(const Group& group, int /*line*/) {
    return Base::in_all_bytes(B::load(group.zeros));
  }
  template <class X>
  SLUICE_INLINE static F add(const Group& group, int /*line*/, const F (&products)[1], const X& x,
                             F sum) {
    return Base::add_products(products[0], group.scales, x.scale(), sum);
  }
};

template <class B>
struct QuantizedU8G128 : QuantizedBlocks<B, DType::kU8G128, 4, 1, 8> {
  using Base = QuantizedBlocks<B, DType::kU8G128, 4, 1, 8>;
  using typename Base::Columns, typename Base::Constants, typename Base::F, typename Base::V;
  static constexpr bool kZerosFit = false;
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
  SLUICE_INLINE static V offset(const Group& group, int /*line*/, int /*run*/, const X& x) {
    return B::times(B::load(group.zeros), x.minus_sum());
  }
  template <class X>
  SLUICE_INLINE static F add(const Group& group, int /*line*/, const F (&products)[1], const X& x,
                             F sum) {
    return Base::add_products(products[0], group.scales, x.scale(), sum);
  }
};

}  // namespace sluice::kernels
