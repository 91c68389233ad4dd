#include "front/tool_format.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json.h"
#include "base/json_depth.h"
#include "front/tool_literals.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;
using Calls = std::vector<ToolCall>;

constexpr std::array<std::string_view, 2> kDeepSeekMarkers = {"<｜tool▁calls▁begin｜>",
                                                              "<｜tool▁calls▁end｜>"};
constexpr std::array<std::string_view, 2> kKimiMarkers = {"<|tool_calls_section_begin|>",
                                                          "<|tool_calls_section_end|>"};
constexpr std::array<std::string_view, 1> kLlamaMarkers = {"<|python_tag|>"};
constexpr std::array<std::string_view, 1> kGigaChatMarkers = {"<|message_sep|>"};
constexpr std::array<std::string_view, 2> kPythonMarkers = {"<|python_start|>", "<|python_end|>"};
// The headers and ends of gpt-oss's messages. None of them is the beginning of another.
constexpr std::array<std::string_view, 9> kHarmonyMarkers = {"<|start|>assistant",
                                                             "<|channel|>final",
                                                             "<|channel|>commentary",
                                                             "<|channel|>analysis",
                                                             "<|message|>",
                                                             "<|constrain|>json",
                                                             "<|end|>",
                                                             "<|return|>",
                                                             "<|call|>"};

constexpr std::array<ToolFormat, 26> kToolFormats = {{
    {"hermes", "<tool_call>", "</tool_call>"},
    {"qwen3_coder", "<tool_call>", "</tool_call>", ToolBody::kFunctionTags},
    {"glm45", "<tool_call>", "</tool_call>", ToolBody::kArgPairs},
    {"seed_oss", "<seed:tool_call>", "</seed:tool_call>", ToolBody::kFunctionTags},
    {"mistral", "[TOOL_CALLS]", "", ToolBody::kMistral},
    {"deepseek_v3", "<｜tool▁call▁begin｜>function<｜tool▁sep｜>", "<｜tool▁call▁end｜>",
     ToolBody::kSeparated, "\n```json\n", kDeepSeekMarkers},
    {"deepseek_v31", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", ToolBody::kSeparated,
     "<｜tool▁sep｜>", kDeepSeekMarkers},
    {"deepseek_v32", "<｜DSML｜function_calls>", "</｜DSML｜function_calls>", ToolBody::kInvokes},
    {"deepseek_v4", "<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>", ToolBody::kInvokes},
    {"kimi_k2", "<|tool_call_begin|>", "<|tool_call_end|>", ToolBody::kSeparated,
     "<|tool_call_argument_begin|>", kKimiMarkers},
    {"functionary_v3", "<function=", "</function>", ToolBody::kSeparated, ">"},
    {"cohere", "<|START_ACTION|>", "<|END_ACTION|>"},
    {"command_r_plus", "Action:\n```json\n", "```"},
    {"apriel", "<tool_calls>", "</tool_calls>"},
    {"apertus", "<|tools_prefix|>", "<|tools_suffix|>", ToolBody::kNamedObjects},
    {"gigachat3", "<|function_call|>", ""},
    {"granite", "<|tool_call|>", ""},
    {"granite-20b-fc", "<function_call>", ""},
    {"llama3_json", "", "", ToolBody::kJson, {}, kLlamaMarkers},
    {"openai",
     " to=functions.",
     "",
     ToolBody::kHarmony,
     {},
     kHarmonyMarkers,
     "<|channel|>final<|message|>"},
    {"gemma4", "<|tool_call>", "<tool_call|>", ToolBody::kGemma, "<|\"|>"},
    {"functiongemma", "<start_function_call>", "<end_function_call>", ToolBody::kGemma, "<escape>"},
    {"lfm2", "<|tool_call_start|>", "<|tool_call_end|>", ToolBody::kPython},
    {"gigachat3_role", "function call<|role_sep|>", "", ToolBody::kJson, {}, kGigaChatMarkers},
    {"functionary_v32",
     ">>>",
     "",
     ToolBody::kSeparated,
     "\n",
     {},
     "all\n",
     /*prompt_has_begin=*/true},
    {"pythonic", "", "", ToolBody::kPython, {}, kPythonMarkers},
}};

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

std::optional<Json> parse_value(std::string_view text) {
  constexpr int kMaxDepth = 128;
  if (json_deeper_than(text, kMaxDepth)) return std::nullopt;
  Json value = parse_ordered_json(text);
  if (value.is_discarded()) return std::nullopt;
  return std::optional<Json>(std::move(value));
}

std::string text_of(const Json& value) { return dump_json(value); }

// Arguments are an object, also as the text of one.
std::optional<std::string> arguments_text(const Json& value) {
  if (value.is_object()) return text_of(value);
  if (value.is_null()) return "{}";
  if (!value.is_string()) return std::nullopt;
  const auto inner = parse_value(value.get_ref<const std::string&>());
  if (!inner || !inner->is_object()) return std::nullopt;
  return text_of(*inner);
}

