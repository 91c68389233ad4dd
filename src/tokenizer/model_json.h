// Reads the `model` and the `added_tokens` of a tokenizer.json. Pure functions.
#pragma once

#include <vector>

#include "base/result.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe_model.h"
#include "tokenizer/image_builder.h"
#include "tokenizer/json_fields.h"

namespace sluice {

// The added tokens in ascending order of their ids, which are unique.
Result<std::vector<AddedToken>> read_added_tokens(const json::Element& node);

struct ModelInImage {
  ImageBuilder image;  // has the tables that `model` reads, and room for the other sections
  BpeModel model;
};

// `added`: tokens that may use free ids of the model's vocabulary. Ids may have holes: encoding
// never produces an id without a token, and decoding skips it.
Result<ModelInImage> read_model(const json::Element& node, const std::vector<AddedToken>& added);

}  // namespace sluice
