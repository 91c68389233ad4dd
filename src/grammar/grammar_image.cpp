#include "grammar/grammar_image.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include "base/byte_stream.h"

namespace sluice {
namespace {

constexpr std::size_t kHeaderBytes = 64 + 256;
// The most that these take: a state beside its runs and calls, a run of classes, a call, a rule.
constexpr std::size_t kStateBytes = 1 + 2 + 3 + 3 + 5;
constexpr std::size_t kRunBytes = 2 + 3;
constexpr std::size_t kCallBytes = 3 + 3;
constexpr std::size_t kRuleBytes = 3;

// Neighboring classes mostly have the same target.
void write_runs(const GrammarAutomaton& automaton, std::int32_t state, ByteWriter& out) {
  const int classes = automaton.num_classes();
  for (int c = 0; c < classes;) {
    const std::int32_t next = automaton.next(state, c);
    int end = c + 1;
    while (end < classes && automaton.next(state, end) == next) ++end;
    out.varint(static_cast<std::uint64_t>(end - c));
    out.varint(static_cast<std::uint64_t>(next + 1));
    c = end;
  }
}

void write_state(const TokenGrammar& grammar, std::int32_t state, ByteWriter& out) {
  const GrammarAutomaton& automaton = grammar.automaton();
  out.varint(automaton.final(state) ? 1 : 0);
  write_runs(automaton, state, out);
  const auto calls = automaton.calls(state);
  out.varint(calls.size());
  for (const RuleCall& call : calls) {
    out.varint(static_cast<std::uint64_t>(call.callee));
    out.varint(static_cast<std::uint64_t>(call.resume + 1));
  }
  const AlikeState& alike = grammar.alike(state);
  out.varint(static_cast<std::uint64_t>(alike.state + 1));
  out.varint(static_cast<std::uint64_t>(alike.bytes));
}

}  // namespace

std::vector<std::byte> encode_grammar(const TokenGrammar& grammar) {
  const GrammarAutomaton& automaton = grammar.automaton();
  ByteWriter out;
  out.u32(kGrammarImageVersion);
  out.varint(automaton.num_states());
  out.varint(static_cast<std::uint64_t>(automaton.num_classes()));
  out.varint(automaton.rule_starts().size());
  out.varint(static_cast<std::uint64_t>(automaton.start()));
  for (int byte = 0; byte < 256; ++byte) {
    out.varint(static_cast<std::uint64_t>(automaton.class_of(static_cast<std::uint8_t>(byte))));
  }
  std::int32_t last = 0;
  for (const std::int32_t start : automaton.rule_starts()) {
    out.varint(static_cast<std::uint64_t>(start - last));
    last = start;
  }
  for (std::int32_t state = 0; static_cast<std::size_t>(state) < automaton.num_states(); ++state) {
    write_state(grammar, state, out);
  }
  return out.take();
}

std::size_t grammar_image_bound(const TokenGrammar& grammar) {
  const GrammarAutomaton& automaton = grammar.automaton();
  const std::size_t runs =
      automaton.num_states() * static_cast<std::size_t>(automaton.num_classes());
  // A class above 127 takes two bytes.
  return kHeaderBytes + 256 + automaton.rule_starts().size() * kRuleBytes +
         automaton.num_states() * kStateBytes + runs * kRunBytes +
         automaton.num_calls() * kCallBytes;
}

class GrammarImageReader {
 public:
  GrammarImageReader(std::span<const std::byte> image, GrammarVocabularyPtr vocabulary)
      : in_(image), vocabulary_(std::move(vocabulary)) {}

  Result<TokenGrammarPtr> read() {
    if (in_.u32() != kGrammarImageVersion) return wrong("its version");
    if (!read_header()) return wrong("its sizes");
    if (!read_classes()) return wrong("its classes of bytes");
    if (!read_rules()) return wrong("its rules");
    if (!read_states()) return wrong("a state");
    if (!calls_are_right()) return wrong("a call");
    if (!alike_states_are_right()) return wrong("an alike state");
    if (!in_.ok() || in_.left() > 0) return wrong("its length");
    return TokenGrammar::restore(std::move(out_), std::move(alike_), std::move(vocabulary_));
  }

 private:
  static Error wrong(std::string_view what) {
    return invalid_argument("the image of a grammar is wrong in " + std::string(what));
  }

  // A number in [0, limit].
  bool number(std::size_t limit, std::size_t& out) {
    const std::uint64_t value = in_.varint();
    out = static_cast<std::size_t>(value);
    return in_.ok() && value <= limit;
  }
  // A number in [-1, limit), which stands there plus one.
  bool index(std::size_t limit, std::int32_t& out) {
    std::size_t value = 0;
    if (!number(limit, value)) return false;
    out = static_cast<std::int32_t>(value) - 1;
    return true;
  }

