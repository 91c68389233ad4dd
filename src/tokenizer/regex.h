// Regex: a regular expression of a tokenizer.json (regex_syntax.h defines the syntax). It is
// compiled at its first use or earlier. A Regex may be used from any thread; each thread brings its
// own RegexScratch. Limits: a match that needs more than 2,000,000 backtracking steps is an error,
// so no pattern and no text can hold a thread permanently.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/stop_check.h"

namespace sluice {

class RegexScratch {
 public:
  RegexScratch();
  ~RegexScratch();
  RegexScratch(RegexScratch&&) noexcept;
  RegexScratch& operator=(RegexScratch&&) noexcept;

  StopMeter meter;  // used by find_all

 private:
  friend class Regex;
  struct State;
  std::unique_ptr<State> state_;  // made by the first match
};

struct TextRange {
  std::size_t begin;
  std::size_t end;
};

class Regex {
 public:
  // Errors: a pattern that is not supported or broken.
  static Result<Regex> compile(std::string_view pattern);
  // A pattern that compile() has accepted before, in this process or another one. If compile()
  // refuses it, find_all() returns compile()'s error.
  static Regex deferred(std::string_view pattern);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  // Replaces `out` by all non-overlapping matches, leftmost first. An empty match directly after
  // another match does not count, as in the reference. Errors: a match that exceeds the limit, the
  // stop check's, a deferred pattern's. REQUIRES: text is valid UTF-8.
  Status find_all(std::string_view text, RegexScratch& scratch, std::vector<TextRange>& out) const;

  std::string_view pattern() const;

 private:
  struct Code;
  explicit Regex(std::unique_ptr<Code> code);
  std::unique_ptr<Code> code_;
};

}  // namespace sluice
