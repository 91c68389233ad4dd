#include "server/chat_fields.h"

#include <fmt/format.h>

#include <utility>

namespace sluice {
namespace {

constexpr RefusedField kRefused[] = {
    {"chat_template", Neutral::kNull, "the model's own template is used"},
    {"documents", Neutral::kEmpty, "give them in chat_template_kwargs if the template reads them"},
    {"media_io_kwargs", Neutral::kEmpty, "this model reads text only"},
    {"mm_processor_kwargs", Neutral::kEmpty, "this model reads text only"},
};

void read_template_variables(FieldReader& reader, JsonValue::Object& body, JsonValue& out) {
  const JsonValue* value = reader.find("chat_template_kwargs");
  if (value == nullptr) return;
  if (value->object() == nullptr) {
    reader.mistyped("chat_template_kwargs", *value, "an object");
    return;
  }
  for (const std::string_view own :
       {"messages", "tools", "add_generation_prompt", "continue_final_message"}) {
    if (find_member(*value->object(), own) == nullptr) continue;
    reader.bad(fmt::format("chat_template_kwargs.{}", own),
               "is a field of the request itself; give it there");
  }
  if (!value->object()->empty()) out = std::move(*find_member(body, "chat_template_kwargs"));
}

void check_tool(FieldReader& reader, const JsonValue& value, const std::string& where) {
  const JsonValue::Object* tool = value.object();
  if (tool == nullptr) {
    reader.mistyped(where, value, R"({"type": "function", "function": ...})");
    return;
  }
  const JsonValue* type = find_member(*tool, "type");
  if (type == nullptr || type->string() == nullptr) {
    reader.bad(where + ".type", "is missing; expected \"function\"");
    return;
  }
  if (*type->string() != "function") {
    reader.unsupported(where + ".type",
                       fmt::format("got {}; only \"function\" is served", shown_value(*type)));
    return;
  }
  const JsonValue* function = find_member(*tool, "function");
  if (function == nullptr || function->object() == nullptr) {
    reader.bad(where + ".function", "is missing; expected an object with a name");
    return;
  }
  const JsonValue* name = find_member(*function->object(), "name");
  if (name == nullptr || name->string() == nullptr || name->string()->empty()) {
    reader.bad(where + ".function.name", "is missing; expected a string");
  }
}

}  // namespace

void read_chat_fields(FieldReader& reader, JsonValue::Object& body, ChatPart& chat) {
  read_messages(reader, body, chat.messages);
  read_template_variables(reader, body, chat.variables);
  const auto add_generation_prompt = reader.boolean("add_generation_prompt");
  reader.read_into("continue_final_message", chat.continue_final_message);
  chat.add_generation_prompt = add_generation_prompt.value_or(!chat.continue_final_message);
  if (chat.continue_final_message && chat.add_generation_prompt) {
    reader.bad("continue_final_message",
               "is true together with add_generation_prompt; the last message is either continued "
               "or answered");
  }
  reader.refuse_unless_neutral(kRefused);
}

void read_tools(FieldReader& reader, JsonValue::Object& body, JsonValue& out) {
  const JsonValue* value = reader.find("tools");
  if (value == nullptr) return;
  const JsonValue::Array* tools = value->array();
  if (tools == nullptr || tools->size() > kMaxTools) {
    reader.bad("tools", fmt::format("got {}; expected an array of at most {} tools",
                                    tools == nullptr ? shown_value(*value)
                                                     : fmt::format("{} tools", tools->size()),
                                    kMaxTools));
    return;
  }
  for (std::size_t i = 0; i < tools->size() && !reader.failed(); ++i) {
    check_tool(reader, (*tools)[i], fmt::format("tools[{}]", i));
  }
  if (!tools->empty()) out = std::move(*find_member(body, "tools"));
}

}  // namespace sluice
