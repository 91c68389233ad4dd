#include "tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <mutex>
#include <string>
#include <utility>

#include "base/utf8.h"
#include "tokenizer/regex_syntax.h"

namespace sluice {
namespace {

constexpr std::uint32_t kMatchLimit = 2'000'000;
constexpr std::uint32_t kHeapLimitKib = 64 * 1024;
constexpr std::size_t kJitStackBytes = 1024 * 1024;
constexpr std::size_t kMaxPatternBytes = 64 * 1024;

std::string pcre2_message(int code) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

struct Free {
  void operator()(pcre2_code* p) const { pcre2_code_free(p); }
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
  void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
  void operator()(pcre2_compile_context* p) const { pcre2_compile_context_free(p); }
  void operator()(pcre2_jit_stack* p) const { pcre2_jit_stack_free(p); }
};
template <class T>
using Owned = std::unique_ptr<T, Free>;

}  // namespace

struct RegexScratch::State {
  // One pair of offsets: only the whole match is ever wanted.
  Owned<pcre2_match_data> data{pcre2_match_data_create(1, nullptr)};
  Owned<pcre2_match_context> context{pcre2_match_context_create(nullptr)};
  Owned<pcre2_jit_stack> stack{pcre2_jit_stack_create(32 * 1024, kJitStackBytes, nullptr)};

  State() {
    pcre2_set_match_limit(context.get(), kMatchLimit);
    pcre2_set_heap_limit(context.get(), kHeapLimitKib);
    pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
  }
};

RegexScratch::RegexScratch() = default;
RegexScratch::~RegexScratch() = default;
RegexScratch::RegexScratch(RegexScratch&&) noexcept = default;
RegexScratch& RegexScratch::operator=(RegexScratch&&) noexcept = default;

namespace {

Result<Owned<pcre2_code>> compile_pattern(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    return invalid_argument("regular expression: longer than 65536 bytes");
  }
  ASSIGN_OR_RETURN(const std::string translated, to_pcre2_syntax(pattern));
  const Owned<pcre2_compile_context> context{pcre2_compile_context_create(nullptr)};
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), 100);
  int code = 0;
  PCRE2_SIZE offset = 0;
  // MULTILINE: in Ruby's flavour ^ and $ always match at lines.
  Owned<pcre2_code> compiled{
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &code,
                    &offset, context.get())};
  if (!compiled) {
    return invalid_argument("regular expression '" + std::string(pattern) +
                            "': " + pcre2_message(code));
  }
  return compiled;
}

}  // namespace

struct Regex::Code {
  std::string pattern;
  Owned<pcre2_code> compiled;
  std::once_flag once;
  Status status;  // of prepare()

  // Compiles what is not compiled yet. Without machine code the interpreter matches the same, more
  // slowly.
  Status prepare() {
    if (!compiled) {
      ASSIGN_OR_RETURN(compiled, compile_pattern(pattern));
    }
    pcre2_jit_compile(compiled.get(), PCRE2_JIT_COMPLETE);
    return {};
  }
};

Regex::Regex(std::unique_ptr<Code> code) : code_(std::move(code)) {}
Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

Result<Regex> Regex::compile(std::string_view pattern) {
  ASSIGN_OR_RETURN(Owned<pcre2_code> compiled, compile_pattern(pattern));
  Regex regex = deferred(pattern);
  regex.code_->compiled = std::move(compiled);
  return regex;
}

Regex Regex::deferred(std::string_view pattern) {
  auto code = std::make_unique<Code>();
  code->pattern = pattern;
  return Regex(std::move(code));
}

std::string_view Regex::pattern() const { return code_->pattern; }

Status Regex::find_all(std::string_view text, RegexScratch& scratch,
                       std::vector<TextRange>& out) const {
  out.clear();
  std::call_once(code_->once, [this] { code_->status = code_->prepare(); });
  RETURN_IF_ERROR(code_->status);
  if (!scratch.state_) scratch.state_ = std::make_unique<RegexScratch::State>();
  const RegexScratch::State& state = *scratch.state_;
  const PCRE2_SIZE* found = pcre2_get_ovector_pointer(state.data.get());
  std::size_t at = 0;
  std::size_t scanned = 0;
  while (at <= text.size()) {
    RETURN_IF_ERROR(scratch.meter.spend(1 + (at - scanned) / 8));
    scanned = at;
    const int result =
        pcre2_match(code_->compiled.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                    at, PCRE2_NO_UTF_CHECK, state.data.get(), state.context.get());
    if (result == PCRE2_ERROR_NOMATCH) break;
    if (result < 0) {
      return invalid_argument("text: matching a regular expression of the tokenizer gave up: " +
                              pcre2_message(result));
    }
    const TextRange match{found[0], found[1]};
    if (match.begin == match.end && !out.empty() && out.back().end == match.end) {
      at =
          match.end < text.size() ? match.end + utf8::decode(text, match.end).bytes : match.end + 1;
      continue;
    }
    at = match.end;
    out.push_back(match);
  }
  return {};
}

}  // namespace sluice
