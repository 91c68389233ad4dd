// Kernels of ops that treat each row by itself. Tails of a row are masked, never scalar, so that an
// element's result does not depend on its position in a vector.
// Included by kernels_*.cpp only; see simd_avx512.h.
#pragma once

#include "device/cpu/kernels/exp.h"
#include "device/cpu/kernels/inline.h"
#include "device/cpu/kernels/kernel_table.h"
#include "device/cpu/kernels/matmul.h"
#include "device/cpu/kernels/token_of.h"
#include "device/cpu/kernels/widen_blocks.h"

namespace sluice::kernels {

// Calls `f` with the element policy of a float dtype.
template <class S, class Function>
SLUICE_INLINE void with_dtype(DType dtype, const Function& f) {
  switch (dtype) {
    case DType::kF16: return f(AsF16<S>());
    case DType::kBF16: return f(AsBf16<S>());
    default: return f(AsF32<S>());
  }
}

// The start of row `row` of a matrix with elements of type As.
template <class As>
SLUICE_INLINE typename As::Element* row_of(const TensorView& view, std::int64_t row) {
  return static_cast<typename As::Element*>(view.data) + row * view.strides[0];
}

// Calls f(i) for whole vectors and f(i, n) for the tail.
template <class S, class Function>
SLUICE_INLINE void for_vectors(std::int64_t count, const Function& f) {
  std::int64_t i = 0;
  for (; i + S::kLanes <= count; i += S::kLanes) f(i);
  if (i < count) f(i, static_cast<int>(count - i));
}

template <class S>
void convert_row(const TensorView& from, std::int64_t from_row, const TensorView& to,
                 std::int64_t to_row) {
  with_dtype<S>(from.dtype, [&](auto from_as) {
    with_dtype<S>(to.dtype, [&](auto to_as) {
      using From = decltype(from_as);
      using To = decltype(to_as);
      const auto* source = row_of<From>(from, from_row);
      auto* target = row_of<To>(to, to_row);
      for_vectors<S>(to.dims[1], [&](std::int64_t i, auto... n) {
        To::store(target + i, From::load(source + i, n...), n...);
      });
    });
  });
}

// A row of a table in INT8. The order of operations on an element is that of the reference.
SLUICE_INLINE static void widen_codes(const EmbedParams& p, std::int32_t id, std::int64_t t) {
  const auto* codes = static_cast<const std::int8_t*>(p.table.data) + id * p.table.strides[0];
  const float scale = p.scales.values[id / p.scales.block_rows * p.scales.stride];
  auto* out = static_cast<float*>(p.out.data) + t * p.out.strides[0];
  for (std::int64_t i = 0; i < p.out.dims[1]; ++i) out[i] = static_cast<float>(codes[i]) * scale;
}

// A row of a table in blocks, whose elements are rounded to BF16 as in products.
template <class S>
void widen_row(const EmbedParams& p, std::int32_t id, std::int64_t t) {
  with_blocks(p.table.dtype, [&](auto blocks) {
    using Blocks = decltype(blocks);
    constexpr ElementBlock kBlock = block_of(Blocks::kDType);
    const auto* from = static_cast<const std::uint8_t*>(p.table.data) +
                       id * (p.table.strides[0] / kBlock.elements * kBlock.bytes);
    float* const out = row_of<AsF32<S>>(p.out, t);
    alignas(64) std::uint16_t values[kBlock.elements];
    for (std::int64_t i = 0; i < p.out.dims[1]; i += kBlock.elements) {
      Blocks::template widen<S>(values, from + i / kBlock.elements * kBlock.bytes);
      const std::int64_t rest = p.out.dims[1] - i;
      for_vectors<S>(rest < kBlock.elements ? rest : kBlock.elements,
                     [&](std::int64_t k, auto... n) {
                       S::store(out + i + k, AsBf16<S>::load(values + k, n...), n...);
                     });
    }
  });
}

template <class S>
void embed_rows(const EmbedParams& p, std::int32_t begin, std::int32_t end) {
  for (std::int32_t t = begin; t < end; ++t) {
    if (p.table.dtype == DType::kI8) {
      widen_codes(p, token_of(p, t), t);
    } else if (is_blocks(p.table.dtype)) {
      widen_row<S>(p, token_of(p, t), t);
    } else {
      convert_row<S>(p.table, token_of(p, t), p.out, t);
    }
  }
}

template <class S>
void gather_rows(const GatherRowsParams& p, std::int32_t begin, std::int32_t end) {
  for (std::int32_t i = begin; i < end; ++i) convert_row<S>(p.in, p.indices[i], p.out, i);
}

// A sum, kept in four vectors and added by a fixed tree.
template <class S>
class RowSum {
 public:
  using F = typename S::F;
  SLUICE_INLINE void add(F v) { take(S::add(v, sums_[0])); }
  SLUICE_INLINE void add_square(F v) { take(S::fma(v, v, sums_[0])); }
  SLUICE_INLINE float mean(std::int64_t count) const {
    const F all = S::add(S::add(sums_[0], sums_[1]), S::add(sums_[2], sums_[3]));
    return sum_lanes(S::quarter_sum(all)) / static_cast<float>(count);
  }

