// Blocks of 256 elements with scales in integers, for matmul_quantized.h: Q2_K to Q6_K, and IQ4_XS.
// Included by kernels_*.cpp only; see quantized_weights.h.
#pragma once

#include "device/cpu/kernels/quantized_blocks.h"

namespace sluice::kernels {

// Q4_K, and Q5_K with a fifth bit.
template <class B, DType dtype>
struct QuantizedLinearK : QuantizedBlocks<B, dtype, 8, 2, dtype == DType::kQ5K ? 5 : 4> {
  using Base = QuantizedBlocks<B, dtype, 8, 2, dtype == DType::kQ5K ? 5 : 4>;
  using typename Base::Columns, typename Base::Constants, typename Base::F, typename Base::V;
  using S = typename Base::S;
  static constexpr bool kFifth = dtype == DType::kQ5K;
  struct Group {
    alignas(64) typename Base::Floats scales[8];
    alignas(64) typename Base::Floats minima[8];  // times -1
    V fifth[kFifth ? kLineQuads : 1];             // a bit for each line
  };
  // See unpack_linear(). A factor times an integer of 6 bits is exact.
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
    if constexpr (kFifth) Base::read_bits(w.from(16), group.fifth);
  }
  SLUICE_INLINE static void read_codes(const Group& group, const Columns& w, int line,
                                       V (&codes)[2][kLineQuads]) {
    const Columns from = w.from(16 * line);
    const V fifth = B::set1_byte(16);
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      V bytes[4];
      B::read_16(from, (kFifth ? 48 : 16) + 16 * i, bytes);
      Base::split(bytes, codes[0] + 4 * i, codes[1] + 4 * i);
      if constexpr (kFifth) {
#pragma GCC unroll 4
        for (int q = 4 * i; q < 4 * i + 4; ++q) {
          const V bits = B::right_by(group.fifth[q], line);
          codes[0][q] = codes[0][q] | (B::template left<4>(bits) & fifth);
          codes[1][q] = codes[1][q] | (B::template left<3>(bits) & fifth);
        }
      }
    }
  }
  template <class X>
  SLUICE_INLINE static F add(const Group& group, int line, const F (&products)[1], const X& x,
                             F sum) {
    sum = Base::add_products(products[0], group.scales[line], x.scale(), sum);
    return Base::add_minimum(group.minima[line], x, sum);
  }

 private:
  // Four bytes of each column, times a factor.
  SLUICE_INLINE static void write(F factor, V bytes, typename Base::Floats* to) {
    Base::store_bytes(bytes, to, [&](F numbers) { return S::mul(factor, numbers); });
  }
};

// Q2_K: codes of two bits, and a scale and a minimum of four bits each for 16 elements.
template <class B>
struct QuantizedQ2K : QuantizedBlocks<B, DType::kQ2K, 8, 4, 4, 0, 2> {
  using Base = QuantizedBlocks<B, DType::kQ2K, 8, 4, 4, 0, 2>;
  using typename Base::Columns, typename Base::Constants, typename Base::F, typename Base::V;
  using S = typename Base::S;
  struct Group {
    alignas(64) typename Base::Floats runs[16];    // scales of 16 elements
    alignas(64) typename Base::Floats minima[16];  // the same
    alignas(64) typename Base::Floats factor;
    alignas(64) typename Base::Floats minimum;  // a 32nd, as InputLine has sums times -32
  };
  SLUICE_INLINE static void read_group(const Constants& /*constants*/, const Columns& w,
                                       Group& group) {
    V bytes[4];
    B::read_16(w, 0, bytes);
    const V nibble = B::set1_byte(15);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      Base::store_bytes(bytes[i] & nibble, group.runs + 4 * i);
      Base::store_bytes(B::template right<4>(bytes[i]) & nibble, group.minima + 4 * i);
    }
    B::read_16(w, 68, bytes);
    S::store(group.factor, B::halves(bytes[3]));
    S::store(group.minimum,
             S::mul(B::halves(B::template right<16>(bytes[3])), S::set1(1.0F / 32.0F)));
  }
  SLUICE_INLINE static void read_codes(const Group& /*group*/, const Columns& w, int line,
                                       V (&codes)[4][kLineQuads]) {
    const Columns from = w.from(16 + 8 * line);
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      V bytes[4];
      B::read_16(from, 16 * i, bytes);
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) {
        codes[0][4 * i + k] = Base::template two_bits<0>(bytes[k]);
        codes[1][4 * i + k] = Base::template two_bits<1>(bytes[k]);
        codes[2][4 * i + k] = Base::template two_bits<2>(bytes[k]);
        codes[3][4 * i + k] = Base::template two_bits<3>(bytes[k]);
      }
    }
  }
  template <class X>
  SLUICE_INLINE static F add(const Group& group, int line, const F (&products)[2], const X& x,
                             F sum) {
    sum = Base::add_runs(group.runs + 2 * line, products, group.factor, x.scale(), sum);
    // The sums are whole numbers below 2^24.
    const F sums =
        S::fma(B::to_float(B::set1(x.second_offset())), S::load(group.minima[2 * line + 1]),
               S::mul(B::to_float(B::set1(x.first_offset())), S::load(group.minima[2 * line])));
    return S::fma(S::load(group.minimum), S::mul(S::set1(x.scale()), sums), sum);
  }
};

