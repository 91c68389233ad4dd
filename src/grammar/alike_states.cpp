#include "grammar/alike_states.h"

#include <algorithm>
#include <map>
#include <span>
#include <tuple>
#include <utility>

namespace sluice {
namespace {

// Table entries that are looked at.
constexpr std::size_t kMaxWork = 30'000'000;

using Signature = std::pair<std::uint64_t, std::uint64_t>;

std::uint64_t mixed(std::uint64_t hash, std::uint64_t value, std::uint64_t factor) {
  hash = (hash ^ (value + 0x9E3779B97F4A7C15ULL)) * factor;
  return hash ^ (hash >> 29);
}

class Refinement {
 public:
  explicit Refinement(const GrammarAutomaton& automaton)
      : automaton_(automaton), class_(automaton.num_states()), alike_(automaton.num_states()) {}

  std::vector<AlikeState> run() {
    begin();
    list_predecessors();
    std::vector<std::int32_t> changed;
    for (round_ = 1;; ++round_) {
      take_candidates(changed);
      if (candidates_.empty() || work_ > kMaxWork) break;
      changed.clear();
      split(changed);
    }
    link_members();
    return std::move(alike_);
  }

 private:
  struct Candidate {
    std::int32_t in_class = 0;
    Signature signature;
    std::int32_t state = 0;
    bool operator<(const Candidate& other) const {
      return std::tie(in_class, signature, state) <
             std::tie(other.in_class, other.signature, other.state);
    }
  };

  static std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

  // Texts without a byte. States that call rules are alike to no other state.
  void begin() {
    std::map<std::pair<std::int32_t, bool>, std::int32_t> known;
    std::size_t rule = 0;
    const auto starts = automaton_.rule_starts();
    for (std::int32_t s = 0; at(s) < class_.size(); ++s) {
      while (rule + 1 < starts.size() && s >= starts[rule + 1]) ++rule;
      const auto fresh = static_cast<std::int32_t>(members_.size());
      std::int32_t mine = fresh;
      if (automaton_.calls(s).empty()) {
        const std::pair key(static_cast<std::int32_t>(rule), automaton_.final(s));
        mine = known.try_emplace(key, fresh).first->second;
      }
      if (mine == fresh) members_.emplace_back();
      members_[at(mine)].push_back(s);
      class_[at(s)] = mine;
    }
    for (const auto& members : members_) sizes_.push_back(members.size());
  }

  // Calls `visit` for each next state, once for classes in a row that lead to the same one.
  template <class Visit>
  void for_each_next(std::int32_t state, Visit visit) const {
    std::int32_t last = GrammarAutomaton::kDead;
    for (int c = 0; c < automaton_.num_classes(); ++c) {
      const std::int32_t next = automaton_.next(state, c);
      if (next != GrammarAutomaton::kDead && next != last) visit(next);
      last = next;
    }
  }

  void list_predecessors() {
    const auto states = static_cast<std::int32_t>(class_.size());
    first_predecessor_.assign(class_.size() + 1, 0);
    for (std::int32_t s = 0; s < states; ++s) {
      for_each_next(s, [&](std::int32_t next) { ++first_predecessor_[at(next) + 1]; });
    }
    for (std::size_t i = 1; i < first_predecessor_.size(); ++i) {
      first_predecessor_[i] += first_predecessor_[i - 1];
    }
    predecessors_.resize(first_predecessor_.back());
    std::vector<std::uint32_t> fill(first_predecessor_.begin(), first_predecessor_.end() - 1);
    for (std::int32_t s = 0; s < states; ++s) {
      for_each_next(s, [&](std::int32_t next) { predecessors_[fill[at(next)]++] = s; });
    }
    seen_in_.assign(class_.size(), 0);
  }

  void take_candidates(const std::vector<std::int32_t>& changed) {
    candidates_.clear();
    const auto add = [&](std::int32_t state) {
      if (sizes_[at(class_[at(state)])] < 2 || seen_in_[at(state)] == round_) return;
      seen_in_[at(state)] = round_;
      candidates_.push_back({class_[at(state)], signature_of(state), state});
    };
    if (round_ == 1) {
      for (std::int32_t s = 0; at(s) < class_.size(); ++s) add(s);
    }
    for (const std::int32_t state : changed) {
      for (std::uint32_t i = first_predecessor_[at(state)]; i < first_predecessor_[at(state) + 1];
           ++i) {
        add(predecessors_[i]);
      }
    }
    std::sort(candidates_.begin(), candidates_.end());
  }

