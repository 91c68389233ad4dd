// TokenizerParts: all parts of a running tokenizer. They read an image or were made from one of its
// sections.
#pragma once

#include <cstddef>
#include <span>

#include "base/result.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe_model.h"
#include "tokenizer/tokenizer_steps.h"

namespace sluice {

struct TokenizerParts {
  BpeModel model;
  AddedTokens added_tokens;
  AddedTokenMatcher raw_matcher;         // searched in the original text
  AddedTokenMatcher normalized_matcher;  // searched in normalized text
  TokenizerSteps steps;
  std::size_t vocab_size = 0;  // one more than the largest id
};

// The parts of the tokenizer in `image`. Cost: reads the texts of the tokens once and no other
// table. Damaged bytes never cause a read outside of them or an endless search. Errors: those of
// ImageView::open(), kInvalidArgument (damaged). REQUIRES: `image` starts at a multiple of
// kImageAlignment, outlives the parts and does not change.
Result<TokenizerParts> open_tokenizer_image(std::span<const std::byte> image);

}  // namespace sluice
