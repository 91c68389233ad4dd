// Reads the parts of a tokenizer.json around its model: normalizer, pre_tokenizer, decoder and
// post_processor. An unsupported part is refused with its path and name. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "tokenizer/json_fields.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/text_normalizer.h"
#include "tokenizer/token_decoder.h"
#include "tokenizer/tokenizer_steps.h"

namespace sluice {

// `node` is the field's value, not null; `path` its name in errors. Steps are appended.
Status read_normalizer(const json::Element& node, const std::string& path,
                       std::vector<NormalizerStep>& steps);
Status read_pre_tokenizer(const json::Element& node, const std::string& path,
                          std::vector<PreTokenizerStep>& steps);
Result<TokenDecoder> read_decoder(const json::Element& node, const std::string& path);
// Wraps what `specials` has already.
Status read_post_processor(const json::Element& node, const std::string& path,
                           SpecialsTemplate& specials);

}  // namespace sluice
