#include "grammar/token_grammar.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/content_hash.h"
#include "grammar/grammar_image.h"

namespace sluice {
namespace {

// Larger rules, with all that they call, are not shared between grammars.
constexpr std::size_t kMaxSharedStates = 600;
// Visits of trie nodes before a grammar is ready: about 40 ms.
constexpr std::size_t kEagerVisits = 10'000'000;
// The cost of a mask that is made from another one, beside its visits, in visits.
constexpr std::size_t kDerivedVisits = 500;
constexpr std::size_t kMaxScratch = 20'000;  // GrammarStacks::size()

// The text of an automaton's rule and of all rules that it calls, without numbers that depend on
// the rest of the grammar.
class RuleText {
 public:
  explicit RuleText(const GrammarAutomaton& automaton) : automaton_(automaton) {
    int last = -1;
    for (int byte = 0; byte < 256; ++byte) {
      const int byte_class = automaton.class_of(static_cast<std::uint8_t>(byte));
      if (byte_class != last) class_begins_.push_back(byte);
      last = byte_class;
    }
  }

  // Nothing if there are too many states.
  std::optional<Hash128> hash(std::size_t rule) {
    numbers_.clear();
    order_ = {rule};
    std::size_t states = 0;
    for (std::size_t i = 0; i < order_.size(); ++i) {
      const auto [first, last] = bounds(order_[i]);
      states += static_cast<std::size_t>(last - first);
      if (states > kMaxSharedStates) return std::nullopt;
      numbers_.push_back(last - first);
      for (std::int32_t state = first; state < last; ++state) append(state, first);
    }
    return content_hash(std::as_bytes(std::span(numbers_)));
  }

  std::pair<std::int32_t, std::int32_t> bounds(std::size_t rule) const {
    const auto starts = automaton_.rule_starts();
    return {starts[rule], rule + 1 < starts.size()
                              ? starts[rule + 1]
                              : static_cast<std::int32_t>(automaton_.num_states())};
  }

 private:
  void append(std::int32_t state, std::int32_t first) {
    numbers_.push_back(automaton_.final(state) ? 1 : 0);
    std::int32_t last = GrammarAutomaton::kDead;
    for (std::size_t c = 0; c < class_begins_.size(); ++c) {
      const std::int32_t next = automaton_.next(state, static_cast<int>(c));
      if (next == last) continue;
      numbers_.push_back(class_begins_[c]);
      numbers_.push_back(next < 0 ? -1 : next - first);
      last = next;
    }
    for (const RuleCall& call : automaton_.calls(state)) {
      const auto starts = automaton_.rule_starts();
      const auto callee =
          static_cast<std::size_t>(std::ranges::lower_bound(starts, call.callee) - starts.begin());
      auto at = std::ranges::find(order_, callee);
      if (at == order_.end()) at = order_.insert(order_.end(), callee);
      numbers_.push_back(-2 - static_cast<std::int32_t>(at - order_.begin()));
      numbers_.push_back(call.resume < 0 ? -1 : call.resume - first);
    }
    numbers_.push_back(-1);
  }

