#include "front/tool_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "grammar/marked_text.h"

namespace sluice {
namespace {

constexpr std::string_view kName = "$name";
constexpr std::string_view kArguments = "$arguments";
constexpr std::string_view kNameAndArguments = R"({"name": "$name", "arguments": $arguments})";

enum class Pairs : std::uint8_t {
  kNone,
  kLineTags,
  kTags,
  kArgTags,
  kDsml,
  kGemma4,
  kFunctionGemma,
  kPython
};

// How calls are written: trigger, open, call, any number of times (between, call), close. A format
// with two rows is written in either form.
struct ToolWriting {
  std::string_view format;
  std::string_view trigger;
  std::string_view open;
  std::string_view call;
  std::optional<std::string_view> between;  // absent: one call alone
  std::string_view close = {};
  Pairs pairs = Pairs::kNone;
};

constexpr std::string_view kDsmlCall =
    "<｜DSML｜invoke name=\"$name\">\n$arguments</｜DSML｜invoke>\n";

constexpr std::array<ToolWriting, 27> kWritings = {{
    {"hermes", "<tool_call>", "",
     "\n{\"name\": \"$name\", \"arguments\": $arguments}\n</tool_call>", "\n<tool_call>"},
    {"qwen3_coder", "<tool_call>", "", "\n<function=$name>\n$arguments</function>\n</tool_call>",
     "\n<tool_call>", "", Pairs::kLineTags},
    {"glm45", "<tool_call>", "", "$name\n$arguments</tool_call>", "\n<tool_call>", "",
     Pairs::kArgTags},
    {"seed_oss", "<seed:tool_call>", "",
     "\n<function=$name>\n$arguments</function>\n</seed:tool_call>", "\n<seed:tool_call>", "",
     Pairs::kTags},
    {"mistral", "[TOOL_CALLS]", "[", kNameAndArguments, ", ", "]"},
    {"mistral", "[TOOL_CALLS]", "", "$name[ARGS]$arguments", "[TOOL_CALLS]"},
    {"deepseek_v3", "<｜tool▁calls▁begin｜>", "",
     "<｜tool▁call▁begin｜>function<｜tool▁sep｜>$name\n```json\n$arguments\n```<"
     "｜tool▁call▁end｜>",
     "\n", "<｜tool▁calls▁end｜>"},
    {"deepseek_v31", "<｜tool▁calls▁begin｜>", "",
     "<｜tool▁call▁begin｜>$name<｜tool▁sep｜>$arguments<｜tool▁call▁end｜>", "",
     "<｜tool▁calls▁end｜>"},
    {"deepseek_v32", "<｜DSML｜function_calls>", "\n", kDsmlCall, "", "</｜DSML｜function_calls>",
     Pairs::kDsml},
    {"deepseek_v4", "<｜DSML｜tool_calls>", "\n", kDsmlCall, "", "</｜DSML｜tool_calls>",
     Pairs::kDsml},
    {"kimi_k2", "<|tool_calls_section_begin|>", "",
     "<|tool_call_begin|>functions.$name:0<|tool_call_argument_begin|>$arguments<|tool_call_end|>",
     "", "<|tool_calls_section_end|>"},
    {"functionary_v3", "<function=", "", "$name>$arguments</function>", "<function="},
    {"cohere", "<|START_ACTION|>", "[\n    ",
     R"({"tool_call_id": "0", "tool_name": "$name", "parameters": $arguments})", ",\n    ",
     "\n]<|END_ACTION|>"},
    {"command_r_plus", "Action:\n```json\n", "[\n    ",
     "{\n        \"tool_name\": \"$name\",\n        \"parameters\": $arguments\n    }", ",\n    ",
     "\n]```"},
    {"apriel", "<tool_calls>", "[", kNameAndArguments, ", ", "]</tool_calls>"},
    {"apertus", "<|tools_prefix|>", "[", R"({"$name": $arguments})", ", ", "]<|tools_suffix|>"},
    {"gigachat3", "<|function_call|>", "", kNameAndArguments, "<|function_call|>"},
    {"granite", "<|tool_call|>", "[", kNameAndArguments, ", ", "]"},
    {"granite-20b-fc", "<function_call>", " ", kNameAndArguments, "<function_call> "},
    {"llama3_json", "", "", R"({"name": "$name", "parameters": $arguments})", std::nullopt},
    {"openai", "<|channel|>commentary to=functions.", "",
     "$name <|constrain|>json<|message|>$arguments", std::nullopt},
    {"gemma4", "<|tool_call>", "", "call:$name{$arguments}<tool_call|>", "<|tool_call>", "",
     Pairs::kGemma4},
    {"functiongemma", "<start_function_call>", "", "call:$name{$arguments}<end_function_call>",
     "<start_function_call>", "", Pairs::kFunctionGemma},
    {"lfm2", "<|tool_call_start|>", "[", "$name($arguments)", ", ", "]<|tool_call_end|>",
     Pairs::kPython},
    {"gigachat3_role", "function call<|role_sep|>", "\n", kNameAndArguments, std::nullopt},
    {"functionary_v32", "", "", "$name\n$arguments", ">>>"},
    {"pythonic", "", "[", "$name($arguments)", ", ", "]", Pairs::kPython},
}};

Result<PairMarks> pair_marks(const Tokenizer& tokenizer, Pairs pairs) {
  // In the order of `fields`.
  std::array<std::string_view, 8> texts;
  switch (pairs) {
    case Pairs::kNone:
    case Pairs::kLineTags:
      texts = {"<parameter=",    ">\n", ">\n", "</parameter>", "\n</parameter>",
               "\n</parameter>", "\n",  ""};
      break;
    case Pairs::kTags:
      texts = {"<parameter=", ">", ">", "</parameter>", "</parameter>", "</parameter>", "\n", ""};
      break;
    case Pairs::kArgTags:
      texts = {"<arg_key>",
               "</arg_key>\n<arg_value>",
               "</arg_key>\n<arg_value>",
               "</arg_value>",
               "</arg_value>",
               "</arg_value>",
               "\n",
               ""};
      break;
    case Pairs::kDsml:
      texts = {"<｜DSML｜parameter name=\"",
               "\" string=\"true\">",
               "\" string=\"false\">",
               "</｜DSML｜parameter>",
               "</｜DSML｜parameter>",
               "</｜DSML｜parameter>",
               "\n",
               ""};
      break;
    case Pairs::kGemma4: texts = {"", ":<|\"|>", ":", "<|\"|>", "<|\"|>", "", "", ","}; break;
    case Pairs::kFunctionGemma:
      texts = {"", ":<escape>", ":", "<escape>", "<escape>", "", "", ","};
      break;
    case Pairs::kPython: texts = {"", "", "=", "", "", "", "", ", "}; break;
  }
  PairMarks made;
  std::string* const fields[] = {
      &made.before_key,     &made.behind_key_of_text, &made.behind_key_of_json, &made.text_end,
      &made.known_text_end, &made.json_end,           &made.behind_value,       &made.between};
  for (std::size_t i = 0; i < texts.size(); ++i) {
    ASSIGN_OR_RETURN(*fields[i], grammar_literal(tokenizer, texts[i]));
  }
  return made;
}

struct Function {
  std::string name;
  const JsonValue* parameters = nullptr;  // nullptr: it takes none
  bool strict = false;
};

Function function_of(const JsonValue& tool) {
  const JsonValue::Object& function = *find_member(*tool.object(), "function")->object();
  Function made;
  made.name = *find_member(function, "name")->string();
  made.parameters = find_member(function, "parameters");
  if (made.parameters != nullptr && made.parameters->is_null()) made.parameters = nullptr;
  const JsonValue* strict = find_member(function, "strict");
  made.strict = strict != nullptr && strict->boolean() != nullptr && *strict->boolean();
  return made;
}

JsonMember text_member(std::string name, std::string text) {
  return {std::move(name), JsonValue{std::move(text)}};
}

// A tool that lists no properties takes none.
void close_if_empty(JsonValue::Object& schema) {
  const JsonValue* properties = find_member(schema, "properties");
  const bool empty =
      properties != nullptr && properties->object() != nullptr && properties->object()->empty();
  if (!empty || find_member(schema, "additionalProperties") != nullptr) return;
  schema.push_back({"additionalProperties", JsonValue{false}});
}

// The schema of a call's arguments, which are an object.
Result<JsonValue> arguments_schema(const Function& function, bool enforced) {
  if (!enforced) return JsonValue{JsonValue::Object{text_member("type", "object")}};
  if (function.parameters == nullptr) {
    JsonValue::Object none = {text_member("type", "object"), {"properties", {JsonValue::Object()}}};
    close_if_empty(none);
    return JsonValue{std::move(none)};
  }
  if (function.parameters->object() == nullptr) {
    return invalid_argument("must be a JSON schema of an object");
  }
  JsonValue schema = *function.parameters;
  const JsonValue* type = find_member(*schema.object(), "type");
  if (type != nullptr && (type->string() == nullptr || *type->string() != "object")) {
    return invalid_argument("must be of type \"object\"");
  }
  constexpr std::array<std::string_view, 4> kOtherForms = {"$ref", "anyOf", "oneOf", "allOf"};
  const bool other_form = std::ranges::any_of(kOtherForms, [&](std::string_view keyword) {
    return find_member(*schema.object(), keyword) != nullptr;
  });
  if (type == nullptr && !other_form) {
    schema.object()->push_back(text_member("type", "object"));
  }
  close_if_empty(*schema.object());
  return schema;
}

Status check_name(const std::string& name) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.' || c == ':' || c == '/';
  };
  if (!name.empty() && std::ranges::all_of(name, plain)) return {};
  return invalid_argument(
      "the name of a tool that is forced or strict has only letters, digits, "
      "'_', '-', '.', ':' and '/'");
}

