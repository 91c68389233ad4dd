// All parts of a tokenizer. The loader makes them; class Tokenizer owns them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/token_id.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe_model.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/text_normalizer.h"
#include "tokenizer/token_decoder.h"

namespace sluice {

// Put around the tokens of a text when special tokens are wanted.
struct SpecialsTemplate {
  std::vector<TokenId> prefix;
  std::vector<TokenId> suffix;
};

struct TokenizerParts {
  BpeModel model;
  TextNormalizer normalizer;
  bool has_pre_tokenizer = false;
  PreTokenizer pre_tokenizer;
  TokenDecoder decoder;
  SpecialsTemplate specials;
  std::vector<AddedToken> added_tokens;         // ascending ids
  std::vector<std::string> normalized_texts{};  // of each added token, for the decoder
  AddedTokenMatcher raw_matcher{};              // searched in the original text
  AddedTokenMatcher normalized_matcher{};       // searched in normalized text
  std::size_t vocab_size = 0;                   // one more than the largest id
  std::size_t max_bytes_per_token = 0;          // token_bound.h
  std::optional<TokenId> bos{};
  std::optional<TokenId> eos{};
};

}  // namespace sluice
