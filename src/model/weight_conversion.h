// Conversion between the element types of weights: widening is exact, narrowing rounds to nearest
// even. Pure; any thread. Source and target may be unaligned, because files need not align weights.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace sluice {

// REQUIRES: both types are F32, F16 or BF16; the ranges do not overlap.
void convert_weights(const std::byte* source, DType source_type, std::byte* target,
                     DType target_type, std::size_t count);

}  // namespace sluice
