// The older form of byte-level tokenizers: vocab.json and merges.txt beside tokenizer_config.json.
// What these files leave unsaid follows from the config's tokenizer_class: GPT2Tokenizer (also when
// there is none) or Qwen2Tokenizer; others are refused by name. Pure function.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace sluice {

// The text of the tokenizer.json that says the same. `config` may be empty.
// Errors name the file and what is wrong in it.
Result<std::string> legacy_to_tokenizer_json(std::string_view vocab, std::string_view merges,
                                             std::string_view config);

}  // namespace sluice
