#include "grammar/nfa.h"

#include <fmt/format.h>

#include <array>
#include <map>

namespace sluice {
namespace {

// Adds expressions between two states. After the limit is passed it adds no more.
class NfaMaker {
 public:
  NfaMaker(const Grammar& grammar, std::size_t max_states, Nfa& nfa)
      : grammar_(grammar), max_states_(max_states), nfa_(nfa) {}

  std::int32_t state() {
    nfa_.states.emplace_back();
    return static_cast<std::int32_t>(nfa_.states.size() - 1);
  }
  bool full() const { return nfa_.states.size() > max_states_; }

  void add(ExprId id, std::int32_t from, std::int32_t to) {
    if (full()) return;
    const Grammar::Expr& expr = grammar_.expr(id);
    switch (expr.kind) {
      case Grammar::Kind::kNothing: return;
      case Grammar::Kind::kLiteral: return add_literal(expr.text, from, to);
      case Grammar::Kind::kOneOf: return add_one_of(expr.set, from, to);
      case Grammar::Kind::kSequence: return add_sequence(expr.parts, from, to);
      case Grammar::Kind::kChoice:
        for (const ExprId part : expr.parts) add(part, from, to);
        return;
      case Grammar::Kind::kRepeat: return add_repeat(expr, from, to);
      case Grammar::Kind::kList: return add_list(expr, from, to);
      case Grammar::Kind::kCall: {
        NfaEdge edge;
        edge.kind = NfaEdge::Kind::kCall;
        edge.rule = expr.rule;
        edge.to = to;
        return connect(from, edge);
      }
    }
  }

 private:
  void connect(std::int32_t from, NfaEdge edge) {
    nfa_.states[static_cast<std::size_t>(from)].push_back(edge);
  }
  void skip(std::int32_t from, std::int32_t to) {
    NfaEdge edge;
    edge.to = to;
    connect(from, edge);
  }
  void read(std::int32_t from, ByteRange bytes, std::int32_t to) {
    NfaEdge edge;
    edge.kind = NfaEdge::Kind::kBytes;
    edge.bytes = bytes;
    edge.to = to;
    connect(from, edge);
  }

  void add_literal(const std::string& text, std::int32_t from, std::int32_t to) {
    for (std::size_t i = 0; i < text.size() && !full(); ++i) {
      const auto byte = static_cast<std::uint8_t>(text[i]);
      const std::int32_t next = i + 1 == text.size() ? to : state();
      read(from, {byte, byte}, next);
      from = next;
    }
    if (text.empty()) skip(from, to);
  }

  // Sequences with the same end share the states before it, so that the deterministic automaton
  // is small.
  void add_one_of(const CodePointSet& set, std::int32_t from, std::int32_t to) {
    std::vector<ByteSequence> sequences;
    for (const CodePointRange& range : set) append_utf8_sequences(range, sequences);
    std::map<std::array<std::int32_t, 3>, std::int32_t> before;  // first, last, to
    for (const ByteSequence& sequence : sequences) {
      std::int32_t next = to;
      for (int i = sequence.size - 1; i > 0; --i) {
        const ByteRange bytes = sequence.bytes[static_cast<std::size_t>(i)];
        const auto [at, added] = before.try_emplace({bytes.first, bytes.last, next}, 0);
        if (added) {
          at->second = state();
          read(at->second, bytes, next);
        }
        next = at->second;
      }
      read(from, sequence.bytes[0], next);
    }
  }

  void add_sequence(const std::vector<ExprId>& parts, std::int32_t from, std::int32_t to) {
    for (std::size_t i = 0; i < parts.size() && !full(); ++i) {
      const std::int32_t next = i + 1 == parts.size() ? to : state();
      add(parts[i], from, next);
      from = next;
    }
    if (parts.empty()) skip(from, to);
  }

  void add_repeat(const Grammar::Expr& expr, std::int32_t from, std::int32_t to) {
    const ExprId item = expr.parts[0];
    for (std::int32_t i = 0; i < expr.min && !full(); ++i) {
      const std::int32_t next = state();
      add(item, from, next);
      from = next;
    }
    if (expr.max < 0) {
      // A state of its own: other edges of `from` must not be part of the loop.
      const std::int32_t loop = state();
      skip(from, loop);
      add(item, loop, loop);
      skip(loop, to);
      return;
    }
    for (std::int32_t i = expr.min; i < expr.max && !full(); ++i) {
      const std::int32_t next = state();
      skip(from, to);
      add(item, from, next);
      from = next;
    }
    skip(from, to);
  }

  // Two lanes: `fresh` while no item has been written, `begun` after that. Each item is added once.
  void add_list(const Grammar::Expr& expr, std::int32_t from, std::int32_t to) {
    std::int32_t fresh = from;
    std::int32_t begun = state();
    bool fresh_open = true;  // whether all items so far may be missing
    for (const ListItem& item : expr.items) {
      if (full()) return;
      const std::int32_t entry = state();
      const std::int32_t after = state();
      if (fresh_open) skip(fresh, entry);
      add(expr.parts[0], begun, entry);
      add(item.expr, entry, after);
      if (item.repeats) add(expr.parts[0], after, entry);
      if (!item.required) skip(begun, after);
      fresh_open = fresh_open && !item.required;
      begun = after;
    }
    skip(begun, to);
    if (fresh_open) skip(fresh, to);
  }

  const Grammar& grammar_;
  std::size_t max_states_;
  Nfa& nfa_;
};

}  // namespace

Result<Nfa> make_nfa(const Grammar& grammar, RuleId rule, std::size_t max_states) {
  Nfa nfa;
  NfaMaker maker(grammar, max_states, nfa);
  nfa.start = maker.state();
  nfa.end = maker.state();
  const Grammar::Rule& source = grammar.rules()[static_cast<std::size_t>(rule)];
  maker.add(source.body, nfa.start, nfa.end);
  if (maker.full()) {
    return invalid_argument(
        fmt::format("is too large: the rule {} needs more than {} states; use shorter texts and "
                    "smaller counts",
                    source.name, max_states));
  }
  return nfa;
}

}  // namespace sluice
