// Reads the body of OpenAI's /v1/responses: its items become the messages, tool calls and tool
// results of a chat as templates know them. Nothing is stored between calls.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "server/chat_fields.h"
#include "server/dialect_fields.h"
#include "server/generation_call.h"
#include "server/json_build.h"
#include "server/json_writer.h"
#include "server/sampling_fields.h"
#include "server/structured_fields.h"

namespace sluice {
namespace {

constexpr RefusedField kRefusedResponses[] = {
    {"previous_response_id", Neutral::kNull, "responses are not kept; send the items before"},
    {"conversation", Neutral::kNull, "conversations are not kept; send the items before"},
    {"background", Neutral::kFalse, "wait for the answer, or stream it"},
    {"store", Neutral::kFalse, "responses are not kept; save them yourself"},
    {"prompt", Neutral::kNull, "there are no stored prompts; send the text"},
    {"max_tool_calls", Neutral::kNull, "this server calls no tools itself"},
    {"top_logprobs", Neutral::kZero, "ask /v1/chat/completions for log-probabilities"},
    {"context_management", Neutral::kEmpty, "send the items that the model should see"},
};

class ResponsesReader {
 public:
  ResponsesReader(FieldReader& reader, GenerationCall& call) : reader_(reader), call_(call) {
    call_.chat.messages.data = JsonValue::Array();
  }

  void read_input() {
    if (const std::string* text = reader_.string("instructions", kAnyLength)) {
      add_message("system", JsonValue{*text});
      instructions_ = text;
    }
    const JsonValue* input = reader_.find("input");
    if (input == nullptr) {
      if (!reader_.failed()) reader_.missing("input", "a string or an array of items");
      return;
    }
    if (input->string() != nullptr) return add_message("user", JsonValue{*input->string()});
    if (input->array() == nullptr || input->array()->empty()) {
      return reader_.mistyped("input", *input, "a string or a non-empty array of items");
    }
    const JsonValue::Array& items = *input->array();
    for (std::size_t i = 0; i < items.size() && !reader_.failed(); ++i) {
      read_item(items[i], fmt::format("input[{}]", i));
    }
    if (call_.chat.messages.array()->empty() && !reader_.failed()) {
      reader_.bad("input", "has no message; expected at least one");
    }
  }

  void read_tools() {
    const JsonValue::Array* tools = reader_.array("tools");
    if (tools == nullptr || tools->empty()) return;
    if (tools->size() > kMaxTools) {
      return reader_.bad(
          "tools", fmt::format("got {} tools; at most {} are served", tools->size(), kMaxTools));
    }
    JsonValue::Array read;
    for (std::size_t i = 0; i < tools->size() && !reader_.failed(); ++i) {
      read_tool((*tools)[i], fmt::format("tools[{}]", i), read);
    }
    call_.chat.tools.data = std::move(read);
  }

  void read_tool_choice() {
    reader_.read_into("parallel_tool_calls", call_.tool_choice.parallel);
    const JsonValue* choice = reader_.find("tool_choice");
    if (choice == nullptr) return;
    const std::string* text = choice->string();
    const JsonValue::Object* object = choice->object();
    const std::string* type = object == nullptr ? nullptr : find_text(*object, "type");
    const std::string* name = object == nullptr ? nullptr : find_text(*object, "name");
    if (text != nullptr && *text == "none") {
      call_.chat.tools = {};
    } else if (text != nullptr && *text == "required") {
      call_.tool_choice.required = true;
    } else if (type != nullptr && *type == "function" && name != nullptr) {
      call_.tool_choice.required = true;
      call_.tool_choice.name = *name;
    } else if (type != nullptr && *type == "allowed_tools") {
      read_allowed_tools(reader_, "tool_choice", *object, call_);
    } else if (text == nullptr || *text != "auto") {
      reader_.unsupported("tool_choice",
                          fmt::format("got {}; expected \"auto\", \"none\", \"required\" or "
                                      R"({{"type": "function", "name": ...}})",
                                      shown_value(*choice)));
    }
  }

  // {"format": {"type": "json_schema", "name": .., "schema": ..}}
  void read_text_config() {
    const JsonValue::Object* text = reader_.object("text");
    const JsonValue* format = text == nullptr ? nullptr : find_member(*text, "format");
    if (format == nullptr || format->is_null()) return;
    const JsonValue::Object* object = format->object();
    const std::string* type = object == nullptr ? nullptr : find_text(*object, "type");
    if (type != nullptr && *type == "text") return;
    if (type != nullptr && *type == "json_object") {
      return set_json_object(reader_, call_, "text.format");
    }
    const JsonValue* schema = object == nullptr ? nullptr : find_member(*object, "schema");
    if (type == nullptr || *type != "json_schema" || schema == nullptr) {
      return reader_.bad("text.format",
                         "expected the type \"text\", \"json_object\", or \"json_schema\" with a "
                         "schema");
    }
    set_json_schema(reader_, call_, "text.format.schema", *schema);
  }

