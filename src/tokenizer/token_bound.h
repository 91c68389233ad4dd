// Computes a lower bound of the number of tokens: the bytes of a text divided by the most bytes
// that one token can cover. The bound refuses prompts that are far too long before any work. Pure
// function.
#pragma once

#include <cstddef>

#include "tokenizer/tokenizer_definition.h"

namespace sluice {

// The most bytes of input that one token can cover. 0 if there is no limit, because some text
// becomes no token at all (a normalizer that strips, spaces that an added token absorbs, unknown
// characters that are dropped or fused).
std::size_t max_bytes_per_token(const TokenizerDefinition& definition);

}  // namespace sluice
