// Grammar images: a compiled grammar as bytes, for a process that has the model's vocabulary and
// not the grammar's source. An image has the automaton and which of its states are alike; masks are
// made where the image is read, when a sequence first needs them. A grammar that was read has the
// masks of the one that was written.
//
// Reading checks every number, so that no image makes a grammar that reads outside of its tables.
// It does not check that the grammar is one that compile() would make: a state may be dead, and a
// rule may be left recursive, which ends in an overflow (GrammarStacks::kMaxWays).
// Limits: those of GrammarLimits for states and tables. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/result.h"
#include "grammar/token_grammar.h"

namespace sluice {

inline constexpr std::uint32_t kGrammarImageVersion = 1;

std::vector<std::byte> encode_grammar(const TokenGrammar& grammar);

// encode_grammar() is never longer. Takes no time, and is mostly far too large.
std::size_t grammar_image_bound(const TokenGrammar& grammar);

// kInvalidArgument for anything that encode_grammar() would not write.
Result<TokenGrammarPtr> decode_grammar(std::span<const std::byte> image,
                                       GrammarVocabularyPtr vocabulary);

}  // namespace sluice
