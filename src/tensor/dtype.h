// Element types of tensors. Valid C++17 without other project headers: device code includes it.
// Values: plain; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice {

enum class DType : std::uint8_t { kF32, kF16, kBF16, kI32, kI8, kU8, kF8E4M3 };

// The types that ops accept for activations. Eight-bit types are for weights only.
constexpr bool is_float(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32: return 4;
    case DType::kF16:
    case DType::kBF16: return 2;
    case DType::kI8:
    case DType::kU8:
    case DType::kF8E4M3: return 1;
  }
  return 0;
}

// "f32", "bf16", ...: the names on the command line and in messages.
constexpr const char* dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kF32: return "f32";
    case DType::kF16: return "f16";
    case DType::kBF16: return "bf16";
    case DType::kI32: return "i32";
    case DType::kI8: return "i8";
    case DType::kU8: return "u8";
    case DType::kF8E4M3: return "fp8";
  }
  return "?";
}

}  // namespace sluice