  void read_reasoning() {
    const JsonValue::Object* reasoning = reader_.object("reasoning");
    const std::string* effort = reasoning == nullptr ? nullptr : find_text(*reasoning, "effort");
    if (effort == nullptr) return;
    set_variable(call_.chat, "reasoning_effort", JsonValue{*effort});
    set_variable(call_.chat, "enable_thinking", JsonValue{*effort != "none"});
  }

  void read_hints() {
    if (const JsonValue::Array* include = reader_.array("include")) {
      for (const JsonValue& item : *include) {
        // Reasoning stands in the answer as it is.
        if (item.string() != nullptr && *item.string() == "reasoning.encrypted_content") continue;
        reader_.unsupported("include", fmt::format("got {}", shown_value(item)));
      }
    }
    const std::string* truncation = reader_.string("truncation", 64);
    if (truncation != nullptr && *truncation == "auto") {
      call_.truncate_prompt_tokens = -1;
    } else if (truncation != nullptr && *truncation != "disabled") {
      reader_.bad("truncation", fmt::format("got {}; expected \"auto\" or \"disabled\"",
                                            shown_value(JsonValue{*truncation})));
    }
    const std::string* user = reader_.string("user", kMaxUserBytes);
    const std::string* safety = reader_.string("safety_identifier", kMaxUserBytes);
    if (user == nullptr) user = safety;
    if (user != nullptr) call_.user = *user;
    for (const std::string_view hint : {"prompt_cache_key", "service_tier", "stream_options"}) {
      reader_.find(hint);
    }
    read_cache_retention(reader_, call_);
  }

  // Members of the request that the answer repeats.
  std::string repeated_json() {
    std::string out = R"("instructions":)";
    if (instructions_ != nullptr) {
      append_json_string(*instructions_, out);
    } else {
      out += "null";
    }
    const auto add = [&](std::string_view name, std::string_view missing) {
      const JsonValue* value = reader_.find(name);
      out += fmt::format(R"(,"{}":)", name);
      if (value == nullptr) {
        out += missing;
      } else {
        append_json(*value, out);
      }
    };
    add("max_output_tokens", "null");
    add("metadata", "{}");
    add("parallel_tool_calls", "true");
    add("reasoning", "null");
    add("temperature", "null");
    add("text", R"({"format":{"type":"text"}})");
    add("tool_choice", R"("auto")");
    add("tools", "[]");
    add("top_p", "null");
    add("truncation", R"("disabled")");
    add("user", "null");
    return out + R"(,"background":false,"previous_response_id":null,"store":false)";
  }

 private:
  static constexpr std::size_t kAnyLength = std::size_t{1} << 40;

  void add_message(std::string role, JsonValue content) {
    call_.chat.messages.array()->push_back(
        tree({text_member("role", std::move(role)), tree_member("content", std::move(content))}));
  }

  void read_item(const JsonValue& value, const std::string& where) {
    const JsonValue::Object* item = value.object();
    if (item == nullptr) return reader_.mistyped(where, value, "an object");
    const std::string* type = find_text(*item, "type");
    if (type == nullptr || *type == "message") return read_message(*item, where);
    if (*type == "function_call") return read_call(*item, where);
    if (*type == "function_call_output") return read_output(*item, where);
    if (*type == "reasoning") return;  // templates leave out earlier reasoning
    reader_.unsupported(where + ".type",
                        fmt::format("got {}; expected \"message\", \"function_call\", "
                                    "\"function_call_output\" or \"reasoning\"",
                                    shown_value(JsonValue{*type})));
  }

  void read_message(const JsonValue::Object& item, const std::string& where) {
    constexpr std::array<std::string_view, 4> kRoles = {"user", "assistant", "system", "developer"};
    const std::string* role = find_text(item, "role");
    if (role == nullptr || std::ranges::find(kRoles, *role) == kRoles.end()) {
      return reader_.bad(where + ".role",
                         "expected \"user\", \"assistant\", \"system\" or \"developer\"");
    }
    JsonValue content;
    if (!read_content(find_member(item, "content"), where + ".content", content)) return;
    add_message(*role == "developer" ? "system" : *role, std::move(content));
  }

