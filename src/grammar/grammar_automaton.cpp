#include "grammar/grammar_automaton.h"

#include <fmt/format.h>

#include <algorithm>
#include <bitset>
#include <map>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "grammar/nfa.h"

namespace sluice {
namespace {

// Work that is repeated is cheaper than that of GrammarLimits::work.
constexpr std::size_t kRepeatedWork = 10;

using StateSet = std::vector<std::int32_t>;  // of an Nfa, sorted

struct StateSetHash {
  std::size_t operator()(const StateSet& set) const {
    std::size_t hash = set.size();
    for (const std::int32_t state : set) {
      hash = (hash ^ static_cast<std::size_t>(state)) * 0x9E3779B97F4A7C15ULL;
      hash ^= hash >> 29;
    }
    return hash;
  }
};

// The states that empty edges reach.
class Closure {
 public:
  explicit Closure(const Nfa& nfa) : nfa_(nfa), seen_(nfa.states.size(), 0) {}

  void apply(StateSet& set) {
    ++round_;
    for (const std::int32_t state : set) seen_[static_cast<std::size_t>(state)] = round_;
    for (std::size_t i = 0; i < set.size(); ++i) {
      for (const NfaEdge& edge : nfa_.states[static_cast<std::size_t>(set[i])]) {
        if (edge.kind != NfaEdge::Kind::kEmpty) continue;
        std::uint32_t& seen = seen_[static_cast<std::size_t>(edge.to)];
        if (seen == round_) continue;
        seen = round_;
        set.push_back(edge.to);
      }
    }
    std::ranges::sort(set);
  }

 private:
  const Nfa& nfa_;
  std::vector<std::uint32_t> seen_;
  std::uint32_t round_ = 0;
};

}  // namespace

class AutomatonBuilder {
 public:
  AutomatonBuilder(const Grammar& grammar, const StopCheck& stop, const GrammarLimits& limits)
      : grammar_(grammar), limits_(limits), stop_(&stop) {}

  Result<GrammarAutomaton> build() {
    RETURN_IF_ERROR(make_nfas());
    make_classes();
    for (std::size_t rule = 0; rule < nfas_.size(); ++rule) {
      RETURN_IF_ERROR(determinize(nfas_[rule]));
    }
    finish_calls();
    RETURN_IF_ERROR(drop_dead_states());
    mark_tail_calls();
    RETURN_IF_ERROR(refuse_left_recursion());
    return std::move(out_);
  }

 private:
  // A call whose callee is still a rule.
  struct OpenCall {
    std::int32_t from = 0;
    RuleId rule = -1;
    std::int32_t resume = 0;
  };

  Error too_large(std::string_view what) const {
    return invalid_argument(fmt::format(
        "is too large: its automaton has more than {}; use shorter texts, smaller counts and fewer "
        "alternatives",
        what));
  }

  Status make_nfas() {
    std::size_t left = limits_.nfa_states;
    for (std::size_t rule = 0; rule < grammar_.rules().size(); ++rule) {
      if (grammar_.rules()[rule].body < 0) {
        return invalid_argument(
            fmt::format("uses the rule {}, which is not defined", grammar_.rules()[rule].name));
      }
      ASSIGN_OR_RETURN(Nfa nfa, make_nfa(grammar_, static_cast<RuleId>(rule), left));
      left -= nfa.states.size();
      RETURN_IF_ERROR(meter_.spend(nfa.states.size()));
      nfas_.push_back(std::move(nfa));
    }
    return {};
  }

  // Bytes that no edge tells apart are one class.
  void make_classes() {
    std::bitset<257> begins;
    begins.set(0);
    for (const Nfa& nfa : nfas_) {
      for (const auto& edges : nfa.states) {
        for (const NfaEdge& edge : edges) {
          if (edge.kind != NfaEdge::Kind::kBytes) continue;
          begins.set(edge.bytes.first);
          begins.set(std::size_t{edge.bytes.last} + 1);
        }
      }
    }
    int current = -1;
    for (std::size_t byte = 0; byte < 256; ++byte) {
      if (begins.test(byte)) ++current;
      out_.class_of_[byte] = static_cast<std::uint8_t>(current);
    }
    out_.num_classes_ = current + 1;
  }

