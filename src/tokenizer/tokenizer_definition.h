// A tokenizer as its files define it. The readers of the files fill it in; make_tokenizer_image()
// completes its image.
// Owner: the loading of one tokenizer. One thread.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/result.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe_model.h"
#include "tokenizer/image_builder.h"
#include "tokenizer/tokenizer_steps.h"

namespace sluice {

struct TokenizerDefinition {
  ImageBuilder image;  // has the tables that `model` reads
  BpeModel model;
  TokenizerSteps steps;
  std::vector<AddedToken> added_tokens;       // ascending ids
  std::vector<std::string> searched_texts{};  // of each added token: normalized if flagged so
};

// The approximate bytes of the image's other sections that these added tokens need.
std::size_t image_room(const std::vector<AddedToken>& added_tokens);

// Errors: texts of added tokens above 4 GiB.
Result<OwnedImage> make_tokenizer_image(TokenizerDefinition definition);

}  // namespace sluice
