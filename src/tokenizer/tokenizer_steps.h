// TokenizerSteps: the parts of a tokenizer around its model and its added tokens: the steps of
// normalizer, pre-tokenizer and decoder, and a few numbers. Immutable once it is made; any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "base/token_id.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/text_normalizer.h"
#include "tokenizer/token_decoder.h"

namespace sluice {

// The special tokens that encode() puts around the tokens of a text on request.
struct SpecialsTemplate {
  std::vector<TokenId> prefix;
  std::vector<TokenId> suffix;
};

struct TokenizerSteps {
  TextNormalizer normalizer{};
  bool has_pre_tokenizer = false;
  PreTokenizer pre_tokenizer{};
  TokenDecoder decoder{};
  SpecialsTemplate specials{};
  std::size_t max_bytes_per_token = 0;  // token_bound.h
  std::optional<TokenId> bos{};
  std::optional<TokenId> eos{};
};

}  // namespace sluice