// Q3_K: codes of three bits and a scale of 6 bits for 16 elements.
template <class B>
struct QuantizedQ3K : QuantizedBlocks<B, DType::kQ3K, 8, 4, 4, 4, 2> {
  using Base = QuantizedBlocks<B, DType::kQ3K, 8, 4, 4, 4, 2>;
  using typename Base::Columns, typename Base::Constants, typename Base::F, typename Base::V;
  using S = typename Base::S;
  struct Group {
    alignas(64) typename Base::Floats runs[16];  // scales of 16 elements
    alignas(64) typename Base::Floats factor;
    V third[kLineQuads];  // a bit for each line
  };
  SLUICE_INLINE static void read_group(const Constants& /*constants*/, const Columns& w,
                                       Group& group) {
    V tail[4];
    B::read_16(w, 94, tail);  // 12 bytes of scales from the third one on, then the factor
    S::store(group.factor, B::halves(B::template right<16>(tail[3])));
    V scales[4];
    B::read_16(w, 96 - 4, scales);
    const V nibble = B::set1_byte(15);
    const V top = B::set1_byte(0x30);
    const V low = scales[1];
    const V next = scales[2];
    const V upper = scales[3];
    Base::template store_bytes<32>((low & nibble) | (B::template left<4>(upper) & top), group.runs);
    Base::template store_bytes<32>((next & nibble) | (B::template left<2>(upper) & top),
                                   group.runs + 4);
    Base::template store_bytes<32>((B::template right<4>(low) & nibble) | (upper & top),
                                   group.runs + 8);
    Base::template store_bytes<32>(
        (B::template right<4>(next) & nibble) | (B::template right<2>(upper) & top),
        group.runs + 12);
    Base::read_bits(w, group.third);
  }
  // 32 bytes hold the low bits of four lines.
  SLUICE_INLINE static void read_codes(const Group& group, const Columns& w, int line,
                                       V (&codes)[4][kLineQuads]) {
    const Columns from = w.from(32 + 8 * line);
    const V third = B::set1_byte(4);
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      V bytes[4];
      B::read_16(from, 16 * i, bytes);
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) {
        const int q = 4 * i + k;
        const V bits = B::right_by(group.third[q], line);
        codes[0][q] = Base::template two_bits<0>(bytes[k]) | (B::template left<2>(bits) & third);
        codes[1][q] = Base::template two_bits<1>(bytes[k]) | (B::template left<1>(bits) & third);
        codes[2][q] = Base::template two_bits<2>(bytes[k]) | (bits & third);
        codes[3][q] = Base::template two_bits<3>(bytes[k]) | (B::template right<1>(bits) & third);
      }
    }
  }
  template <class X>
  SLUICE_INLINE static F add(const Group& group, int line, const F (&products)[2], const X& x,
                             F sum) {
    return Base::add_runs(group.runs + 2 * line, products, group.factor, x.scale(), sum);
  }
};

template <class B>
struct QuantizedQ6K : QuantizedBlocks<B, DType::kQ6K, 8, 4, 6, 32, 2> {
  using Base = QuantizedBlocks<B, DType::kQ6K, 8, 4, 6, 32, 2>;
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
  SLUICE_INLINE static void read_codes(const Group& /*group*/, const Columns& w, int line,
                                       V (&codes)[4][kLineQuads]) {
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
  SLUICE_INLINE static F add(const Group& group, int line, const F (&products)[2], const X& x,
                             F sum) {
    return Base::add_runs(group.runs + 2 * line, products, group.factor, x.scale(), sum);
  }

 private:
  // A byte with a sign, `bits` bits from the top.
  template <int bits>
  SLUICE_INLINE static F byte(V bytes) {
    return B::to_float(B::template right_signed<24>(B::template left<bits>(bytes)));
  }
};

template <class B>
struct QuantizedIq4Xs : QuantizedBlocks<B, DType::kIq4Xs, 8, 1, 8, B::kSigned ? 0 : 128> {
  using Base = QuantizedBlocks<B, DType::kIq4Xs, 8, 1, 8, B::kSigned ? 0 : 128>;
  using typename Base::Columns, typename Base::Constants, typename Base::F, typename Base::V;
  using S = typename Base::S;
  struct Group {
    alignas(64) typename Base::Floats scales[8];
  };
  // A factor, 16 bits with the upper two of each scale, four bytes with the lower four.
  SLUICE_INLINE static void read_group(const Constants& /*constants*/, const Columns& w,
                                       Group& group) {
    V heads[4];
    B::read_16(w, 0, heads);
    const F factor = B::halves(heads[0]);
#pragma GCC unroll 8
    for (int line = 0; line < 8; ++line) {
      const V low = B::right_by(heads[1], 4 * line) & B::set1(15);
      const V upper = B::right_by(heads[0], 12 + 2 * line) & B::set1(0x30);
      const V scale = B::subtract(low | upper, B::set1(32));
      S::store(group.scales[line], S::mul(factor, B::to_float(scale)));
    }
  }
  SLUICE_INLINE static void read_codes(const Group& /*group*/, const Columns& w, int line,
                                       V (&codes)[1][kLineQuads]) {
    Base::read_names(w.from(8 + 16 * line), codes[0]);
  }
  template <class X>
  SLUICE_INLINE static F add(const Group& group, int line, const F (&products)[1], const X& x,
                             F sum) {
    return Base::add_products(products[0], group.scales[line], x.scale(), sum);
  }
};

}  // namespace sluice::kernels
