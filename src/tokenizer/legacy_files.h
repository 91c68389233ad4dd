// The older form of byte-level tokenizers: vocab.json and merges.txt, without a tokenizer.json. The
// optional files beside them name special tokens and further ones. The config's tokenizer_class
// determines everything else: GPT2Tokenizer (the default) or Qwen2Tokenizer; other classes are
// refused by name. Pure function.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace sluice {

// The texts of the files. The members after `merges` are empty if there is no such file.
struct LegacyFiles {
  std::string_view vocab;
  std::string_view merges;
  std::string_view config = {};              // tokenizer_config.json
  std::string_view special_tokens_map = {};  // special_tokens_map.json
  std::string_view added_tokens = {};        // added_tokens.json
};

struct ConvertedTokenizer {
  std::string tokenizer_json;
  std::string tokenizer_config_json;  // the special tokens, the class's own defaults included
};

// The texts of an equivalent tokenizer.json and tokenizer_config.json. Errors name the file and the
// problem.
Result<ConvertedTokenizer> convert_legacy_files(const LegacyFiles& files);

}  // namespace sluice
