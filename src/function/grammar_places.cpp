#include "function/grammar_places.h"

#include <algorithm>

namespace sluice {

const GrammarPlaces::Entry* GrammarPlaces::find(const TokenGrammarPtr& grammar) const {
  const auto at = std::ranges::find(entries_, grammar, &Entry::grammar);
  return at == entries_.end() ? nullptr : &*at;
}

GrammarPlaces::Place GrammarPlaces::take(const TokenGrammarPtr& grammar) {
  auto at = std::ranges::find(entries_, grammar, &Entry::grammar);
  const bool is_new = at == entries_.end();
  if (is_new) at = std::ranges::min_element(entries_, {}, &Entry::last_use);
  Place place{static_cast<std::int32_t>(at - entries_.begin()), is_new};
  *at = {grammar, ++uses_};
  if (!is_new) return place;
  place.new_vocabulary = of_vocabulary_ == nullptr || &of_vocabulary_->trie() != &grammar->trie();
  of_vocabulary_ = grammar;
  return place;
}

}  // namespace sluice
