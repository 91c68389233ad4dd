// The fields of every op's parameters, flattened to simple values. Lists of ops are compared,
// hashed, printed and moved field by field, so padding never counts and no pointer is missed.
// op_tables.h has the tables that name the fields.
// Values: made once, then constant; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "device/op_types.h"

namespace sluice {

// kPointer is an address on the device. kExtent is a count, a size or a stride: pointers and
// extents together say which memory the op touches. kScalar is any other value. kPart is a struct
// with fields of its own and appears in op_tables.h only.
enum class FieldKind : std::uint8_t { kPart, kPointer, kExtent, kScalar };
enum class FieldType : std::uint8_t { kAddress, kInt32, kInt64, kFloat, kEnum };

// One value in an op's parameters, of a simple type: "segments[1].weight.data".
struct OpField {
  std::string name;
  FieldKind kind = FieldKind::kScalar;
  FieldType type = FieldType::kEnum;
  std::size_t offset = 0;
  std::size_t bytes = 0;
};

// In the order of their offsets; empty for an unknown id.
std::span<const OpField> op_fields(OpId op);

// The offsets of the tensor views in an op's parameters; empty for an unknown id.
std::span<const std::size_t> op_tensors(OpId op);

}  // namespace sluice
