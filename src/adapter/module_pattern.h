// ModulePattern: a regular expression of an adapter_config.json, matched against a whole module
// name as Python's re.fullmatch does. PCRE2 compiles and matches it, with limits on backtracking
// and memory, so that no pattern can hold the loader.
// Limits: patterns up to 4,096 bytes. Values: movable; one thread at a time.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace sluice {

class ModulePattern {
 public:
  // Errors: kInvalidArgument for a pattern that PCRE2 refuses.
  static Result<ModulePattern> compile(std::string_view pattern);
  ~ModulePattern();
  ModulePattern(ModulePattern&&) noexcept;
  ModulePattern& operator=(ModulePattern&&) noexcept;

  // Errors: kInvalidArgument if a limit is reached.
  Result<bool> matches(std::string_view module) const;

 private:
  struct Code;
  explicit ModulePattern(std::unique_ptr<Code> code);
  std::unique_ptr<Code> code_;
};

}  // namespace sluice
