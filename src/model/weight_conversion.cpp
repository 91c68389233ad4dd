#include "model/weight_conversion.h"

#include <cstring>

#include "base/check.h"
#include "tensor/half.h"

namespace sluice {
namespace {

float load_element(const std::byte* at, DType type) {
  if (type == DType::kF32) {
    float value = 0;
    std::memcpy(&value, at, sizeof(value));
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof(bits));
  return type == DType::kBF16 ? bf16_to_float(bits) : f16_to_float(bits);
}

void store_element(std::byte* at, DType type, float value) {
  if (type == DType::kF32) {
    std::memcpy(at, &value, sizeof(value));
    return;
  }
  const std::uint16_t bits = type == DType::kBF16 ? float_to_bf16(value) : float_to_f16(value);
  std::memcpy(at, &bits, sizeof(bits));
}

bool is_weight_type(DType type) {
  return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16;
}

}  // namespace

void convert_weights(const std::byte* source, DType source_type, std::byte* target,
                     DType target_type, std::size_t count) {
  CHECK(is_weight_type(source_type) && is_weight_type(target_type));
  if (source_type == target_type) {
    std::memcpy(target, source, count * size_of(source_type));
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    store_element(target + i * size_of(target_type), target_type,
                  load_element(source + i * size_of(source_type), source_type));
  }
}

}  // namespace sluice