Result<TaggedPart> part_of(const Tokenizer& tokenizer, std::string_view call,
                           const std::string& name, std::size_t value) {
  std::string text(call);
  text.replace(text.find(kName), kName.size(), name);
  const std::size_t at = text.find(kArguments);
  TaggedPart part;
  part.value = value;
  ASSIGN_OR_RETURN(part.before, grammar_literal(tokenizer, std::string_view(text).substr(0, at)));
  ASSIGN_OR_RETURN(
      part.behind,
      grammar_literal(tokenizer, std::string_view(text).substr(at + kArguments.size())));
  return part;
}

}  // namespace

std::string grammar_bytes(const Tokenizer& tokenizer, TokenId token) {
  if (tokenizer.is_special(token)) {
    return kSpecialTokenMark + std::string(tokenizer.token_text(token));
  }
  std::string bytes = tokenizer.token_bytes(token);
  return bytes.find(kSpecialTokenMark) == std::string::npos ? bytes : std::string();
}

Result<std::string> grammar_literal(const Tokenizer& tokenizer, std::string_view text) {
  ASSIGN_OR_RETURN(const auto ids, tokenizer.encode(text, {AddSpecialTokens::kNo}));
  if (std::ranges::none_of(ids, [&](TokenId id) { return tokenizer.is_special(id); })) {
    return std::string(text);
  }
  std::string bytes;
  for (const TokenId id : ids) bytes += grammar_bytes(tokenizer, id);
  return bytes;
}

