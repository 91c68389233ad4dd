// The id of a token in a model's vocabulary: 0 to vocab_size - 1. Negative values are never ids.
#pragma once

#include <cstdint>

namespace sluice {

using TokenId = std::int32_t;

}  // namespace sluice
