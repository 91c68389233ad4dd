// GrammarPlaces: which grammar a function process has in which of its places, as its server knows.
// A grammar that it does not have takes the place that was used least recently. Holds the grammars,
// so that a pointer never stands for another one.
// Threads: one owner.
#pragma once

#include <array>
#include <cstdint>

#include "function/frames.h"
#include "grammar/token_grammar.h"

namespace sluice {

class GrammarPlaces {
 public:
  struct Place {
    std::int32_t index = 0;
    bool is_new = false;          // the grammar has to be sent into the place
    bool new_vocabulary = false;  // and its vocabulary before it
  };

  bool contains(const TokenGrammarPtr& grammar) const { return find(grammar) != nullptr; }
  Place take(const TokenGrammarPtr& grammar);
  // The process has ended; the next one has none.
  void clear() { *this = {}; }

 private:
  struct Entry {
    TokenGrammarPtr grammar;
    std::uint64_t last_use = 0;
  };

  const Entry* find(const TokenGrammarPtr& grammar) const;

  std::array<Entry, kGrammarPlaces> entries_;
  TokenGrammarPtr of_vocabulary_;  // its vocabulary was sent last
  std::uint64_t uses_ = 0;
};

}  // namespace sluice