  bool read_header() {
    const GrammarLimits limits;
    std::size_t classes = 0;
    std::size_t start = 0;
    if (!number(limits.states, states_) || states_ == 0) return false;
    if (!number(256, classes) || classes == 0) return false;
    if (states_ * classes * sizeof(std::int32_t) > limits.table_bytes) return false;
    if (states_ > in_.left()) return false;  // each takes bytes
    if (!number(states_, rules_) || rules_ == 0) return false;
    if (!number(states_ - 1, start)) return false;
    out_.num_classes_ = static_cast<int>(classes);
    out_.start_ = static_cast<std::int32_t>(start);
    return true;
  }

  // Each byte has the class of the byte before or the next one.
  bool read_classes() {
    std::size_t last = 0;
    for (std::size_t byte = 0; byte < 256; ++byte) {
      std::size_t one = 0;
      if (!number(last + (byte > 0 ? 1 : 0), one) || one < last) return false;
      out_.class_of_[byte] = static_cast<std::uint8_t>(one);
      last = one;
    }
    return last + 1 == static_cast<std::size_t>(out_.num_classes_);
  }

  // From state 0, each with a state at least.
  bool read_rules() {
    std::size_t start = 0;
    for (std::size_t rule = 0; rule < rules_; ++rule) {
      std::size_t step = 0;
      if (!number(states_ - 1 - start, step) || (step == 0) != (rule == 0)) return false;
      start += step;
      out_.rule_starts_.push_back(static_cast<std::int32_t>(start));
    }
    return is_rule(out_.start_);
  }

  bool is_rule(std::int32_t state) const {
    return std::ranges::binary_search(out_.rule_starts_, state);
  }

  bool read_states() {
    const auto classes = static_cast<std::size_t>(out_.num_classes_);
    out_.next_.reserve(states_ * classes);
    out_.first_call_.push_back(0);
    for (std::size_t state = 0; state < states_; ++state) {
      std::size_t final = 0;
      if (!number(1, final)) return false;
      out_.final_.push_back(static_cast<std::uint8_t>(final));
      if (!read_runs(classes) || !read_calls() || !read_alike()) return false;
    }
    return true;
  }

  bool read_runs(std::size_t classes) {
    std::int32_t last = GrammarAutomaton::kDead;
    bool reads = false;
    for (std::size_t read = 0; read < classes;) {
      std::size_t length = 0;
      std::int32_t next = GrammarAutomaton::kDead;
      if (!number(classes - read, length) || length == 0 || !index(states_, next)) return false;
      if (read > 0 && next == last) return false;  // one run
      out_.next_.insert(out_.next_.end(), length, next);
      reads = reads || next >= 0;
      last = next;
      read += length;
    }
    out_.reads_bytes_.push_back(reads ? 1 : 0);
    return true;
  }

  bool read_calls() {
    std::size_t count = 0;
    if (!number(in_.left(), count)) return false;
    for (std::size_t i = 0; i < count; ++i) {
      std::size_t callee = 0;
      RuleCall call;
      if (!number(states_ - 1, callee) || !index(states_, call.resume)) return false;
      call.callee = static_cast<std::int32_t>(callee);
      out_.calls_.push_back(call);
    }
    out_.first_call_.push_back(static_cast<std::uint32_t>(out_.calls_.size()));
    return true;
  }

  bool read_alike() {
    AlikeState alike;
    std::size_t bytes = 0;
    if (!index(states_, alike.state) || !number(AlikeState::kAllTexts, bytes)) return false;
    alike.bytes = static_cast<std::int32_t>(bytes);
    alike_.push_back(alike);
    return true;
  }

  bool calls_are_right() const {
    return std::ranges::all_of(out_.calls_,
                               [&](const RuleCall& call) { return is_rule(call.callee); });
  }

  // Links stay within a rule and have no cycle: from each state, the states that were not seen
  // before lead to one that was, or to the end.
  bool alike_states_are_right() const {
    std::vector<std::int32_t> seen_from(states_, -1);
    for (std::size_t rule = 0; rule < rules_; ++rule) {
      const std::int32_t first = out_.rule_starts_[rule];
      const std::int32_t last =
          rule + 1 < rules_ ? out_.rule_starts_[rule + 1] : static_cast<std::int32_t>(states_);
      for (std::int32_t from = first; from < last; ++from) {
        for (std::int32_t state = from; state >= 0;) {
          if (state < first || state >= last) return false;
          std::int32_t& seen = seen_from[static_cast<std::size_t>(state)];
          if (seen == from) return false;
          if (seen >= 0) break;
          seen = from;
          state = alike_[static_cast<std::size_t>(state)].state;
        }
      }
    }
    return true;
  }

  ByteReader in_;
  GrammarVocabularyPtr vocabulary_;
  std::size_t states_ = 0;
  std::size_t rules_ = 0;
  GrammarAutomaton out_;
  std::vector<AlikeState> alike_;
};

Result<TokenGrammarPtr> decode_grammar(std::span<const std::byte> image,
                                       GrammarVocabularyPtr vocabulary) {
  return GrammarImageReader(image, std::move(vocabulary)).read();
}

}  // namespace sluice
