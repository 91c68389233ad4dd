// The basis of a lower bound of the number of tokens: the bytes of a text divided by the most bytes
// that one token can stand for. Prompts that are far too long are refused by it before any work.
// Pure function.
#pragma once

#include <cstddef>

#include "tokenizer/tokenizer_definition.h"

namespace sluice {

// The most bytes of input that one token stands for; 0 when there is no such limit, because some
// text becomes no token at all (a normalizer that strips, spaces that an added token absorbs,
// unknown characters that are dropped or fused).
std::size_t max_bytes_per_token(const TokenizerDefinition& definition);

}  // namespace sluice
