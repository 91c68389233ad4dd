#include "grammar/tagged_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "grammar/json_grammar.h"
#include "grammar/json_schema.h"
#include "grammar/marked_text.h"

namespace sluice {
namespace {

Error named(const std::string& name, const Error& error) {
  return {error.code, fmt::format("{}: {}", name, error.message)};
}

class TaggedReader {
 public:
  explicit TaggedReader(const TaggedAnswer& answer) : answer_(answer) {}

  Result<Grammar> read() {
    for (const TaggedValue& value : answer_.values) {
      auto rule = read_value(value);
      if (!rule) return tl::unexpected(named(value.name, rule.error()));
      values_.push_back(*rule);
    }
    std::vector<ExprId> forms;
    for (const TaggedForm& form : answer_.forms) forms.push_back(read_form(form));
    const RuleId calls = grammar_.add_rule("calls", grammar_.choice(std::move(forms)));
    grammar_.set_start(grammar_.add_rule("answer", with_text(grammar_.call(calls))));
    return std::move(grammar_);
  }

 private:
  ExprId with_text(ExprId calls) {
    if (!answer_.text_allowed) {
      return grammar_.sequence({grammar_.literal(answer_.trigger), calls});
    }
    std::vector<ExprId> ways;
    if (!answer_.text_begin.empty()) {
      ways.push_back(grammar_.sequence({grammar_.literal(answer_.text_begin),
                                        grammar_.repeat(grammar_.any_character(), 0, -1)}));
    }
    if (!answer_.trigger.empty()) {
      ways.push_back(text_with_marker(grammar_, answer_.trigger, calls, WithoutMarker::kAllowed));
      return grammar_.choice(std::move(ways));
    }
    ways.push_back(calls);
    if (!answer_.text_begin.empty()) return grammar_.choice(std::move(ways));
    CodePointSet not_first = {{'\t', '\n'}, {'\r', '\r'}, {' ', ' '}};
    for (const TaggedForm& form : answer_.forms) {
      for (const TaggedPart& part : form.parts) {
        const auto first = static_cast<unsigned char>((form.open + part.before).at(0));
        not_first.push_back({first, first});
      }
    }
    const ExprId text =
        grammar_.sequence({grammar_.one_of(complement(normalized(std::move(not_first)))),
                           grammar_.repeat(grammar_.any_character(), 0, -1)});
    ways.push_back(grammar_.optional(text));
    return grammar_.choice(std::move(ways));
  }

  ExprId read_form(const TaggedForm& form) {
    std::vector<ExprId> ways;
    for (const TaggedPart& part : form.parts) {
      ways.push_back(
          grammar_.sequence({grammar_.literal(part.before), grammar_.call(values_[part.value]),
                             grammar_.literal(part.behind)}));
    }
    const RuleId part = grammar_.add_rule("part", grammar_.choice(std::move(ways)));
    std::vector<ExprId> all = {grammar_.literal(form.open), grammar_.call(part)};
    if (form.between) {
      all.push_back(grammar_.repeat(
          grammar_.sequence({grammar_.literal(*form.between), grammar_.call(part)}), 0, -1));
    }
    all.push_back(grammar_.literal(form.close));
    return grammar_.sequence(std::move(all));
  }

  Result<RuleId> read_value(const TaggedValue& value) {
    if (value.pairs) return read_pairs(value.schema, *value.pairs);
    return read_json(value.schema);
  }

  Result<RuleId> read_json(const JsonValue& schema) {
    ASSIGN_OR_RETURN(const Grammar json, json_schema_grammar(schema));
    return grammar_.embed(json);
  }

  Result<RuleId> read_pairs(const JsonValue& schema, const PairMarks& marks) {
    const JsonValue::Object* object = schema.object();
    const JsonValue* properties = object == nullptr ? nullptr : find_member(*object, "properties");
    if (properties == nullptr) return grammar_.add_rule("pairs", any_pairs(marks));
    if (properties->object() == nullptr) return invalid_argument("properties must be an object");
    const std::vector<std::string_view> required = required_names(*object);
    std::vector<ListItem> pairs;
    for (const JsonMember& property : *properties->object()) {
      auto pair = read_pair(*object, property, marks);
      if (!pair) {
        return tl::unexpected(
            named(fmt::format("at #/properties/{}", property.name), pair.error()));
      }
      const bool needed = std::ranges::find(required, property.name) != required.end();
      pairs.push_back({*pair, needed, false});
    }
    return grammar_.add_rule("pairs",
                             grammar_.list(std::move(pairs), grammar_.literal(marks.between)));
  }

  // Pairs with a separator stand in brackets, so that their keys have none of these.
  static constexpr std::string_view kKeyEnds = " '(),:=[]{}|";

  static bool ends_key(char c, const PairMarks& marks) {
    return c == '<' || c == '>' || c == '"' || static_cast<unsigned char>(c) < 0x20 ||
           (!marks.between.empty() && kKeyEnds.find(c) != std::string_view::npos);
  }