  // The state of a set in the rule that is being made deterministic.
  std::int32_t intern(StateSet set) {
    const auto next = static_cast<std::int32_t>(out_.final_.size());
    const auto [at, added] = ids_.try_emplace(std::move(set), next);
    if (!added) return at->second;
    out_.final_.push_back(0);
    out_.next_.resize(out_.next_.size() + static_cast<std::size_t>(out_.num_classes_),
                      GrammarAutomaton::kDead);
    queue_.push_back(&at->first);
    return next;
  }

  Status determinize(const Nfa& nfa) {
    ids_.clear();
    queue_.clear();
    Closure closure(nfa);
    const auto first = static_cast<std::int32_t>(out_.final_.size());
    out_.rule_starts_.push_back(first);
    StateSet start = {nfa.start};
    closure.apply(start);
    intern(std::move(start));
    for (std::size_t i = 0; i < queue_.size(); ++i) {
      RETURN_IF_ERROR(expand(nfa, *queue_[i], first + static_cast<std::int32_t>(i), closure));
    }
    return {};
  }

  Status expand(const Nfa& nfa, const StateSet& set, std::int32_t from, Closure& closure) {
    std::vector<StateSet> by_class(static_cast<std::size_t>(out_.num_classes_));
    std::map<RuleId, StateSet> by_rule;
    std::size_t work = set.size();
    for (const std::int32_t state : set) {
      if (state == nfa.end) out_.final_[static_cast<std::size_t>(from)] = 1;
      for (const NfaEdge& edge : nfa.states[static_cast<std::size_t>(state)]) {
        if (edge.kind == NfaEdge::Kind::kCall) by_rule[edge.rule].push_back(edge.to);
        if (edge.kind != NfaEdge::Kind::kBytes) continue;
        const std::size_t last = out_.class_of_[edge.bytes.last];
        for (std::size_t c = out_.class_of_[edge.bytes.first]; c <= last; ++c, ++work) {
          by_class[c].push_back(edge.to);
        }
      }
    }
    // Neighboring classes mostly have the same targets, whose closure is then made once.
    StateSet last_targets;
    std::int32_t last_state = GrammarAutomaton::kDead;
    for (std::size_t c = 0; c < by_class.size(); ++c) {
      if (by_class[c].empty()) continue;
      if (by_class[c] != last_targets) {
        last_targets = by_class[c];
        last_state = target(std::move(by_class[c]), closure, work);
      }
      out_.next_[static_cast<std::size_t>(from) * by_class.size() + c] = last_state;
    }
    for (auto& [rule, targets] : by_rule) {
      calls_.push_back({from, rule, target(std::move(targets), closure, work)});
    }
    work_ += work;
    RETURN_IF_ERROR(meter_.spend(work));
    if (work_ > limits_.work) return too_large("can be built in bounded time");
    if (out_.final_.size() > limits_.states) {
      return too_large(fmt::format("{} states", limits_.states));
    }
    if (out_.next_.size() * sizeof(std::int32_t) > limits_.table_bytes) {
      return too_large(fmt::format("{} MiB", limits_.table_bytes >> 20));
    }
    return {};
  }

  std::int32_t target(StateSet targets, Closure& closure, std::size_t& work) {
    std::ranges::sort(targets);
    const auto same = std::ranges::unique(targets);
    targets.erase(same.begin(), same.end());
    closure.apply(targets);
    work += targets.size();
    return intern(std::move(targets));
  }

