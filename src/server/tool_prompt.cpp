#include "server/tool_prompt.h"

#include <string>
#include <string_view>
#include <utility>

#include "server/json_writer.h"
#include "server/request_json.h"

namespace sluice {
namespace {

std::string description(const JsonValue::Array& tools) {
  std::string text =
      "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
      "You are provided with function signatures within <tools></tools> XML tags:\n<tools>";
  for (const JsonValue& tool : tools) {
    text += '\n';
    append_json(tool, text);
  }
  text +=
      "\n</tools>\n\nFor each function call, return a json object with function name and "
      "arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n"
      "{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>";
  return text;
}

std::string text_of(const JsonValue* content) {
  std::string text;
  if (content == nullptr) return text;
  if (content->string() != nullptr) return *content->string();
  if (content->array() == nullptr) return text;
  for (const JsonValue& part : *content->array()) {
    const JsonValue* piece = part.object() ? find_member(*part.object(), "text") : nullptr;
    if (piece == nullptr || piece->string() == nullptr) continue;
    if (!text.empty()) text += '\n';
    text += *piece->string();
  }
  return text;
}

void set(JsonValue::Object& message, std::string_view name, std::string text) {
  if (JsonValue* value = find_member(message, name)) {
    value->data = std::move(text);
  } else {
    message.push_back({std::string(name), JsonValue{std::move(text)}});
  }
}

std::string_view role_of(const JsonValue::Object& message) {
  return *find_member(message, "role")->string();
}

// <tool_call> {"name": .., "arguments": ..} </tool_call>, each on lines of its own.
std::string call_text(const JsonValue& call) {
  const JsonValue::Object& function = *find_member(*call.object(), "function")->object();
  std::string text = "<tool_call>\n{\"name\": ";
  append_json_string(*find_member(function, "name")->string(), text);
  text += ", \"arguments\": ";
  const JsonValue* arguments = find_member(function, "arguments");
  if (arguments == nullptr) {
    text += "{}";
  } else if (arguments->string() != nullptr) {
    text += *arguments->string();
  } else {
    append_json(*arguments, text);
  }
  return text + "}\n</tool_call>";
}

void write_calls(JsonValue::Object& message) {
  const JsonValue* calls = find_member(message, "tool_calls");
  if (calls == nullptr || calls->array() == nullptr) return;
  std::string text = text_of(find_member(message, "content"));
  for (const JsonValue& call : *calls->array()) {
    if (!text.empty()) text += '\n';
    text += call_text(call);
  }
  set(message, "content", std::move(text));
  std::erase_if(message, [](const JsonMember& member) { return member.name == "tool_calls"; });
}

// Results that follow each other are one message, so that roles still alternate.
void write_results(JsonValue::Array& messages) {
  JsonValue::Array kept;
  bool in_results = false;
  for (JsonValue& value : messages) {
    JsonValue::Object& message = *value.object();
    const bool result = role_of(message) == "tool";
    if (result) {
      std::string text =
          "<tool_response>\n" + text_of(find_member(message, "content")) + "\n</tool_response>";
      if (in_results) {
        JsonValue& before = *find_member(*kept.back().object(), "content");
        before.data = *before.string() + "\n" + text;
      } else {
        kept.push_back(JsonValue{JsonValue::Object{{"role", JsonValue{std::string("user")}},
                                                   {"content", JsonValue{std::move(text)}}}});
      }
    } else {
      kept.push_back(std::move(value));
    }
    in_results = result;
  }
  messages = std::move(kept);
}

}  // namespace

void describe_tools(ChatPart& chat) {
  JsonValue::Array& messages = *chat.messages.array();
  for (JsonValue& message : messages) write_calls(*message.object());
  write_results(messages);
  JsonValue::Object& first = *messages.front().object();
  const std::string text = text_of(find_member(first, "content"));
  const std::string tools = description(*chat.tools.array());
  const std::string_view role = role_of(first);
  if (role == "system" || role == "developer") {
    set(first, "content", text + "\n\n" + tools);
  } else {
    set(first, "content", tools + "\n\n" + text);
  }
  chat.tools = {};
}

}  // namespace sluice
