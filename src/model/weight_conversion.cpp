#include "model/weight_conversion.h"

#include <cstring>

#include "base/check.h"
#include "tensor/half.h"

namespace sluice {
namespace {

template <DType type>
float load_element(const std::byte* at) {
  if constexpr (type == DType::kF32) {
    float value = 0;
    std::memcpy(&value, at, sizeof(value));
    return value;
  } else {
    std::uint16_t bits = 0;
    std::memcpy(&bits, at, sizeof(bits));
    return type == DType::kBF16 ? bf16_to_float(bits) : f16_to_float(bits);
  }
}

template <DType type>
void store_element(std::byte* at, float value) {
  if constexpr (type == DType::kF32) {
    std::memcpy(at, &value, sizeof(value));
  } else {
    const std::uint16_t bits = type == DType::kBF16 ? float_to_bf16(value) : float_to_f16(value);
    std::memcpy(at, &bits, sizeof(bits));
  }
}

template <DType from, DType to>
void convert(const std::byte* source, std::byte* target, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    store_element<to>(target + i * size_of(to), load_element<from>(source + i * size_of(from)));
  }
}

template <DType from>
void convert_from(const std::byte* source, std::byte* target, DType to, std::size_t count) {
  switch (to) {
    case DType::kF16: return convert<from, DType::kF16>(source, target, count);
    case DType::kBF16: return convert<from, DType::kBF16>(source, target, count);
    default: return convert<from, DType::kF32>(source, target, count);
  }
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
  switch (source_type) {
    case DType::kF16: return convert_from<DType::kF16>(source, target, target_type, count);
    case DType::kBF16: return convert_from<DType::kBF16>(source, target, target_type, count);
    default: return convert_from<DType::kF32>(source, target, target_type, count);
  }
}

}  // namespace sluice
