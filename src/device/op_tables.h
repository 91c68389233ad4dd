// The tables of op fields: one per struct of op_params.h, which lists each member with its name and
// kind. A table that misses a member, or lists members in another order, does not compile
// (lists_every_member).
// Host code only; only op_fields.cpp and its test include it. Values: constants; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <tuple>
#include <type_traits>

#include "device/op_fields.h"
#include "device/op_params.h"

namespace sluice::op_tables {

// One member of a struct.
template <class Struct, class Member>
struct Field {
  const char* name;
  Member Struct::* member;
  FieldKind kind;
};
template <class Struct, class Member>
constexpr auto part(const char* name, Member Struct::* member) {
  static_assert(std::is_class_v<std::remove_extent_t<Member>>);
  return Field<Struct, Member>{name, member, FieldKind::kPart};
}
template <class Struct, class Member>
constexpr auto pointer(const char* name, Member Struct::* member) {
  static_assert(std::is_pointer_v<Member>);
  return Field<Struct, Member>{name, member, FieldKind::kPointer};
}
template <class Struct, class Member>
constexpr auto extent(const char* name, Member Struct::* member) {
  static_assert(std::is_integral_v<std::remove_extent_t<Member>>);
  return Field<Struct, Member>{name, member, FieldKind::kExtent};
}
template <class Struct, class Member>
constexpr auto scalar(const char* name, Member Struct::* member) {
  static_assert(std::is_arithmetic_v<Member> || std::is_enum_v<Member>);
  return Field<Struct, Member>{name, member, FieldKind::kScalar};
}

// The table of a struct: its members, in order.
template <class Struct>
inline constexpr auto kFields = nullptr;

template <>
inline constexpr auto kFields<TensorView> =
    std::tuple(pointer("data", &TensorView::data), scalar("dtype", &TensorView::dtype),
               extent("rank", &TensorView::rank), extent("dims", &TensorView::dims),
               extent("strides", &TensorView::strides));

template <>
inline constexpr auto kFields<RowCount> =
    std::tuple(pointer("value", &RowCount::value), extent("capacity", &RowCount::capacity));

template <>
inline constexpr auto kFields<BlockScales> = std::tuple(
    pointer("values", &BlockScales::values), extent("block_rows", &BlockScales::block_rows),
    extent("block_cols", &BlockScales::block_cols), extent("stride", &BlockScales::stride));

template <>
inline constexpr auto kFields<MatmulSegment> =
    std::tuple(part("weight", &MatmulSegment::weight), part("bias", &MatmulSegment::bias),
               part("scales", &MatmulSegment::scales), pointer("order", &MatmulSegment::order));

template <>
inline constexpr auto kFields<LoraTable> =
    std::tuple(pointer("base", &LoraTable::base), pointer("entries", &LoraTable::entries),
               extent("stride", &LoraTable::stride), extent("num_slots", &LoraTable::num_slots),
               extent("num_modules", &LoraTable::num_modules),
               extent("max_rank", &LoraTable::max_rank), scalar("dtype", &LoraTable::dtype));

template <>
inline constexpr auto kFields<LoraBatch> =
    std::tuple(pointer("tokens", &LoraBatch::tokens), pointer("segments", &LoraBatch::segments),
               part("num_segments", &LoraBatch::num_segments));

template <>
inline constexpr auto kFields<LoraHidden> =
    std::tuple(pointer("data", &LoraHidden::data), extent("parts", &LoraHidden::parts),
               extent("capacity", &LoraHidden::capacity));

template <>
inline constexpr auto kFields<KvLayerView> =
    std::tuple(pointer("k_base", &KvLayerView::k_base), pointer("v_base", &KvLayerView::v_base),
               scalar("dtype", &KvLayerView::dtype), extent("block_size", &KvLayerView::block_size),
               extent("block_stride", &KvLayerView::block_stride),
               extent("head_stride", &KvLayerView::head_stride),
               extent("token_stride", &KvLayerView::token_stride));

template <>
inline constexpr auto kFields<EmbedParams> = std::tuple(
    part("table", &EmbedParams::table), pointer("token_ids", &EmbedParams::token_ids),
    part("out", &EmbedParams::out), part("rows", &EmbedParams::rows),
    pointer("last_tokens", &EmbedParams::last_tokens), part("scales", &EmbedParams::scales));

template <>
inline constexpr auto kFields<RmsNormParams> =
    std::tuple(part("residual", &RmsNormParams::residual), part("add", &RmsNormParams::add),
               part("weight", &RmsNormParams::weight), part("out", &RmsNormParams::out),
               scalar("epsilon", &RmsNormParams::epsilon), part("rows", &RmsNormParams::rows));

template <>
inline constexpr auto kFields<LayerNormParams> =
    std::tuple(part("residual", &LayerNormParams::residual), part("add", &LayerNormParams::add),
               part("weight", &LayerNormParams::weight), part("bias", &LayerNormParams::bias),
               part("out", &LayerNormParams::out), scalar("epsilon", &LayerNormParams::epsilon),
               part("rows", &LayerNormParams::rows));

template <>
inline constexpr auto kFields<MatmulParams> =
    std::tuple(part("x", &MatmulParams::x), part("segments", &MatmulParams::segments),
               extent("num_segments", &MatmulParams::num_segments), part("out", &MatmulParams::out),
               part("rows", &MatmulParams::rows));

template <>
inline constexpr auto kFields<LoraShrinkParams> =
    std::tuple(part("x", &LoraShrinkParams::x), part("table", &LoraShrinkParams::table),
               part("batch", &LoraShrinkParams::batch), part("h", &LoraShrinkParams::h));

template <>
inline constexpr auto kFields<LoraExpandParams> =
    std::tuple(part("h", &LoraExpandParams::h), part("table", &LoraExpandParams::table),
               part("batch", &LoraExpandParams::batch), part("out", &LoraExpandParams::out),
               extent("widths", &LoraExpandParams::widths));

template <>
inline constexpr auto kFields<RopeWriteKvParams> = std::tuple(
    part("qkv", &RopeWriteKvParams::qkv), part("q_norm", &RopeWriteKvParams::q_norm),
    part("k_norm", &RopeWriteKvParams::k_norm), pointer("cos_sin", &RopeWriteKvParams::cos_sin),
    pointer("positions", &RopeWriteKvParams::positions),
    pointer("slot_mapping", &RopeWriteKvParams::slot_mapping), part("kv", &RopeWriteKvParams::kv),
    extent("num_heads", &RopeWriteKvParams::num_heads),
    extent("num_kv_heads", &RopeWriteKvParams::num_kv_heads),
    extent("head_dim", &RopeWriteKvParams::head_dim),
    extent("rotary_dim", &RopeWriteKvParams::rotary_dim),
    scalar("norm_epsilon", &RopeWriteKvParams::norm_epsilon),
    part("rows", &RopeWriteKvParams::rows));

template <>
inline constexpr auto kFields<AttentionParams> = std::tuple(
    part("q", &AttentionParams::q), part("kv", &AttentionParams::kv),
    pointer("cu_seqlens_q", &AttentionParams::cu_seqlens_q),
    pointer("seq_lens", &AttentionParams::seq_lens),
    pointer("block_tables", &AttentionParams::block_tables),
    pointer("row_slots", &AttentionParams::row_slots),
    extent("table_stride", &AttentionParams::table_stride), pointer("plan", &AttentionParams::plan),
    extent("num_heads", &AttentionParams::num_heads),
    extent("num_kv_heads", &AttentionParams::num_kv_heads),
    extent("head_dim", &AttentionParams::head_dim), scalar("window", &AttentionParams::window),
    scalar("scale", &AttentionParams::scale), part("out", &AttentionParams::out),
    part("seqs", &AttentionParams::seqs));

template <>
inline constexpr auto kFields<GatedActivationParams> = std::tuple(
    part("gate_up", &GatedActivationParams::gate_up), part("out", &GatedActivationParams::out),
    scalar("activation", &GatedActivationParams::activation),
    part("rows", &GatedActivationParams::rows));

template <>
inline constexpr auto kFields<GatedMatmulParams> = std::tuple(
    part("x", &GatedMatmulParams::x), part("gate", &GatedMatmulParams::gate),
    part("up", &GatedMatmulParams::up), part("scratch", &GatedMatmulParams::scratch),
    part("out", &GatedMatmulParams::out), scalar("activation", &GatedMatmulParams::activation),
    part("rows", &GatedMatmulParams::rows));

template <>
inline constexpr auto kFields<GatherRowsParams> =
    std::tuple(part("in", &GatherRowsParams::in), pointer("indices", &GatherRowsParams::indices),
               part("out", &GatherRowsParams::out), part("rows", &GatherRowsParams::rows));

template <>
inline constexpr auto kFields<AllReduceParams> = std::tuple(
    part("buffer", &AllReduceParams::buffer), extent("world_size", &AllReduceParams::world_size),
    part("rows", &AllReduceParams::rows));

template <>
inline constexpr auto kFields<CopyBlocksParams> =
    std::tuple(pointer("kv_base", &CopyBlocksParams::kv_base),
               extent("block_bytes", &CopyBlocksParams::block_bytes),
               pointer("pairs", &CopyBlocksParams::pairs), part("rows", &CopyBlocksParams::rows));

template <>
inline constexpr auto kFields<SampleParams> =
    std::tuple(part("logits", &SampleParams::logits), pointer("sampling", &SampleParams::sampling),
               pointer("last_tokens", &SampleParams::last_tokens),
               pointer("tokens", &SampleParams::tokens), part("rows", &SampleParams::rows));

// The addresses of the members of an object, as the language counts them.
template <class... Members>
constexpr auto addresses_of(const Members&... members) {
  return std::array<const void*, sizeof...(Members)>{std::addressof(members)...};
}
// Decomposes the object into as many members as its table lists; any other number is an error of
// the compiler.
template <class Struct>
constexpr auto member_addresses(const Struct& object) {
  constexpr std::size_t kCount = std::tuple_size_v<std::remove_cv_t<decltype(kFields<Struct>)>>;
  static_assert(kCount <= 16, "member_addresses needs another case");
  if constexpr (kCount == 1) {
    const auto& [a] = object;
    return addresses_of(a);
  } else if constexpr (kCount == 2) {
    const auto& [a, b] = object;
    return addresses_of(a, b);
  } else if constexpr (kCount == 3) {
    const auto& [a, b, c] = object;
    return addresses_of(a, b, c);
  } else if constexpr (kCount == 4) {
    const auto& [a, b, c, d] = object;
    return addresses_of(a, b, c, d);
  } else if constexpr (kCount == 5) {
    const auto& [a, b, c, d, e] = object;
    return addresses_of(a, b, c, d, e);
  } else if constexpr (kCount == 6) {
    const auto& [a, b, c, d, e, f] = object;
    return addresses_of(a, b, c, d, e, f);
  } else if constexpr (kCount == 7) {
    const auto& [a, b, c, d, e, f, g] = object;
    return addresses_of(a, b, c, d, e, f, g);
  } else if constexpr (kCount == 8) {
    const auto& [a, b, c, d, e, f, g, h] = object;
    return addresses_of(a, b, c, d, e, f, g, h);
  } else if constexpr (kCount == 9) {
    const auto& [a, b, c, d, e, f, g, h, i] = object;
    return addresses_of(a, b, c, d, e, f, g, h, i);
  } else if constexpr (kCount == 10) {
    const auto& [a, b, c, d, e, f, g, h, i, j] = object;
    return addresses_of(a, b, c, d, e, f, g, h, i, j);
  } else if constexpr (kCount == 11) {
    const auto& [a, b, c, d, e, f, g, h, i, j, k] = object;
    return addresses_of(a, b, c, d, e, f, g, h, i, j, k);
  } else if constexpr (kCount == 12) {
    const auto& [a, b, c, d, e, f, g, h, i, j, k, l] = object;
    return addresses_of(a, b, c, d, e, f, g, h, i, j, k, l);
  } else if constexpr (kCount == 13) {
    const auto& [a, b, c, d, e, f, g, h, i, j, k, l, m] = object;
    return addresses_of(a, b, c, d, e, f, g, h, i, j, k, l, m);
  } else if constexpr (kCount == 14) {
    const auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n] = object;
    return addresses_of(a, b, c, d, e, f, g, h, i, j, k, l, m, n);
  } else if constexpr (kCount == 15) {
    const auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o] = object;
    return addresses_of(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o);
  } else if constexpr (kCount == 16) {
    const auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = object;
    return addresses_of(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p);
  }
}
template <class Struct>
constexpr bool lists_every_member() {
  const Struct object{};
  return std::apply(
      [&](const auto&... field) {
        return addresses_of(object.*field.member...) == member_addresses(object);
      },
      kFields<Struct>);
}

}  // namespace sluice::op_tables