  static std::vector<std::string_view> required_names(const JsonValue::Object& object) {
    std::vector<std::string_view> names;
    const JsonValue* required = find_member(object, "required");
    if (required == nullptr || required->array() == nullptr) return names;
    for (const JsonValue& name : *required->array()) {
      if (name.string() != nullptr) names.push_back(*name.string());
    }
    return names;
  }

  Result<ExprId> read_pair(const JsonValue::Object& root, const JsonMember& property,
                           const PairMarks& marks) {
    if (property.name.empty() ||
        std::ranges::any_of(property.name, [&](char c) { return ends_key(c, marks); })) {
      return invalid_argument(
          "a property's name in this model's format of calls is not empty and has no control "
          "characters and none of <>\"" +
          std::string(marks.between.empty() ? "" : kKeyEnds));
    }
    const ExprId key = grammar_.literal(marks.before_key + property.name);
    if (!marks.text_end.empty() && is_text(property.value)) {
      ASSIGN_OR_RETURN(const ExprId text, read_text(*property.value.object(), marks));
      return grammar_.sequence({key, grammar_.literal(marks.behind_key_of_text), text});
    }
    // References point into the whole schema.
    JsonValue schema = property.value;
    for (const char* shared : {"$defs", "definitions"}) {
      const JsonValue* definitions = find_member(root, shared);
      if (definitions != nullptr && schema.object() != nullptr &&
          find_member(*schema.object(), shared) == nullptr) {
        schema.object()->push_back({shared, *definitions});
      }
    }
    ASSIGN_OR_RETURN(const RuleId value, read_json(schema));
    return grammar_.sequence({key, grammar_.literal(marks.behind_key_of_json), grammar_.call(value),
                              grammar_.literal(marks.json_end),
                              grammar_.literal(marks.behind_value)});
  }

  static bool is_text(const JsonValue& schema) {
    if (schema.object() == nullptr) return false;
    const JsonValue* type = find_member(*schema.object(), "type");
    return type != nullptr && type->string() != nullptr && *type->string() == "string";
  }

  Result<ExprId> read_text(const JsonValue::Object& schema, const PairMarks& marks) {
    for (const char* keyword : {"pattern", "minLength", "maxLength"}) {
      if (find_member(schema, keyword) == nullptr) continue;
      return invalid_argument(fmt::format(
          "{} is not served here: this model writes strings without quotes; leave it out",
          keyword));
    }
    const JsonValue* one = find_member(schema, "const");
    const JsonValue* listed = find_member(schema, "enum");
    if (one == nullptr && (listed == nullptr || listed->array() == nullptr)) {
      return text_with_marker(grammar_, marks.text_end, grammar_.literal(marks.behind_value));
    }
    std::vector<ExprId> ways;
    const JsonValue::Array single = one != nullptr ? JsonValue::Array{*one} : JsonValue::Array();
    for (const JsonValue& value : one != nullptr ? single : *listed->array()) {
      if (value.string() != nullptr) ways.push_back(grammar_.literal(*value.string()));
    }
    if (ways.empty()) return invalid_argument("enum has no value of the given type");
    return grammar_.sequence({grammar_.choice(std::move(ways)),
                              grammar_.literal(marks.known_text_end),
                              grammar_.literal(marks.behind_value)});
  }

  // Any keys, with any values.
  ExprId any_pairs(const PairMarks& marks) {
    CodePointSet not_key = {{0, 0x1F}};
    for (std::uint32_t c = 0x20; c < 0x80; ++c) {
      if (ends_key(static_cast<char>(c), marks)) not_key.push_back({c, c});
    }
    const ExprId key =
        grammar_.repeat(grammar_.one_of(complement(normalized(std::move(not_key)))), 1, 64);
    const ExprId behind = grammar_.literal(marks.behind_value);
    // Where texts and JSON look alike, the reader decides by the tool's schema.
    std::vector<ExprId> values;
    if (!marks.text_end.empty()) {
      values.push_back(grammar_.sequence({grammar_.literal(marks.behind_key_of_text),
                                          text_with_marker(grammar_, marks.text_end, behind)}));
    }
    if (marks.behind_key_of_json != marks.behind_key_of_text) {
      values.push_back(grammar_.sequence({grammar_.literal(marks.behind_key_of_json),
                                          JsonGrammar(grammar_).any_value(),
                                          grammar_.literal(marks.json_end), behind}));
    }
    const ExprId value = grammar_.choice(std::move(values));
    const ExprId pair = grammar_.sequence({grammar_.literal(marks.before_key), key, value});
    const ExprId call = grammar_.call(grammar_.add_rule("pair", pair));
    return grammar_.list({{call, /*required=*/false, /*repeats=*/true}},
                         grammar_.literal(marks.between));
  }

  const TaggedAnswer& answer_;
  Grammar grammar_;
  std::vector<RuleId> values_;
};

}  // namespace

Result<Grammar> tagged_grammar(const TaggedAnswer& answer) { return TaggedReader(answer).read(); }

}  // namespace sluice
