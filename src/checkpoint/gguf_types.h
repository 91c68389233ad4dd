// The types that a GGUF file names by number: those of metadata values, and those of tensors with
// the size of their blocks. Every tensor type of the format is in the table, so that a tensor of a
// type that is not supported is refused by its name. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string_view>

namespace sluice {

enum class GgufValueType : std::uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kText = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

// "U32", "text", ...; empty for a number that the format does not define.
std::string_view gguf_value_type_name(GgufValueType type);
// Bytes of a value; 0 for text and arrays, whose size varies.
std::uint64_t gguf_value_bytes(GgufValueType type);

// The types that have a meaning to this program; the table knows the others by number and name.
enum class GgufTensorType : std::uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIQ3_XXS = 18,
  kIQ4_NL = 20,
  kIQ4_XS = 23,
  kI8 = 24,
  kBF16 = 30,
};

// The types of tensors that models may have, for messages.
inline constexpr std::string_view kGgufModelTypes =
    "F32, F16, BF16, Q8_0, Q6_K, Q5_0, Q5_1, Q5_K, Q4_0, Q4_1, Q4_K, IQ4_NL, IQ4_XS, Q3_K or Q2_K";

// Elements of a row are stored in blocks of `elements`, each of `bytes`.
struct GgufTensorTypeInfo {
  GgufTensorType type;
  std::string_view name;  // as tools write it: "Q4_K"
  std::int64_t elements;
  std::int64_t bytes;
};

// Null for a number that the table does not have.
const GgufTensorTypeInfo* gguf_tensor_type_info(GgufTensorType type);
// "Q4_K". REQUIRES: a type of the table.
std::string_view gguf_tensor_type_name(GgufTensorType type);

}  // namespace sluice
