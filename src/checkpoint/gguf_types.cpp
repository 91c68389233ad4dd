#include "checkpoint/gguf_types.h"

#include <algorithm>
#include <array>

#include "base/check.h"

namespace sluice {
namespace {

struct ValueTypeInfo {
  std::string_view name;
  std::uint64_t bytes;
};
// In the order of the enumeration.
constexpr std::array kValueTypes = {
    ValueTypeInfo{"U8", 1},    ValueTypeInfo{"I8", 1},   ValueTypeInfo{"U16", 2},
    ValueTypeInfo{"I16", 2},   ValueTypeInfo{"U32", 4},  ValueTypeInfo{"I32", 4},
    ValueTypeInfo{"F32", 4},   ValueTypeInfo{"bool", 1}, ValueTypeInfo{"text", 0},
    ValueTypeInfo{"array", 0}, ValueTypeInfo{"U64", 8},  ValueTypeInfo{"I64", 8},
    ValueTypeInfo{"F64", 8},
};

constexpr GgufTensorTypeInfo row(std::uint32_t number, std::string_view name, std::int64_t elements,
                                 std::int64_t bytes) {
  return {static_cast<GgufTensorType>(number), name, elements, bytes};
}
constexpr std::array kTensorTypes = {
    row(0, "F32", 1, 4),         row(1, "F16", 1, 2),         row(2, "Q4_0", 32, 18),
    row(3, "Q4_1", 32, 20),      row(6, "Q5_0", 32, 22),      row(7, "Q5_1", 32, 24),
    row(8, "Q8_0", 32, 34),      row(10, "Q2_K", 256, 84),    row(11, "Q3_K", 256, 110),
    row(12, "Q4_K", 256, 144),   row(13, "Q5_K", 256, 176),   row(14, "Q6_K", 256, 210),
    row(15, "Q8_K", 256, 292),   row(16, "IQ2_XXS", 256, 66), row(17, "IQ2_XS", 256, 74),
    row(18, "IQ3_XXS", 256, 98), row(19, "IQ1_S", 256, 50),   row(20, "IQ4_NL", 32, 18),
    row(21, "IQ3_S", 256, 110),  row(22, "IQ2_S", 256, 82),   row(23, "IQ4_XS", 256, 136),
    row(24, "I8", 1, 1),         row(25, "I16", 1, 2),        row(26, "I32", 1, 4),
    row(27, "I64", 1, 8),        row(28, "F64", 1, 8),        row(29, "IQ1_M", 256, 56),
    row(30, "BF16", 1, 2),       row(34, "TQ1_0", 256, 54),   row(35, "TQ2_0", 256, 66),
    row(39, "MXFP4", 32, 17),
};

}  // namespace

std::string_view gguf_value_type_name(GgufValueType type) {
  const auto number = static_cast<std::size_t>(type);
  return number < kValueTypes.size() ? kValueTypes[number].name : std::string_view();
}

std::uint64_t gguf_value_bytes(GgufValueType type) {
  const auto number = static_cast<std::size_t>(type);
  return number < kValueTypes.size() ? kValueTypes[number].bytes : 0;
}

const GgufTensorTypeInfo* gguf_tensor_type_info(GgufTensorType type) {
  const auto* found =
      std::find_if(kTensorTypes.begin(), kTensorTypes.end(),
                   [&](const GgufTensorTypeInfo& info) { return info.type == type; });
  return found == kTensorTypes.end() ? nullptr : found;
}

std::string_view gguf_tensor_type_name(GgufTensorType type) {
  const GgufTensorTypeInfo* info = gguf_tensor_type_info(type);
  CHECK(info != nullptr);
  return info->name;
}

}  // namespace sluice
