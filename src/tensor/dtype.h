// Element types of tensors. Valid C++17 without other project headers: device code includes it.
// Values: plain; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice {

enum class DType : std::uint8_t {
  kF32,
  kF16,
  kBF16,
  kI32,
  kI8,
  kU8,
  kF8E4M3,
  kI4,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ2K,
  kQ3K,
  kQ4K,
  kQ5K,
  kQ6K,
  kIq4Nl,
  kIq4Xs,
  kU4G32,
  kU4G128,
  kU8G128
};

// The types whose elements are stored in blocks (block_of).
inline constexpr DType kBlockDTypes[] = {
    DType::kI4,    DType::kQ4_1,  DType::kQ5_0,  DType::kQ5_1,   DType::kQ8_0,
    DType::kQ2K,   DType::kQ3K,   DType::kQ4K,   DType::kQ5K,    DType::kQ6K,
    DType::kIq4Nl, DType::kIq4Xs, DType::kU4G32, DType::kU4G128, DType::kU8G128};

// The types that ops accept for activations. Other types are for weights only.
constexpr bool is_float(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

// 0 for types whose elements are stored in blocks (block_of).
constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32: return 4;
    case DType::kF16:
    case DType::kBF16: return 2;
    case DType::kI8:
    case DType::kU8:
    case DType::kF8E4M3: return 1;
    default: return 0;
  }
}

// How elements of a type are stored together. A row of a matrix has whole blocks, and the last one
// may end with padding; so the stride between rows, in elements, is a multiple of a block.
//
// A block of kI4 is that of GGUF's Q4_0: an F16 scale, then 16 bytes of codes. The low halves of
// the bytes are the codes of elements 0 to 15, the high halves those of 16 to 31. An element is
// scale * (code - 8). Products take the code and the scale (MatmulParams) or, as an embedding does,
// the element rounded to BF16, to nearest even.
//
// The next eleven are GGUF's types of the same names. Products round their elements in the same
// way.
//   kQ4_1:  an F16 scale, an F16 number that is added, 16 bytes of codes in the order of kI4.
//           Element: scale * code + number.
//   kQ5_0:  an F16 scale, 32 bits, one for each element, 16 bytes as in kI4. The bit is the fifth
//           of the code. Element: scale * (code - 16).
//   kQ5_1:  as kQ4_1, with 32 bits before the bytes as in kQ5_0.
//   kQ8_0:  an F16 scale, 32 codes of 8 bits. Element: scale * code.
//   kQ2K:   16 bytes, each with a scale (low half) and a minimum of 16 elements, 64 bytes with the
//           codes of two bits, two F16 factors. Element: factor * scale * code - factor * minimum.
//   kQ3K:   32 bytes of the codes' third bits, 64 bytes of their low two bits, 12 bytes of 6-bit
//           scales of 16 elements each, an F16 factor. Element: factor * (scale - 32) * (code - 4).
//   kQ4K:   two F16 factors, 12 bytes of 6-bit scales and minima of the 8 groups of 32 elements,
//           128 bytes of codes. Element: factor * scale * code - factor * minimum.
//   kQ5K:   as kQ4K, with 32 bytes of the codes' fifth bits before the other codes.
//   kQ6K:   128 bytes of the codes' low halves, 64 of their upper two bits, 16 scales of 8 bits, an
//           F16 factor. Element: factor * scale * (code - 32).
//   kIq4Nl: an F16 scale, 16 bytes of codes in the order of kI4, which name one of 16 fixed values.
//           Element: scale * value.
//   kIq4Xs: an F16 factor, 6 bytes of 6-bit scales of 8 groups, each group as in kIq4Nl. Element:
//           factor * (scale - 32) * value.
//
// kU4G32, kU4G128 and kU8G128 hold groups of 32 and 128 codes with a zero point, as other tools
// quantize (GPTQ, AWQ, compressed-tensors). An element is scale * (code - zero), with a zero point
// that is a code, too.
//   kU4G32:  an F16 scale, a byte with the zero point, 16 bytes of codes in the order of kI4.
//   kU4G128: an F32 scale, a byte with the zero point, 32 words of 16 bits (little-endian). Word j
//            holds the codes of elements j, 32 + j, 64 + j and 96 + j, from its low bits to its
//            high bits.
//   kU8G128: an F32 scale, a byte with the zero point, 128 bytes of codes without a sign.
struct ElementBlock {
  std::int64_t elements = 1;
  std::int64_t bytes = 1;
};
constexpr ElementBlock block_of(DType dtype) {
  switch (dtype) {
    case DType::kI4: return {32, 18};
    case DType::kQ4_1: return {32, 20};
    case DType::kQ5_0: return {32, 22};
    case DType::kQ5_1: return {32, 24};
    case DType::kQ8_0: return {32, 34};
    case DType::kQ2K: return {256, 84};
    case DType::kQ3K: return {256, 110};
    case DType::kQ4K: return {256, 144};
    case DType::kQ5K: return {256, 176};
    case DType::kQ6K: return {256, 210};
    case DType::kIq4Nl: return {32, 18};
    case DType::kIq4Xs: return {256, 136};
    case DType::kU4G32: return {32, 19};
    case DType::kU4G128: return {128, 69};
    case DType::kU8G128: return {128, 133};
    default: return {1, static_cast<std::int64_t>(size_of(dtype))};
  }
}
constexpr bool is_blocks(DType dtype) { return block_of(dtype).elements > 1; }
// Whether elements of blocks are their scaled codes minus a minimum (block_line() in
// gguf_blocks.h).
constexpr bool has_minimum(DType dtype) {
  return dtype == DType::kQ4_1 || dtype == DType::kQ5_1 || dtype == DType::kQ2K ||
         dtype == DType::kQ4K || dtype == DType::kQ5K;
}
// Bytes of `count` elements in one row.
constexpr std::int64_t bytes_of(DType dtype, std::int64_t count) {
  const ElementBlock block = block_of(dtype);
  return (count + block.elements - 1) / block.elements * block.bytes;
}

// Weights of these types are codes; scales beside them give the codes' values.
constexpr bool has_scales(DType dtype) { return dtype == DType::kF8E4M3 || dtype == DType::kI8; }

// "f32", "bf16", ...: the names on the command line and in messages.
constexpr const char* dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kF32: return "f32";
    case DType::kF16: return "f16";
    case DType::kBF16: return "bf16";
    case DType::kI32: return "i32";
    case DType::kI8: return "int8";
    case DType::kU8: return "u8";
    case DType::kF8E4M3: return "fp8";
    case DType::kI4: return "int4";
    case DType::kQ4_1: return "q4_1";
    case DType::kQ5_0: return "q5_0";
    case DType::kQ5_1: return "q5_1";
    case DType::kQ8_0: return "q8_0";
    case DType::kQ2K: return "q2_k";
    case DType::kQ3K: return "q3_k";
    case DType::kQ4K: return "q4_k";
    case DType::kQ5K: return "q5_k";
    case DType::kQ6K: return "q6_k";
    case DType::kIq4Nl: return "iq4_nl";
    case DType::kIq4Xs: return "iq4_xs";
    case DType::kU4G32: return "u4g32";
    case DType::kU4G128: return "u4g128";
    case DType::kU8G128: return "u8g128";
  }
  return "?";
}

}  // namespace sluice