 private:
  SLUICE_INLINE void take(F sum) {
    sums_[0] = sums_[1];
    sums_[1] = sums_[2];
    sums_[2] = sums_[3];
    sums_[3] = sum;
  }
  F sums_[4] = {S::zero(), S::zero(), S::zero(), S::zero()};
};

// Adds `add`, unless it is empty, to `residual`, and calls f(v) for each vector of the sums; lanes
// beyond the row's end are zero. Returns the row.
template <class S, class Function>
SLUICE_INLINE float* add_row(const TensorView& add, const TensorView& residual, std::int32_t t,
                             const Function& f) {
  float* row = row_of<AsF32<S>>(residual, t);
  const float* addend = add.data != nullptr ? row_of<AsF32<S>>(add, t) : nullptr;
  for_vectors<S>(residual.dims[1], [&](std::int64_t i, auto... n) {
    typename S::F v = S::load(row + i, n...);
    if (addend != nullptr) {
      v = S::add(v, S::load(addend + i, n...));
      S::store(row + i, v, n...);
    }
    f(v);
  });
  return row;
}

template <class S>
SLUICE_INLINE typename S::F inverse_root(float mean_square, float epsilon) {
  return S::set1(1.0F / __builtin_sqrtf(mean_square + epsilon));
}

template <class S>
void rms_norm_rows(const RmsNormParams& p, std::int32_t begin, std::int32_t end) {
  const std::int64_t hidden = p.residual.dims[1];
  for (std::int32_t t = begin; t < end; ++t) {
    RowSum<S> squares;
    const float* residual =
        add_row<S>(p.add, p.residual, t, [&](typename S::F v) { squares.add_square(v); });
    const typename S::F scale = inverse_root<S>(squares.mean(hidden), p.epsilon);
    with_dtype<S>(p.weight.dtype, [&](auto weight_as) {
      with_dtype<S>(p.out.dtype, [&](auto out_as) {
        using Weight = decltype(weight_as);
        using Out = decltype(out_as);
        const auto* weight = static_cast<const typename Weight::Element*>(p.weight.data);
        auto* out = row_of<Out>(p.out, t);
        for_vectors<S>(hidden, [&](std::int64_t i, auto... n) {
          const typename S::F v = S::mul(S::load(residual + i, n...), scale);
          Out::store(out + i, S::mul(v, Weight::load(weight + i, n...)), n...);
        });
      });
    });
  }
}

// Squares the deviations from the mean, not the values: with a mean that is large compared to the
// deviations, the values' squares would cancel.
template <class S>
SLUICE_INLINE float mean_square_deviation(const float* row, std::int64_t count, float mean) {
  const typename S::F center = S::set1(mean);
  RowSum<S> squares;
  for_vectors<S>(count, [&](std::int64_t i, auto... n) {
    typename S::F v = S::sub(S::load(row + i, n...), center);
    if constexpr (sizeof...(n) > 0) v = S::select(S::first(n...), v, S::zero());
    squares.add_square(v);
  });
  return squares.mean(count);
}

// Weight and bias have the same type, that of the checkpoint.
template <class S>
void layer_norm_rows(const LayerNormParams& p, std::int32_t begin, std::int32_t end) {
  const std::int64_t hidden = p.residual.dims[1];
  for (std::int32_t t = begin; t < end; ++t) {
    RowSum<S> values;
    const float* residual =
        add_row<S>(p.add, p.residual, t, [&](typename S::F v) { values.add(v); });
    const float mean = values.mean(hidden);
    const typename S::F center = S::set1(mean);
    const typename S::F scale =
        inverse_root<S>(mean_square_deviation<S>(residual, hidden, mean), p.epsilon);
    with_dtype<S>(p.weight.dtype, [&](auto weight_as) {
      with_dtype<S>(p.out.dtype, [&](auto out_as) {
        using Weight = decltype(weight_as);
        using Out = decltype(out_as);
        const auto* weight = static_cast<const typename Weight::Element*>(p.weight.data);
        const auto* bias = static_cast<const typename Weight::Element*>(p.bias.data);
        auto* out = row_of<Out>(p.out, t);
        for_vectors<S>(hidden, [&](std::int64_t i, auto... n) {
          const typename S::F v = S::mul(S::sub(S::load(residual + i, n...), center), scale);
          const typename S::F b = bias != nullptr ? Weight::load(bias + i, n...) : S::zero();
          Out::store(out + i, S::fma(v, Weight::load(weight + i, n...), b), n...);
        });
      });
    });
  }
}

// gate * sigmoid(z), z being gate for SiLU and 2 u for GELU, whose tanh form is
// gate / 2 * (1 + tanh(u)) = gate * sigmoid(2 u), u = sqrt(2 / pi) * (gate + 0.044715 gate^3).
template <class S>
SLUICE_INLINE typename S::F activate(typename S::F gate, GatedActivation activation) {
  typename S::F z = gate;
  if (activation == GatedActivation::kGeluTanh) {
    const typename S::F square = S::mul(gate, gate);
    const typename S::F inner = S::fma(S::mul(square, gate), S::set1(0.044715F), gate);
    z = S::mul(inner, S::set1(1.5957691216F));  // 2 sqrt(2 / pi)
  }
  const typename S::F one = S::set1(1.0F);
  return S::div(gate, S::add(one, exp<S>(S::sub(S::zero(), z))));
}

template <class S>
void gated_activation_rows(const GatedActivationParams& p, std::int32_t begin, std::int32_t end) {
  const std::int64_t width = p.out.dims[1];
  for (std::int32_t t = begin; t < end; ++t) {
    const float* gate = row_of<AsF32<S>>(p.gate_up, t);
    const float* up = gate + width;
    with_dtype<S>(p.out.dtype, [&](auto out_as) {
      using Out = decltype(out_as);
      auto* out = row_of<Out>(p.out, t);
      for_vectors<S>(width, [&](std::int64_t i, auto... n) {
        const typename S::F g = activate<S>(S::load(gate + i, n...), p.activation);
        Out::store(out + i, S::mul(g, S::load(up + i, n...)), n...);
      });
    });
  }
}

template <class S>
void normalize_head(float* head, std::int64_t dim, const TensorView& weight, float epsilon) {
  RowSum<S> squares;
  for_vectors<S>(dim,
                 [&](std::int64_t i, auto... n) { squares.add_square(S::load(head + i, n...)); });
  const typename S::F scale = inverse_root<S>(squares.mean(dim), epsilon);
  with_dtype<S>(weight.dtype, [&](auto weight_as) {
    using Weight = decltype(weight_as);
    const auto* w = static_cast<const typename Weight::Element*>(weight.data);
    for_vectors<S>(dim, [&](std::int64_t i, auto... n) {
      const typename S::F v = S::mul(S::load(head + i, n...), scale);
      S::store(head + i, S::mul(v, Weight::load(w + i, n...)), n...);
    });
  });
}

template <class S>
SLUICE_INLINE void rotate_head(float* head, std::int64_t half, const float* cosines) {
  const float* sines = cosines + half;
  for_vectors<S>(half, [&](std::int64_t i, auto... n) {
    const typename S::F low = S::load(head + i, n...);
    const typename S::F high = S::load(head + half + i, n...);
    const typename S::F c = S::load(cosines + i, n...);
    const typename S::F s = S::load(sines + i, n...);
    S::store(head + i, S::fms(low, c, S::mul(high, s)), n...);
    S::store(head + half + i, S::fma(high, c, S::mul(low, s)), n...);
  });
}

template <class S>
void rope_write_kv_rows(const RopeWriteKvParams& p, std::int32_t begin, std::int32_t end) {
  const std::int64_t dim = p.head_dim;
  const KvLayerView& kv = p.kv;
  for (std::int32_t t = begin; t < end; ++t) {
    float* row = row_of<AsF32<S>>(p.qkv, t);
    const float* cosines = p.cos_sin + std::int64_t{p.positions[t]} * p.rotary_dim;
    for (std::int32_t head = 0; head < p.num_heads + p.num_kv_heads; ++head) {
      const TensorView& norm = head < p.num_heads ? p.q_norm : p.k_norm;
      if (norm.data != nullptr) normalize_head<S>(row + head * dim, dim, norm, p.norm_epsilon);
      rotate_head<S>(row + head * dim, p.rotary_dim / 2, cosines);
    }
    const float* keys = row + p.num_heads * dim;
    const float* values = keys + p.num_kv_heads * dim;
    const std::int64_t slot = p.slot_mapping[t];
    const std::int64_t place =
        slot / kv.block_size * kv.block_stride + slot % kv.block_size * kv.token_stride;
    with_dtype<S>(kv.dtype, [&](auto kv_as) {
      using Kv = decltype(kv_as);
      for (std::int32_t g = 0; g < p.num_kv_heads; ++g) {
        auto* k = static_cast<typename Kv::Element*>(kv.k_base) + place + g * kv.head_stride;
        auto* v = static_cast<typename Kv::Element*>(kv.v_base) + place + g * kv.head_stride;
        for_vectors<S>(dim, [&](std::int64_t i, auto... n) {
          Kv::store(k + i, S::load(keys + g * dim + i, n...), n...);
          Kv::store(v + i, S::load(values + g * dim + i, n...), n...);
        });
      }
    });
  }
}

}  // namespace sluice::kernels