  // Calls were found in the order of their states.
  void finish_calls() {
    const std::size_t states = out_.final_.size();
    out_.first_call_.assign(states + 1, 0);
    for (const OpenCall& call : calls_) {
      ++out_.first_call_[static_cast<std::size_t>(call.from) + 1];
      out_.calls_.push_back({out_.rule_starts_[static_cast<std::size_t>(call.rule)], call.resume});
    }
    for (std::size_t i = 0; i < states; ++i) out_.first_call_[i + 1] += out_.first_call_[i];
    out_.start_ = out_.rule_starts_[static_cast<std::size_t>(grammar_.start())];
  }

  bool is_live(std::int32_t state) const { return live_[static_cast<std::size_t>(state)] != 0; }

  // Whether a way out of the state is known: to the end of its rule.
  bool finds_end(std::int32_t state) const {
    if (out_.final(state)) return true;
    for (int c = 0; c < out_.num_classes_; ++c) {
      const std::int32_t next = out_.next(state, c);
      if (next >= 0 && is_live(next)) return true;
    }
    return std::ranges::any_of(out_.calls(state), [&](const RuleCall& call) {
      return is_live(call.callee) && is_live(call.resume);
    });
  }

  // Counts work that is repeated until nothing changes.
  Status repeat_work(std::size_t units) {
    work_ += units;
    if (work_ > kRepeatedWork * limits_.work) return too_large("can be checked in bounded time");
    return meter_.spend(units);
  }

  // States that never reach the end of their rule lose their edges. Passes go backward and forward
  // in turn, because edges and calls mostly lead to later states or mostly to earlier ones.
  Status drop_dead_states() {
    live_.assign(out_.final_.size(), 0);
    bool backward = false;
    for (bool changed = true; changed;) {
      changed = false;
      backward = !backward;
      RETURN_IF_ERROR(repeat_work(live_.size()));
      const auto states = static_cast<std::int32_t>(live_.size());
      for (std::int32_t i = 0; i < states; ++i) {
        const std::int32_t state = backward ? states - 1 - i : i;
        if (is_live(state) || !finds_end(state)) continue;
        live_[static_cast<std::size_t>(state)] = 1;
        changed = true;
      }
    }
    for (std::int32_t& next : out_.next_) {
      if (next >= 0 && !is_live(next)) next = GrammarAutomaton::kDead;
    }
    std::vector<RuleCall> kept;
    for (std::size_t state = 0, i = 0; state < live_.size(); ++state) {
      for (; i < out_.first_call_[state + 1]; ++i) {
        const RuleCall& call = out_.calls_[i];
        if (is_live(call.callee) && is_live(call.resume)) kept.push_back(call);
      }
      first_kept_.push_back(static_cast<std::uint32_t>(kept.size()));
    }
    out_.calls_ = std::move(kept);
    std::ranges::copy(first_kept_, out_.first_call_.begin() + 1);
    if (!is_live(out_.start_)) return invalid_argument("matches no text at all");
    out_.reads_bytes_.assign(live_.size(), 0);
    for (std::size_t i = 0; i < out_.next_.size(); ++i) {
      if (out_.next_[i] >= 0)
        out_.reads_bytes_[i / static_cast<std::size_t>(out_.num_classes_)] = 1;
    }
    return {};
  }

  // A call at the end of a rule needs no frame, so that right recursion does not grow the stack.
  void mark_tail_calls() {
    for (RuleCall& call : out_.calls_) {
      if (out_.final(call.resume) && !out_.reads_bytes(call.resume) &&
          out_.calls(call.resume).empty()) {
        call.resume = -1;
      }
    }
  }

