#include "adapter/module_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
// tidy: allow(heavy-header) patterns of adapters need the same library as those of tokenizers
#include <pcre2.h>

#include <utility>

#include "base/check.h"
#include "checkpoint/quote_text.h"

namespace sluice {
namespace {

constexpr std::size_t kMaxPatternBytes = 4096;
constexpr std::uint32_t kMatchLimit = 100'000;
constexpr std::uint32_t kHeapLimitKib = 1024;

std::string pcre2_text(int code) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

struct FreePcre2 {
  void operator()(pcre2_code* p) const { pcre2_code_free(p); }
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
  void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
  void operator()(pcre2_compile_context* p) const { pcre2_compile_context_free(p); }
};
template <class T>
using Pcre2 = std::unique_ptr<T, FreePcre2>;

}  // namespace

struct ModulePattern::Code {
  std::string text;
  Pcre2<pcre2_code> compiled;
  Pcre2<pcre2_match_data> data;
  Pcre2<pcre2_match_context> context;
};

ModulePattern::ModulePattern(std::unique_ptr<Code> code) : code_(std::move(code)) {}
ModulePattern::~ModulePattern() = default;
ModulePattern::ModulePattern(ModulePattern&&) noexcept = default;
ModulePattern& ModulePattern::operator=(ModulePattern&&) noexcept = default;

Result<ModulePattern> ModulePattern::compile(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    return invalid_argument(fmt::format("the pattern {} is longer than {} bytes",
                                        quote_text(pattern), kMaxPatternBytes));
  }
  const Pcre2<pcre2_compile_context> context{pcre2_compile_context_create(nullptr)};
  CHECK(context != nullptr);
  pcre2_set_parens_nest_limit(context.get(), 100);
  int problem = 0;
  PCRE2_SIZE at = 0;
  auto code = std::make_unique<Code>();
  code->text = pattern;
  code->compiled.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                     PCRE2_ANCHORED | PCRE2_ENDANCHORED | PCRE2_NEVER_BACKSLASH_C,
                                     &problem, &at, context.get()));
  if (!code->compiled) {
    return invalid_argument(fmt::format("the pattern {} is not a regular expression: {} at {}",
                                        quote_text(pattern), pcre2_text(problem), at));
  }
  code->data.reset(pcre2_match_data_create_from_pattern(code->compiled.get(), nullptr));
  code->context.reset(pcre2_match_context_create(nullptr));
  CHECK(code->data != nullptr && code->context != nullptr);
  pcre2_set_match_limit(code->context.get(), kMatchLimit);
  pcre2_set_heap_limit(code->context.get(), kHeapLimitKib);
  return ModulePattern(std::move(code));
}

Result<bool> ModulePattern::matches(std::string_view module) const {
  const int result = pcre2_match(code_->compiled.get(), reinterpret_cast<PCRE2_SPTR>(module.data()),
                                 module.size(), 0, 0, code_->data.get(), code_->context.get());
  if (result >= 0) return true;
  if (result == PCRE2_ERROR_NOMATCH) return false;
  return invalid_argument(fmt::format("matching the pattern {} against {} gave up: {}",
                                      quote_text(code_->text), quote_text(module),
                                      pcre2_text(result)));
}

}  // namespace sluice