bool add_call(const std::string& name, const Json& arguments, Calls& calls) {
  auto text = arguments_text(arguments);
  if (!text || name.empty()) return false;
  calls.push_back({name, *std::move(text), /*cut=*/false});
  return true;
}

const Json* member(const Json& object, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const auto found = object.find(name);
    if (found != object.end()) return &*found;
  }
  return nullptr;
}

bool add_json_call(const Json& item, Calls& calls) {
  if (!item.is_object()) return false;
  const Json* function = member(item, {"function"});
  if (function != nullptr && function->is_object()) return add_json_call(*function, calls);
  const Json* name = member(item, {"name", "tool_name"});
  const Json* arguments = member(item, {"arguments", "parameters"});
  if (name == nullptr || !name->is_string()) return false;
  return add_call(name->get<std::string>(), arguments == nullptr ? Json() : *arguments, calls);
}

bool add_named_object(const Json& item, Calls& calls) {
  if (!item.is_object() || item.size() != 1) return false;
  return add_call(item.begin().key(), item.begin().value(), calls);
}

bool read_json(std::string_view body, bool (*add)(const Json&, Calls&), Calls& calls) {
  const auto value = parse_value(trimmed(body));
  if (!value) return false;
  if (!value->is_array()) return add(*value, calls);
  return std::all_of(value->begin(), value->end(),
                     [&](const Json& item) { return add(item, calls); });
}

bool is_tool_name(std::string_view name) {
  return std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.' || c == ':' || c == '/';
  });
}

bool read_separated(std::string_view body, std::string_view separator, Calls& calls) {
  const std::size_t at = body.find(separator);
  if (at == std::string_view::npos) return false;
  std::string_view text = trimmed(body.substr(at + separator.size()));
  constexpr std::string_view kFence = "```";
  if (text.ends_with(kFence)) text.remove_suffix(kFence.size());
  const std::string_view name = clean_tool_name(body.substr(0, at));
  if (!is_tool_name(name)) return false;
  const auto arguments = parse_value(text);
  return arguments && add_call(std::string(name), *arguments, calls);
}

bool read_mistral(std::string_view body, Calls& calls) {
  constexpr std::string_view kArgs = "[ARGS]";
  const std::size_t args = body.find(kArgs);
  if (trimmed(body).starts_with('[') || args == std::string_view::npos) {
    return read_json(body, add_json_call, calls);
  }
  const std::string_view name = body.substr(0, std::min(args, body.find("[CALL_ID]")));
  const auto arguments = parse_value(trimmed(body.substr(args + kArgs.size())));
  return arguments && add_call(std::string(trimmed(name)), *arguments, calls);
}

// The recipient's name ends where the rest of the message's header begins.
bool read_harmony(std::string_view body, Calls& calls) {
  constexpr std::string_view kMessage = "<|message|>";
  const std::size_t message = body.find(kMessage);
  if (message == std::string_view::npos) return false;
  const std::string_view name = body.substr(0, std::min(body.find(' '), body.find("<|")));
  std::string_view text = body.substr(message + kMessage.size());
  text = text.substr(0, text.find("<|call|>"));
  const auto arguments = parse_value(trimmed(text));
  return arguments && add_call(std::string(name), *arguments, calls);
}

bool take_calls(std::optional<Calls> found, Calls& calls) {
  if (!found) return false;
  calls = *std::move(found);
  return true;
}

bool read_gemma(std::string_view body, std::string_view quote, Calls& calls) {
  auto call = read_gemma_call(body, quote);
  if (!call) return false;
  calls.push_back(*std::move(call));
  return true;
}

// A value that stands without quotes.
Json bare_value(std::string_view text, std::string_view type) {
  if (type == "string") return Json(std::string(text));
  const auto value = parse_value(trimmed(text));
  return value ? *value : Json(std::string(text));
}

// Takes what stands before `mark` off the front of `text`, and the mark; nothing when there is no
// mark.
std::optional<std::string_view> take_until(std::string_view& text, std::string_view mark) {
  const std::size_t at = text.find(mark);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view before = text.substr(0, at);
  text.remove_prefix(at + mark.size());
  return before;
}

