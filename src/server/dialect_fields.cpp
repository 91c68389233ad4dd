#include "server/dialect_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "server/json_build.h"
#include "server/sampling_fields.h"

namespace sluice {

void read_basic_fields(FieldReader& reader, GenerationCall& call) {
  if (const std::string* model = reader.string("model", kMaxModelBytes)) {
    call.model = *model;
  } else if (!reader.failed()) {
    reader.missing("model", "the name of a served model; GET /v1/models lists them");
  }
  reader.read_into("temperature", call.sampling.temperature, &call.given.temperature);
  reader.read_into("top_p", call.sampling.top_p, &call.given.top_p);
  reader.read_into("stream", call.stream);
}

void read_output_limit(FieldReader& reader, std::string_view name, GenerationCall& call) {
  const auto limit = reader.integer(name, 1, std::numeric_limits<std::int32_t>::max());
  if (!limit) return;
  call.sampling.max_tokens = static_cast<std::int32_t>(*limit);
  call.given.max_tokens = true;
}

JsonValue function_tool(const std::string& name, const JsonValue* description,
                        const JsonValue* schema, const JsonValue* strict) {
  JsonValue::Object function = {text_member("name", name)};
  const auto keep = [&](const char* field, const JsonValue* value) {
    if (value != nullptr && !value->is_null()) function.push_back(tree_member(field, *value));
  };
  keep("description", description);
  keep("parameters", schema);
  keep("strict", strict);
  return tree(
      {text_member("type", "function"), tree_member("function", tree(std::move(function)))});
}

JsonValue function_call(const std::string& id, const std::string& name, std::string arguments) {
  return tree({text_member("id", id), text_member("type", "function"),
               tree_member("function", tree({text_member("name", name),
                                             text_member("arguments", std::move(arguments))}))});
}

void set_variable(ChatPart& chat, std::string_view name, JsonValue value) {
  if (chat.variables.is_null()) chat.variables.data = JsonValue::Object();
  chat.variables.object()->push_back({std::string(name), std::move(value)});
}

namespace {

// The name in {"name": ...} or {"function": {"name": ...}}; null: it has none.
const std::string* tool_name(const JsonValue& tool) {
  if (tool.object() == nullptr) return nullptr;
  const JsonValue* function = find_member(*tool.object(), "function");
  const JsonValue& holder = function != nullptr ? *function : tool;
  const JsonValue* name =
      holder.object() == nullptr ? nullptr : find_member(*holder.object(), "name");
  return name == nullptr ? nullptr : name->string();
}

}  // namespace

void read_allowed_tools(FieldReader& reader, const std::string& field,
                        const JsonValue::Object& allowed, GenerationCall& call) {
  const JsonValue* mode = find_member(allowed, "mode");
  const JsonValue* tools = find_member(allowed, "tools");
  const std::string* text = mode == nullptr ? nullptr : mode->string();
  if (text == nullptr || (*text != "auto" && *text != "required")) {
    return reader.bad(field + ".mode", R"(expected "auto" or "required")");
  }
  if (tools == nullptr || tools->array() == nullptr || tools->array()->empty()) {
    return reader.bad(field + ".tools", "expected a non-empty array of tools by name");
  }
  JsonValue::Array kept;
  const JsonValue::Array none;
  const JsonValue::Array& given = call.chat.tools.is_null() ? none : *call.chat.tools.array();
  for (std::size_t i = 0; i < tools->array()->size(); ++i) {
    const std::string* name = tool_name((*tools->array())[i]);
    const auto known = std::ranges::find_if(
        given, [&](const JsonValue& tool) { return name != nullptr && *tool_name(tool) == *name; });
    if (known == given.end()) {
      return reader.bad(fmt::format("{}.tools[{}]", field, i), "names no tool among tools");
    }
    kept.push_back(*known);
  }
  call.chat.tools.data = std::move(kept);
  call.tool_choice.required = *text == "required";
}

void check_tool_choice(FieldReader& reader, std::string_view field, const GenerationCall& call) {
  if (!call.tool_choice.required || reader.failed()) return;
  if (call.chat.tools.is_null()) {
    reader.bad(field, "asks for a call, but there are no tools; give tools");
    return;
  }
  const std::string& name = call.tool_choice.name;
  const bool known = std::ranges::any_of(*call.chat.tools.array(), [&](const JsonValue& tool) {
    const JsonValue& function = *find_member(*tool.object(), "function");
    return *find_member(*function.object(), "name")->string() == name;
  });
  if (name.empty() || known) return;
  reader.bad(field,
             fmt::format("names {}, which is not among tools", shown_value(JsonValue{name})));
}

}  // namespace sluice