  Signature signature_of(std::int32_t state) {
    Signature signature{1, 2};
    for (int c = 0; c < automaton_.num_classes(); ++c) {
      const std::int32_t next = automaton_.next(state, c);
      const auto value =
          static_cast<std::uint64_t>(next == GrammarAutomaton::kDead ? -1 : class_[at(next)]);
      signature.first = mixed(signature.first, value, 0xFF51AFD7ED558CCDULL);
      signature.second = mixed(signature.second, value, 0xC4CEB9FE1A85EC53ULL);
    }
    work_ += static_cast<std::size_t>(automaton_.num_classes());
    return signature;
  }

  void split(std::vector<std::int32_t>& changed) {
    for (std::size_t begin = 0; begin < candidates_.size();) {
      std::size_t end = begin;
      const std::int32_t old = candidates_[begin].in_class;
      while (end < candidates_.size() && candidates_[end].in_class == old) ++end;
      split_class(std::span(candidates_).subspan(begin, end - begin), old, changed);
      begin = end;
    }
  }

  // The states of the class that are no candidates agree with each other and with no candidate. If
  // there are none, the largest group of equal candidates keeps the class.
  void split_class(std::span<const Candidate> all, std::int32_t old,
                   std::vector<std::int32_t>& changed) {
    std::vector<std::span<const Candidate>> groups;
    for (std::size_t begin = 0; begin < all.size();) {
      std::size_t end = begin;
      while (end < all.size() && all[end].signature == all[begin].signature) ++end;
      groups.push_back(all.subspan(begin, end - begin));
      begin = end;
    }
    if (all.size() == sizes_[at(old)]) {
      groups.erase(std::ranges::max_element(groups, {}, &std::span<const Candidate>::size));
    }
    for (const auto& group : groups) {
      const auto fresh = static_cast<std::int32_t>(members_.size());
      members_.emplace_back();
      sizes_.push_back(group.size());
      sizes_[at(old)] -= group.size();
      for (const Candidate& candidate : group) {
        class_[at(candidate.state)] = fresh;
        members_.back().push_back(candidate.state);
        changed.push_back(candidate.state);
      }
    }
    std::vector<std::int32_t>& rest = members_[at(old)];
    while (class_[at(rest.back())] != old) rest.pop_back();
    if (round_ == 1) return;  // they agree on no byte
    for (const auto& group : groups) {
      for (const Candidate& candidate : group) {
        alike_[at(candidate.state)] = {rest.back(), round_ - 1};
      }
    }
  }

  // The states that are in one class at the end agree on all texts, or on those read so far.
  void link_members() {
    const std::int32_t bytes = candidates_.empty() ? AlikeState::kAllTexts : round_ - 1;
    if (bytes == 0) return;
    std::vector<std::int32_t> first(members_.size(), -1);
    for (std::int32_t s = 0; at(s) < class_.size(); ++s) {
      std::int32_t& one = first[at(class_[at(s)])];
      if (one < 0) {
        one = s;
      } else {
        alike_[at(s)] = {one, bytes};
      }
    }
  }

  const GrammarAutomaton& automaton_;
  std::vector<std::int32_t> class_;                 // by state
  std::vector<std::vector<std::int32_t>> members_;  // by class; some have left it
  std::vector<std::size_t> sizes_;                  // by class
  std::vector<AlikeState> alike_;
  std::vector<std::uint32_t> first_predecessor_;
  std::vector<std::int32_t> predecessors_;
  std::vector<std::int32_t> seen_in_;  // by state: the last round that it was a candidate of
  std::vector<Candidate> candidates_;
  std::int32_t round_ = 0;
  std::size_t work_ = 0;
};

}  // namespace

std::vector<AlikeState> find_alike_states(const GrammarAutomaton& automaton) {
  return Refinement(automaton).run();
}

}  // namespace sluice
