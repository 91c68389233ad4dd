#include "apps/grammar_arguments.h"

#include <fmt/format.h>

#include <cstdint>
#include <utility>

#include "base/file.h"
#include "base/utf8.h"
#include "server/request_json.h"

namespace sluice {
namespace {

constexpr std::uint64_t kMaxFileBytes = std::uint64_t{1} << 20;  // as the server's limit

Result<std::string> read_text(const std::string& path) {
  ASSIGN_OR_RETURN(std::string text, read_file(path, kMaxFileBytes));
  if (const auto at = utf8::find_invalid(text)) {
    return invalid_argument(fmt::format("{} is not UTF-8 at byte {}", path, *at));
  }
  return text;
}

Result<GrammarSpec> schema_spec(const std::string& path) {
  GrammarSpec spec;
  spec.kind = GrammarKind::kJsonSchema;
  ASSIGN_OR_RETURN(spec.text, read_text(path));
  auto schema = parse_bounded_json(spec.text);
  if (!schema) return invalid_argument(fmt::format("{}: {}", path, schema.error().message));
  spec.json = *std::move(schema);
  return spec;
}

Result<GrammarSpec> gbnf_spec(const std::string& path) {
  GrammarSpec spec;
  spec.kind = GrammarKind::kGbnf;
  ASSIGN_OR_RETURN(spec.text, read_text(path));
  return spec;
}

}  // namespace

Result<std::optional<GrammarOption>> read_grammar_option(const GrammarArguments& a) {
  const int given =
      int{a.json_schema.has_value()} + int{a.regex.has_value()} + int{a.grammar.has_value()};
  if (given > 1) {
    return invalid_argument("give at most one of --json-schema, --regex and --grammar");
  }
  GrammarOption option;
  Result<GrammarSpec> spec = GrammarSpec{};
  if (a.json_schema) {
    option.name = "--json-schema";
    spec = schema_spec(*a.json_schema);
  } else if (a.grammar) {
    option.name = "--grammar";
    spec = gbnf_spec(*a.grammar);
  } else if (a.regex) {
    option.name = "--regex";
    spec->kind = GrammarKind::kRegex;
    spec->text = *a.regex;
  } else {
    return std::optional<GrammarOption>();
  }
  if (!spec) return with_context(option.name, std::move(spec).error());
  option.spec = *std::move(spec);
  return std::optional<GrammarOption>(std::move(option));
}

}  // namespace sluice
