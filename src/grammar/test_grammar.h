// Helpers for tests of grammars: small vocabularies, and slow reference answers. Pure functions.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/rng.h"
#include "grammar/grammar.h"
#include "grammar/token_grammar.h"

namespace sluice {

// Ids 0 to 255 are the bytes, then come `words`; the last id has no bytes, as a special token.
GrammarVocabularyPtr test_vocabulary(const std::vector<std::string>& words);
// Words that occur in JSON and in prose, also parts of characters, and one word twice.
std::vector<std::string> test_words();

TokenGrammarPtr compile_or_fail(const Result<Grammar>& grammar, GrammarVocabularyPtr vocabulary);

enum class TextFit : std::uint8_t { kNone, kPrefix, kWhole };
// How the text stands to the grammar, read byte by byte.
TextFit fit(const GrammarAutomaton& automaton, std::string_view text);

// The slow reference of GrammarMatcher::fill(): tries every token, byte by byte.
std::vector<std::uint32_t> reference_mask(const TokenGrammar& grammar, std::string_view text);

// Walks at random from the start, checks each mask against the reference, and returns the text.
// Ends where the grammar may end, mostly, or after `steps` tokens.
std::string checked_walk(const TokenGrammarPtr& grammar, std::uint64_t seed, int steps);

}  // namespace sluice