bool skip(std::string_view& text, std::string_view mark) {
  text = text.substr(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  if (!text.starts_with(mark)) return false;
  text.remove_prefix(mark.size());
  return true;
}

// Values stand on lines of their own, or between the tags.
std::string_view without_line_breaks(std::string_view value) {
  if (value.starts_with('\n')) value.remove_prefix(1);
  if (value.ends_with('\n')) value.remove_suffix(1);
  return value;
}

bool read_function_tags(std::string_view body, const ToolParameters& parameters, Calls& calls) {
  while (!trimmed(body).empty()) {
    if (!skip(body, "<function=")) return false;
    const auto name = take_until(body, ">");
    if (!name) return false;
    const std::string tool(trimmed(*name));
    Json arguments = Json::object();
    while (skip(body, "<parameter=")) {
      const auto key = take_until(body, ">");
      const auto value = take_until(body, "</parameter>");
      if (!key || !value) return false;
      const std::string parameter(trimmed(*key));
      arguments[parameter] =
          bare_value(without_line_breaks(*value), parameters.type_of(tool, parameter));
    }
    if (!skip(body, "</function>") || !add_call(tool, arguments, calls)) return false;
  }
  return true;
}

bool read_arg_pairs(std::string_view body, const ToolParameters& parameters, Calls& calls) {
  const std::size_t first = std::min(body.find("<arg_key>"), body.size());
  const std::string tool(trimmed(body.substr(0, first)));
  if (!is_tool_name(tool)) return false;  // another format's text
  body.remove_prefix(first);
  Json arguments = Json::object();
  while (skip(body, "<arg_key>")) {
    const auto key = take_until(body, "</arg_key>");
    if (!key || !skip(body, "<arg_value>")) return false;
    const auto value = take_until(body, "</arg_value>");
    if (!value) return false;
    const std::string parameter(trimmed(*key));
    arguments[parameter] = bare_value(*value, parameters.type_of(tool, parameter));
  }
  return trimmed(body).empty() && add_call(tool, arguments, calls);
}

bool read_invokes(std::string_view body, Calls& calls) {
  while (!trimmed(body).empty()) {
    if (!skip(body, "<｜DSML｜invoke name=\"")) return false;
    const auto tool = take_until(body, "\">");
    if (!tool) return false;
    Json arguments = Json::object();
    while (skip(body, "<｜DSML｜parameter name=\"")) {
      const auto key = take_until(body, "\" string=\"");
      const auto is_string = take_until(body, "\">");
      const auto value = take_until(body, "</｜DSML｜parameter>");
      if (!key || !is_string || !value) return false;
      arguments[std::string(*key)] = bare_value(*value, *is_string == "true" ? "string" : "");
    }
    if (!skip(body, "</｜DSML｜invoke>")) return false;
    if (!add_call(std::string(*tool), arguments, calls)) return false;
  }
  return true;
}

bool read_body(const ToolFormat& format, std::string_view body, const ToolParameters& parameters,
               Calls& calls) {
  switch (format.body) {
    case ToolBody::kJson: return read_json(body, add_json_call, calls);
    case ToolBody::kNamedObjects: return read_json(body, add_named_object, calls);
    case ToolBody::kSeparated: return read_separated(body, format.separator, calls);
    case ToolBody::kMistral: return read_mistral(body, calls);
    case ToolBody::kFunctionTags: return read_function_tags(body, parameters, calls);
    case ToolBody::kArgPairs: return read_arg_pairs(body, parameters, calls);
    case ToolBody::kInvokes: return read_invokes(body, calls);
    case ToolBody::kHarmony: return read_harmony(body, calls);
    case ToolBody::kGemma: return read_gemma(body, format.separator, calls);
    case ToolBody::kPython: return take_calls(read_python_calls(body), calls);
  }
  return false;
}

}  // namespace

ToolParameters ToolParameters::from_json(std::string_view tools_json) {
  ToolParameters found;
  const auto tools = parse_value(tools_json);
  if (!tools || !tools->is_array()) return found;
  for (const Json& tool : *tools) {
    const Json* function = tool.is_object() ? member(tool, {"function"}) : nullptr;
    if (function == nullptr || !function->is_object()) continue;
    const Json* name = member(*function, {"name"});
    const Json* schema = member(*function, {"parameters"});
    if (name == nullptr || !name->is_string()) continue;
    found.names_.insert(name->get<std::string>());
    if (schema == nullptr || !schema->is_object()) continue;
    const Json* properties = member(*schema, {"properties"});
    if (properties == nullptr || !properties->is_object()) continue;
    for (const auto& [key, property] : properties->items()) {
      const Json* type = property.is_object() ? member(property, {"type"}) : nullptr;
      if (type == nullptr || !type->is_string()) continue;
      found.types_[{name->get<std::string>(), key}] = type->get<std::string>();
    }
  }
  return found;
}

std::string_view ToolParameters::type_of(const std::string& tool,
                                         const std::string& parameter) const {
  const auto found = types_.find({tool, parameter});
  return found == types_.end() ? std::string_view() : std::string_view(found->second);
}

std::string_view clean_tool_name(std::string_view name) {
  name = trimmed(name);
  constexpr std::string_view kPrefix = "functions.";
  if (!name.starts_with(kPrefix)) return name;
  name.remove_prefix(kPrefix.size());
  return name.substr(0, name.rfind(':'));
}

std::span<const ToolFormat> tool_formats() { return kToolFormats; }

const ToolFormat* find_tool_format(std::string_view name) {
  const auto found = std::ranges::find(kToolFormats, name, &ToolFormat::name);
  return found == kToolFormats.end() ? nullptr : &*found;
}

std::optional<std::vector<ToolCall>> parse_tool_body(const ToolFormat& format,
                                                     std::string_view body,
                                                     const ToolParameters& parameters) {
  Calls calls;
  if (!read_body(format, body, parameters, calls) || calls.empty()) return std::nullopt;
  return calls;
}

}  // namespace sluice