  const GrammarAutomaton& automaton_;
  std::vector<std::int32_t> class_begins_;
  std::vector<std::size_t> order_;  // rules
  std::vector<std::int32_t> numbers_;
};

}  // namespace

TokenGrammar::TokenGrammar(GrammarAutomaton automaton, GrammarVocabularyPtr vocabulary)
    : automaton_(std::move(automaton)),
      vocabulary_(std::move(vocabulary)),
      late_stacks_(automaton_) {}

Result<TokenGrammarPtr> TokenGrammar::compile(const Grammar& grammar,
                                              GrammarVocabularyPtr vocabulary,
                                              const StopCheck& stop) {
  ASSIGN_OR_RETURN(GrammarAutomaton automaton, GrammarAutomaton::compile(grammar, stop));
  // Shared from here on: sequences and caches hold it.
  std::shared_ptr<TokenGrammar> made(new TokenGrammar(std::move(automaton), std::move(vocabulary)));
  made->share_rules();
  RETURN_IF_ERROR(made->make_masks(stop));
  return TokenGrammarPtr(std::move(made));
}

TokenGrammarPtr TokenGrammar::restore(GrammarAutomaton automaton, std::vector<AlikeState> alike,
                                      GrammarVocabularyPtr vocabulary) {
  // Shared, as a compiled one is.
  std::shared_ptr<TokenGrammar> made(new TokenGrammar(std::move(automaton), std::move(vocabulary)));
  made->share_rules();
  made->alike_ = std::move(alike);
  return made;
}

const std::vector<std::byte>& TokenGrammar::image() const {
  std::call_once(image_once_, [this] { image_ = encode_grammar(*this); });
  return image_;
}

void TokenGrammar::share_rules() {
  RuleText text(automaton_);
  places_.resize(automaton_.num_states());
  for (std::size_t rule = 0; rule < automaton_.rule_starts().size(); ++rule) {
    const auto [first, last] = text.bounds(rule);
    const auto states = static_cast<std::size_t>(last - first);
    const auto hash = text.hash(rule);
    rules_.push_back(hash ? vocabulary_->rules.get(*hash, states)
                          // Shared: see RuleMasksPtr.
                          : std::make_shared<RuleMasks>(states));
    for (std::size_t i = 0; i < states; ++i) {
      places_[static_cast<std::size_t>(first) + i] = {static_cast<std::uint32_t>(rule),
                                                      static_cast<std::uint32_t>(i)};
    }
  }
}

// A state's mask comes behind that of the state that it is alike to.
Status TokenGrammar::make_masks(const StopCheck& stop) {
  alike_ = find_alike_states(automaton_);
  StopMeter meter(&stop);
  GrammarStacks stacks(automaton_);
  StateMask spare;
  std::size_t visits = 0;
  std::vector<std::int32_t> chain;
  for (std::int32_t first = 0; static_cast<std::size_t>(first) < places_.size(); ++first) {
    chain.clear();
    for (std::int32_t state = first; state >= 0;) {
      const auto at = static_cast<std::size_t>(state);
      if (rule_of(state).find(places_[at].state) != nullptr) break;
      if (!automaton_.reads_bytes(state)) break;
      chain.push_back(state);
      state = alike_[at].state;
    }
    for (; !chain.empty(); chain.pop_back()) {
      const std::size_t before = visits;
      make_mask(chain.back(), stacks, visits, spare);
      RETURN_IF_ERROR(meter.spend((visits - before) / 16 + 1));
      if (stacks.size() > kMaxScratch) stacks.clear();
      if (visits > kEagerVisits || mask_bytes_ > kMaxMaskBytes) return {};
    }
  }
  return {};
}

const StateMask& TokenGrammar::make_mask(std::int32_t state, GrammarStacks& stacks,
                                         std::size_t& visits, StateMask& spare) const {
  const TokenTrie& trie = vocabulary_->trie;
  const AlikeState alike = alike_[static_cast<std::size_t>(state)];
  const std::uint32_t place = places_[static_cast<std::size_t>(state)].state;
  RuleMasks& rule = rule_of(state);
  const StateMask* other = nullptr;
  if (alike.state >= 0 && alike.bytes > 0) {
    other = rule.find(places_[static_cast<std::size_t>(alike.state)].state);
  }
  visits += kDerivedVisits;
  if (other != nullptr && static_cast<std::size_t>(alike.bytes) >= trie.max_depth()) {
    return *rule.share(place, other);
  }
  const std::int32_t known = std::min(alike.bytes, TokenTrie::kMaxShortBytes);
  StateMask made = other != nullptr ? make_state_mask(trie, stacks, state, *other, known, visits)
                                    : make_state_mask(trie, stacks, state, visits);
  if (mask_bytes_ > kMaxMaskBytes) return spare = std::move(made);
  mask_bytes_ += made.bytes();
  return *rule.publish(place, std::move(made));
}

const StateMask& TokenGrammar::mask(std::int32_t state, StateMask& spare) const {
  const Place place = places_[static_cast<std::size_t>(state)];
  RuleMasks& rule = *rules_[place.rule];
  if (const StateMask* known = rule.find(place.state)) [[likely]]
    return *known;
  const std::lock_guard lock(late_mutex_);
  if (const StateMask* known = rule.find(place.state)) return *known;
  if (late_stacks_.size() > kMaxScratch) late_stacks_.clear();
  std::size_t visits = 0;
  late_masks_.fetch_add(1, std::memory_order_relaxed);
  return make_mask(state, late_stacks_, visits, spare);
}

}  // namespace sluice
