// The options that hold an output to a grammar: --json-schema, --regex, --grammar.
// Pure function except for reading files; any thread.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "grammar/grammar_compiler.h"

namespace sluice {

// As given; absent = not given.
struct GrammarArguments {
  std::optional<std::string> json_schema;  // a file
  std::optional<std::string> regex;
  std::optional<std::string> grammar;  // a file of GBNF
};

// The option that was given, and its grammar, which is not compiled yet.
struct GrammarOption {
  std::string name;
  GrammarSpec spec;
};

// Errors name the option: two of them, a file that cannot be read, a schema that is not JSON.
Result<std::optional<GrammarOption>> read_grammar_option(const GrammarArguments& arguments);

}  // namespace sluice
