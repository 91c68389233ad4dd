// The steps around the model as the bytes of an image's section. Regular expressions are stored as
// their patterns.
// Pure functions.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/result.h"
#include "tokenizer/tokenizer_steps.h"

namespace sluice {

std::vector<std::byte> write_steps_section(const TokenizerSteps& steps);

// Errors: bytes that write_steps_section() cannot have written, ids that are not below `ids`.
// REQUIRES: `ids` is at most Vocabulary::kMaxTokens.
Result<TokenizerSteps> read_steps_section(std::span<const std::byte> bytes, std::size_t ids);

}  // namespace sluice