bool needs_tool_grammar(const JsonValue& tools, const ToolChoice& choice) {
  if (choice.required || !choice.parallel) return true;
  return std::ranges::any_of(*tools.array(),
                             [](const JsonValue& tool) { return function_of(tool).strict; });
}

Result<TaggedAnswer> tool_grammar(const Tokenizer& tokenizer, const ToolFormat& format,
                                  const JsonValue& tools, const ToolChoice& choice) {
  std::vector<const ToolWriting*> writings;
  for (const ToolWriting& writing : kWritings) {
    if (writing.format == format.name) writings.push_back(&writing);
  }
  CHECK(!writings.empty());
  TaggedAnswer answer;
  answer.text_allowed = !choice.required;
  ASSIGN_OR_RETURN(answer.text_begin, grammar_literal(tokenizer, format.text_begin));
  ASSIGN_OR_RETURN(answer.trigger, grammar_literal(tokenizer, writings.front()->trigger));
  std::vector<std::string> names;  // of `values`
  for (std::size_t i = 0; i < tools.array()->size(); ++i) {
    const Function function = function_of((*tools.array())[i]);
    if (choice.required && !choice.name.empty() && function.name != choice.name) continue;
    const std::string where = fmt::format("tools[{}].function", i);
    if (auto status = check_name(function.name); !status) {
      return invalid_argument(fmt::format("{}.name: {}", where, status.error().message));
    }
    TaggedValue value{where + ".parameters", {}, std::nullopt};
    auto schema = arguments_schema(function, choice.required || function.strict);
    if (!schema) {
      return invalid_argument(fmt::format("{}: {}", value.name, schema.error().message));
    }
    value.schema = *std::move(schema);
    const Pairs pairs = writings.front()->pairs;
    if (pairs != Pairs::kNone) {
      ASSIGN_OR_RETURN(value.pairs, pair_marks(tokenizer, pairs));
    }
    answer.values.push_back(std::move(value));
    names.push_back(function.name);
  }
  const bool one_call = !choice.parallel || !choice.name.empty();
  for (const ToolWriting* writing : writings) {
    TaggedForm form;
    ASSIGN_OR_RETURN(form.open, grammar_literal(tokenizer, writing->open));
    ASSIGN_OR_RETURN(form.close, grammar_literal(tokenizer, writing->close));
    if (writing->between && !one_call) {
      ASSIGN_OR_RETURN(form.between, grammar_literal(tokenizer, *writing->between));
    }
    for (std::size_t i = 0; i < names.size(); ++i) {
      ASSIGN_OR_RETURN(TaggedPart part, part_of(tokenizer, writing->call, names[i], i));
      form.parts.push_back(std::move(part));
    }
    answer.forms.push_back(std::move(form));
  }
  return answer;
}

}  // namespace sluice
