#include "server/structured_fields.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "server/request_json.h"

namespace sluice {
namespace {

class StructuredReader {
 public:
  StructuredReader(FieldReader& reader, GenerationCall& call) : reader_(reader), call_(call) {}

  void read_response_format() {
    const JsonValue::Object* format = reader_.object("response_format");
    if (format == nullptr) return;
    const JsonValue* type = find_member(*format, "type");
    const std::string* name = type == nullptr ? nullptr : type->string();
    if (name == nullptr) {
      reader_.bad("response_format",
                  "has no type; expected \"text\", \"json_object\" or \"json_schema\"");
      return;
    }
    if (*name == "text") return;
    if (*name == "json_object") {
      const JsonValue* schema = find_member(*format, "schema");  // as llama.cpp has it
      if (schema != nullptr && !schema->is_null())
        return set_schema("response_format.schema", *schema);
      return set("response_format", GrammarKind::kJsonObject, {}, {});
    }
    if (*name != "json_schema") {
      reader_.unsupported("response_format",
                          fmt::format("the type {} is not served; expected \"text\", "
                                      "\"json_object\" or \"json_schema\"",
                                      shown_value(*type)));
      return;
    }
    const JsonValue* wrapper = find_member(*format, "json_schema");
    const JsonValue* schema = wrapper == nullptr || wrapper->object() == nullptr
                                  ? nullptr
                                  : find_member(*wrapper->object(), "schema");
    if (schema == nullptr) {
      reader_.bad("response_format.json_schema",
                  "has no schema; expected {\"name\": ..., \"schema\": {...}}");
      return;
    }
    set_schema("response_format.json_schema.schema", *schema);
  }

  // vLLM: an object with one of json, regex, choice, grammar and json_object.
  void read_structured_outputs() {
    const JsonValue::Object* object = reader_.object("structured_outputs");
    if (object == nullptr) return;
    constexpr RefusedField kRefusedParts[] = {
        {"structural_tag", Neutral::kNull, "constrain the whole answer"},
        {"whitespace_pattern", Neutral::kNull, "a blank may follow commas and colons"},
    };
    FieldReader fields(*object, "structured_outputs.", reader_.ignored());
    read_group(fields, {"json", "regex", "choice", "grammar"}, "structured_outputs.");
    if (fields.boolean("json_object").value_or(false)) {
      set("structured_outputs.json_object", GrammarKind::kJsonObject, {}, {});
    }
    // They choose between vLLM's own ways to do the same.
    for (const std::string_view name :
         {"disable_fallback", "disable_any_whitespace", "disable_additional_properties"}) {
      fields.find(name);
    }
    fields.refuse_unless_neutral(kRefusedParts);
    fields.check_unknown();
    if (fields.failed() && !reader_.failed()) reader_.fail(*fields.error());
    if (!call_.structured && !reader_.failed()) {
      reader_.bad("structured_outputs", "has none of json, regex, choice, grammar and json_object");
    }
  }

  struct Names {
    std::string_view json, regex, choice, grammar;
  };
  void read_group(FieldReader& fields, const Names& names, const std::string& prefix) {
    if (const JsonValue* schema = fields.find(names.json)) {
      set_schema(prefix + std::string(names.json), *schema);
    }
    if (const std::string* regex = fields.string(names.regex, kMaxGrammarBytes)) {
      set(prefix + std::string(names.regex), GrammarKind::kRegex, *regex, {});
    }
    if (const JsonValue* choices = fields.find(names.choice)) {
      std::string text;
      append_json(*choices, text);
      set(prefix + std::string(names.choice), GrammarKind::kChoice, std::move(text), *choices);
    }
    if (const std::string* grammar = fields.string(names.grammar, kMaxGrammarBytes)) {
      set(prefix + std::string(names.grammar), GrammarKind::kGbnf, *grammar, {});
    }
  }

  void read_json_schema() {
    if (const JsonValue* schema = reader_.find("json_schema")) set_schema("json_schema", *schema);
  }

  // An empty grammar allows any text, as in llama.cpp.
  void read_grammar() {
    const std::string* grammar = reader_.string("grammar", kMaxGrammarBytes);
    if (grammar != nullptr && !grammar->empty()) set("grammar", GrammarKind::kGbnf, *grammar, {});
  }

  // A schema, or its text (vLLM).
  void set_schema(std::string field, const JsonValue& schema) {
    std::string text;
    if (schema.string() != nullptr) {
      auto parsed = parse_bounded_json(*schema.string(), "the text");
      if (!parsed) {
        reader_.fail(bad_field(field, fmt::format("{}: {}", field, parsed.error().message)));
        return;
      }
      append_json(*parsed, text);
      set(std::move(field), GrammarKind::kJsonSchema, std::move(text), *std::move(parsed));
      return;
    }
    if (schema.object() == nullptr && schema.boolean() == nullptr) {
      reader_.fail(bad_field(
          field, fmt::format("{}: got {}; expected a JSON schema", field, shown_value(schema))));
      return;
    }
    append_json(schema, text);
    set(std::move(field), GrammarKind::kJsonSchema, std::move(text), schema);
  }

  void set(std::string field, GrammarKind kind, std::string text, JsonValue json) {
    if (reader_.failed()) return;
    if (call_.structured) {
      reader_.bad(field, fmt::format("is given together with {}; give one of them",
                                     call_.structured->field));
      return;
    }
    StructuredOutput& structured = call_.structured.emplace();
    structured.spec.kind = kind;
    structured.spec.text = std::move(text);
    structured.spec.json = std::move(json);
    structured.field = std::move(field);
  }

 private:
  FieldReader& reader_;
  GenerationCall& call_;
};

}  // namespace

void set_json_schema(FieldReader& reader, GenerationCall& call, std::string field,
                     const JsonValue& schema) {
  StructuredReader(reader, call).set_schema(std::move(field), schema);
}

void set_json_object(FieldReader& reader, GenerationCall& call, std::string field) {
  StructuredReader(reader, call).set(std::move(field), GrammarKind::kJsonObject, {}, {});
}

void read_structured_fields(FieldReader& reader, GenerationCall& call) {
  StructuredReader structured(reader, call);
  structured.read_response_format();
  structured.read_structured_outputs();
  structured.read_group(reader, {"guided_json", "guided_regex", "guided_choice", "guided_grammar"},
                        "");
  structured.read_json_schema();
  structured.read_grammar();
}

}  // namespace sluice
