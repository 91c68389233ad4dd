// The list of ops. The interface (ops.h), recording and running lists of ops (op_list.h), names
// and sizes are generated from it.
// Values: compile-time constants; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "device/op_params.h"

namespace sluice {

template <class... Params>
struct TypeList {};

// OP(Params) for each op, in the order of ids: append only. A macro, because a TypeList cannot
// declare functions (SLUICE_DECLARE_EXECUTE in ops.h).
#define SLUICE_OPS(OP)      \
  OP(EmbedParams)           \
  OP(RmsNormParams)         \
  OP(MatmulParams)          \
  OP(RopeWriteKvParams)     \
  OP(AttentionParams)       \
  OP(GatedActivationParams) \
  OP(GatherRowsParams)      \
  OP(AllReduceParams)       \
  OP(CopyBlocksParams)      \
  OP(SampleParams)          \
  OP(GatedMatmulParams)     \
  OP(LoraShrinkParams)      \
  OP(LoraExpandParams)      \
  OP(LayerNormParams)

namespace op_types {

template <class First, class... Params>
struct AllButFirst {
  using Types = TypeList<Params...>;
};
#define SLUICE_NEXT_TYPE(Params) , Params
using Types = AllButFirst<void SLUICE_OPS(SLUICE_NEXT_TYPE)>::Types;
#undef SLUICE_NEXT_TYPE

}  // namespace op_types

// The ops as a list of types.
using OpTypes = op_types::Types;

// An op's id, name and size at run time. For an unknown id the name is null and the size 0.
struct OpInfo {
  OpId id{};
  const char* name = nullptr;
  std::size_t params_bytes = 0;
};

namespace op_types {

// Ids start at 1 and count up without gaps.
template <class... Params>
constexpr auto make_table(TypeList<Params...>) {
  static_assert((std::is_trivially_copyable_v<Params> && ...));
  static_assert((std::is_standard_layout_v<Params> && ...));
  return std::array{OpInfo{}, OpInfo{Params::kOp, Params::kName, sizeof(Params)}...};
}
inline constexpr auto kTable = make_table(OpTypes{});
inline constexpr bool kIdsAreInOrder = [] {
  for (std::size_t i = 1; i < kTable.size(); ++i) {
    if (static_cast<std::size_t>(kTable[i].id) != i) return false;
  }
  return true;
}();
static_assert(kIdsAreInOrder, "the list of ops is in the order of their ids");

}  // namespace op_types

inline constexpr std::size_t kNumOps = op_types::kTable.size() - 1;

constexpr const OpInfo& op_info(OpId op) {
  const auto index = static_cast<std::size_t>(op);
  return op_types::kTable[index <= kNumOps ? index : 0];
}

}  // namespace sluice
