// Reads a whole tokenizer.json, and the special tokens of a tokenizer_config.json, into the
// definition of a tokenizer. Memory is bounded by a small multiple of the texts' size. Pure
// functions.
#pragma once

#include <string_view>

#include "base/result.h"
#include "tokenizer/tokenizer_definition.h"

namespace sluice {

// Errors name the field: kInvalidArgument (broken), kUnsupported (by name).
Result<TokenizerDefinition> read_tokenizer_json(std::string_view text);

// bos_token, eos_token, add_bos_token, add_eos_token. An explicit add_bos_token or add_eos_token
// overrides the post-processor. All other fields are ignored.
Status apply_tokenizer_config(std::string_view text, TokenizerDefinition& definition);

}  // namespace sluice
