// Shared by the fuzz targets of grammars: compiles a grammar within small limits, follows a text
// through it token by token, and compares every mask with single tokens. Pure functions.
#pragma once

#include <algorithm>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/result.h"
#include "grammar/grammar.h"
#include "grammar/grammar_matcher.h"
#include "grammar/token_grammar.h"

namespace sluice {

inline TokenTrie fuzz_tokens() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  for (const char* word : {"{\"", "\":", "\",", "\"}", "ab", "aab", "\xC3\xA4", "12", "]}"}) {
    tokens.emplace_back(word);
  }
  return TokenTrie(tokens, static_cast<std::int32_t>(tokens.size()));
}

// `choices`: which of the allowed tokens to take, step by step.
inline void follow_grammar(const Result<Grammar>& grammar, std::span<const std::uint8_t> choices) {
  if (!grammar) {
    CHECK(grammar.error().code == ErrorCode::kInvalidArgument && !grammar.error().message.empty());
    return;
  }
  int checks = 0;  // bounds the work of one input
  const StopCheck stop = [&] {
    return ++checks > 20 ? Status(Error{ErrorCode::kDeadlineExceeded, "enough"}) : Status();
  };
  const auto compiled =
      TokenGrammar::compile(*grammar, std::make_shared<GrammarVocabulary>(fuzz_tokens()), stop);
  if (!compiled) return;
  GrammarMatcher matcher;
  matcher.assign(*compiled);
  std::vector<std::uint32_t> mask((*compiled)->trie().mask_words());
  std::vector<TokenId> taken;
  for (const std::uint8_t choice : choices.first(std::min<std::size_t>(choices.size(), 24))) {
    matcher.fill(mask);
    std::vector<TokenId> allowed;
    for (TokenId id = 0; id < (*compiled)->trie().vocab_size(); ++id) {
      if ((mask[static_cast<std::size_t>(id) / 32] >> (id % 32) & 1U) != 0) allowed.push_back(id);
    }
    // Every byte is a token, so there is always a way on to the end.
    CHECK(!allowed.empty() || matcher.can_end());
    if (allowed.empty()) break;
    // A token that the mask leaves out must not be accepted.
    const auto other = static_cast<TokenId>(choice * 7 % 256);
    GrammarMatcher second;
    second.assign(*compiled);
    for (const TokenId token : taken) CHECK(second.accept(token));
    const bool in_mask = (mask[static_cast<std::size_t>(other) / 32] >> (other % 32) & 1U) != 0;
    CHECK(second.accept(other) == in_mask);
    taken.push_back(allowed[choice % allowed.size()]);
    CHECK(matcher.accept(taken.back()));
  }
}

}  // namespace sluice