  // Whether a rule matches the empty text, for all rules: found by repetition until nothing
  // changes. `reached` has the states that are reached without a byte.
  Status find_nullable(std::vector<StateSet>& reached) {
    const std::size_t rules = out_.rule_starts_.size();
    reached.resize(rules);
    nullable_.assign(rules, 0);
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t rule = 0; rule < rules; ++rule) {
        RETURN_IF_ERROR(repeat_work(1 + reached[rule].size() * reached[rule].size()));
        reached[rule] = {out_.rule_starts_[rule]};
        bool ends = false;
        for (std::size_t i = 0; i < reached[rule].size(); ++i) {
          const std::int32_t state = reached[rule][i];
          ends = ends || out_.final(state);
          for (const RuleCall& call : out_.calls(state)) {
            if (nullable_[rule_of(call.callee)] == 0) continue;
            ends = ends || call.resume < 0;
            if (call.resume < 0 || std::ranges::count(reached[rule], call.resume) > 0) continue;
            reached[rule].push_back(call.resume);
          }
        }
        if (!ends || nullable_[rule] != 0) continue;
        nullable_[rule] = 1;
        changed = true;
      }
    }
    return {};
  }

  std::size_t rule_of(std::int32_t start) const {
    const auto at = std::ranges::lower_bound(out_.rule_starts_, start);
    CHECK(at != out_.rule_starts_.end() && *at == start);
    return static_cast<std::size_t>(at - out_.rule_starts_.begin());
  }

  Status refuse_left_recursion() {
    std::vector<StateSet> reached;
    RETURN_IF_ERROR(find_nullable(reached));
    const std::size_t rules = reached.size();
    std::vector<std::vector<std::size_t>> first_calls(rules);
    for (std::size_t rule = 0; rule < rules; ++rule) {
      for (const std::int32_t state : reached[rule]) {
        for (const RuleCall& call : out_.calls(state)) {
          first_calls[rule].push_back(rule_of(call.callee));
        }
      }
    }
    // Removes rules that call no remaining rule first; what is left has a cycle.
    std::vector<std::vector<std::size_t>> callers(rules);
    std::vector<std::size_t> open(rules);
    std::vector<std::size_t> done;
    for (std::size_t rule = 0; rule < rules; ++rule) {
      open[rule] = first_calls[rule].size();
      for (const std::size_t callee : first_calls[rule]) callers[callee].push_back(rule);
      if (open[rule] == 0) done.push_back(rule);
    }
    for (std::size_t i = 0; i < done.size(); ++i) {
      for (const std::size_t caller : callers[done[i]]) {
        if (--open[caller] == 0) done.push_back(caller);
      }
    }
    if (done.size() == rules) return {};
    // A rule on a cycle: follow calls between remaining rules until one comes twice.
    std::size_t rule = 0;
    while (open[rule] == 0) ++rule;
    for (std::size_t i = 0; i < rules; ++i) {
      rule = *std::ranges::find_if(first_calls[rule], [&](std::size_t r) { return open[r] > 0; });
    }
    return invalid_argument(
        fmt::format("is left recursive: the rule {} calls itself before it reads a character; "
                    "write the repetition with * or with the call at the end",
                    grammar_.rules()[rule].name));
  }

  const Grammar& grammar_;
  const GrammarLimits& limits_;
  const StopCheck* stop_;
  StopMeter meter_{stop_};
  std::vector<Nfa> nfas_;
  GrammarAutomaton out_;
  std::unordered_map<StateSet, std::int32_t, StateSetHash> ids_;
  std::vector<const StateSet*> queue_;
  std::vector<OpenCall> calls_;
  std::vector<std::uint8_t> live_;
  std::vector<std::uint32_t> first_kept_;
  std::vector<std::uint8_t> nullable_;
  std::size_t work_ = 0;
};

Result<GrammarAutomaton> GrammarAutomaton::compile(const Grammar& grammar, const StopCheck& stop,
                                                   const GrammarLimits& limits) {
  CHECK(grammar.start() >= 0);
  return AutomatonBuilder(grammar, stop, limits).build();
}

std::size_t GrammarAutomaton::bytes() const {
  return next_.size() * sizeof(next_[0]) + calls_.size() * sizeof(RuleCall) +
         num_states() * (2 + sizeof(std::uint32_t));
}

}  // namespace sluice