  // A string, or parts of text.
  bool read_content(const JsonValue* value, const std::string& where, JsonValue& out) {
    if (value != nullptr && value->string() != nullptr) {
      out = *value;
      return true;
    }
    if (value == nullptr || value->array() == nullptr || value->array()->empty()) {
      reader_.bad(where, "expected a string or a non-empty array of text parts");
      return false;
    }
    JsonValue::Array parts;
    for (std::size_t i = 0; i < value->array()->size(); ++i) {
      const JsonValue::Object* part = (*value->array())[i].object();
      const std::string* type = part == nullptr ? nullptr : find_text(*part, "type");
      const std::string* text = part == nullptr ? nullptr : find_text(*part, "text");
      const bool is_text =
          type != nullptr && (*type == "input_text" || *type == "output_text" || *type == "text");
      if (!is_text || text == nullptr) {
        reader_.unsupported(fmt::format("{}[{}]", where, i),
                            "is not a part of text; this model reads \"input_text\" and "
                            "\"output_text\"");
        return false;
      }
      parts.push_back(text_part(*text));
    }
    out =
        parts.size() == 1 ? *find_member(*parts[0].object(), "text") : JsonValue{std::move(parts)};
    return true;
  }

  // Calls behind an assistant's message are part of it.
  void read_call(const JsonValue::Object& item, const std::string& where) {
    const std::string* id = find_text(item, "call_id");
    const std::string* name = find_text(item, "name");
    const std::string* arguments = find_text(item, "arguments");
    if (id == nullptr || name == nullptr || arguments == nullptr) {
      return reader_.bad(where, "expected call_id, name and arguments, which are strings");
    }
    JsonValue::Array& messages = *call_.chat.messages.array();
    if (messages.empty() || *find_text(*messages.back().object(), "role") != "assistant") {
      messages.push_back(tree({text_member("role", "assistant")}));
    }
    JsonValue::Object& message = *messages.back().object();
    JsonValue* calls = find_member(message, "tool_calls");
    if (calls == nullptr) {
      message.push_back(tree_member("tool_calls", JsonValue{JsonValue::Array()}));
      calls = &message.back().value;
    }
    calls->array()->push_back(function_call(*id, *name, *arguments));
  }

  void read_output(const JsonValue::Object& item, const std::string& where) {
    const std::string* id = find_text(item, "call_id");
    if (id == nullptr) return reader_.bad(where + ".call_id", "is missing; expected a string");
    JsonValue content;
    if (!read_content(find_member(item, "output"), where + ".output", content)) return;
    call_.chat.messages.array()->push_back(
        tree({text_member("role", "tool"), text_member("tool_call_id", *id),
              tree_member("content", std::move(content))}));
  }

  void read_tool(const JsonValue& value, const std::string& where, JsonValue::Array& read) {
    const JsonValue::Object* tool = value.object();
    const std::string* type = tool == nullptr ? nullptr : find_text(*tool, "type");
    if (type == nullptr || *type != "function") {
      return reader_.unsupported(where + ".type", "only \"function\" is served");
    }
    const std::string* name = find_text(*tool, "name");
    if (name == nullptr || name->empty()) {
      return reader_.bad(where + ".name", "is missing; expected a string");
    }
    read.push_back(function_tool(*name, find_member(*tool, "description"),
                                 find_member(*tool, "parameters"), find_member(*tool, "strict")));
  }

  FieldReader& reader_;
  GenerationCall& call_;
  const std::string* instructions_ = nullptr;
};

}  // namespace

ApiResult<GenerationCall> parse_responses_call(std::string_view body, BodyReading reading) {
  auto object = parse_request_json(body);
  if (!object) return tl::unexpected(object.error());
  GenerationCall call;
  FieldReader reader(*object, "", ignored_of(call, reading), reading.fields);
  call.dialect = Dialect::kResponses;
  call.add_special_tokens = false;  // the template has them
  read_basic_fields(reader, call);
  read_output_limit(reader, "max_output_tokens", call);
  ResponsesReader responses(reader, call);
  responses.read_input();
  responses.read_tools();
  responses.read_tool_choice();
  responses.read_text_config();
  responses.read_reasoning();
  responses.read_hints();
  check_tool_choice(reader, "tool_choice", call);
  reader.refuse_unless_neutral(kRefusedResponses);
  call.repeated_json = responses.repeated_json();
  check_sampling(reader, call, "max_output_tokens", "top_logprobs");
  reader.check_unknown();
  if (reader.failed()) return tl::unexpected(*reader.error());
  return call;
}

}  // namespace sluice
