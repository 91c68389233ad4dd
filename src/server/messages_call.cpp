// Reads the body of Anthropic's /v1/messages: its blocks become the messages, tool calls and tool
// results of a chat as templates know them.
#include <fmt/format.h>

#include <string>
#include <utility>

#include "server/chat_fields.h"
#include "server/dialect_fields.h"
#include "server/generation_call.h"
#include "server/json_build.h"
#include "server/sampling_fields.h"
#include "server/structured_fields.h"

namespace sluice {
namespace {

constexpr RefusedField kRefusedMessages[] = {
    {"container", Neutral::kNull, "nothing is executed here"},
    {"mcp_servers", Neutral::kEmpty, "call the servers yourself and give tools"},
    {"context_management", Neutral::kNull, "send the messages that the model should see"},
};

class MessagesReader {
 public:
  MessagesReader(FieldReader& reader, GenerationCall& call) : reader_(reader), call_(call) {
    call_.chat.messages.data = JsonValue::Array();
  }

  void read_system() {
    const JsonValue* system = reader_.find("system");
    if (system == nullptr) return;
    JsonValue::Array parts;
    if (!read_texts(*system, "system", parts)) return;
    add_message("system", std::move(parts), {}, {});
  }

  void read_messages() {
    const JsonValue::Array* messages = reader_.array("messages");
    if (messages == nullptr || messages->empty()) {
      if (!reader_.failed()) reader_.missing("messages", "a non-empty array of messages");
      return;
    }
    for (std::size_t i = 0; i < messages->size() && !reader_.failed(); ++i) {
      read_message((*messages)[i], fmt::format("messages[{}]", i));
    }
    if (reader_.failed()) return;
    const JsonValue::Object& last = *call_.chat.messages.array()->back().object();
    if (*find_text(last, "role") != "assistant") return;
    if (find_member(last, "tool_calls") != nullptr) {
      reader_.bad("messages", "ends with tool_use; expected its tool_result behind it");
    }
    call_.chat.continue_final_message = true;
    call_.chat.add_generation_prompt = false;
  }

  void read_tools() {
    const JsonValue::Array* tools = reader_.array("tools");
    if (tools == nullptr || tools->empty()) return;
    if (tools->size() > kMaxTools) {
      reader_.bad("tools",
                  fmt::format("got {} tools; at most {} are served", tools->size(), kMaxTools));
      return;
    }
    JsonValue::Array read;
    for (std::size_t i = 0; i < tools->size() && !reader_.failed(); ++i) {
      read_tool((*tools)[i], fmt::format("tools[{}]", i), read);
    }
    call_.chat.tools.data = std::move(read);
  }

  void read_tool_choice() {
    const JsonValue::Object* choice = reader_.object("tool_choice");
    if (choice == nullptr) return;
    FieldReader fields(*choice, "tool_choice.", reader_.ignored());
    const std::string* type = fields.string("type", 64);
    const std::string* name = fields.string("name", 256);
    call_.tool_choice.parallel = !fields.boolean("disable_parallel_tool_use").value_or(false);
    fields.check_unknown();
    if (fields.failed()) return reader_.fail(*fields.error());
    if (type != nullptr && *type == "none") {
      call_.chat.tools = {};
    } else if (type != nullptr && (*type == "any" || (*type == "tool" && name != nullptr))) {
      call_.tool_choice.required = true;
      if (*type == "tool") call_.tool_choice.name = *name;
    } else if (type == nullptr || *type != "auto") {
      reader_.bad("tool_choice",
                  R"(expected {"type": "auto"}, "any", "none", or "tool" with name)");
    }
  }

  void read_stop_sequences() {
    const JsonValue::Array* stops = reader_.array("stop_sequences");
    if (stops == nullptr) return;
    if (stops->size() > kMaxStopStrings) {
      reader_.bad("stop_sequences", fmt::format("got {} texts; at most {} are served",
                                                stops->size(), kMaxStopStrings));
    }
    for (std::size_t i = 0; i < stops->size() && !reader_.failed(); ++i) {
      const std::string* stop = (*stops)[i].string();
      if (stop != nullptr && !stop->empty() && stop->size() <= kMaxStopBytes) {
        call_.sampling.stop.push_back(*stop);
      } else {
        reader_.mistyped(fmt::format("stop_sequences[{}]", i), (*stops)[i],
                         fmt::format("a string of 1 to {} bytes", kMaxStopBytes));
      }
    }
  }

  void read_thinking() {
    const JsonValue::Object* thinking = reader_.object("thinking");
    if (thinking == nullptr) return;
    const std::string* type = find_text(*thinking, "type");
    if (type == nullptr || (*type != "enabled" && *type != "disabled" && *type != "adaptive")) {
      reader_.bad("thinking", "expected the type \"enabled\", \"disabled\" or \"adaptive\"");
    } else if (*type != "adaptive") {
      set_variable(call_.chat, "enable_thinking", JsonValue{*type == "enabled"});
    }
  }

  // {"format": {"type": "json_schema", "schema": ...}}
  void read_output_config() {
    const JsonValue::Object* config = reader_.object("output_config");
    const JsonValue* format = config != nullptr ? find_member(*config, "format") : nullptr;
    if (format == nullptr || format->is_null()) return;
    const JsonValue* schema =
        format->object() == nullptr ? nullptr : find_member(*format->object(), "schema");
    if (schema == nullptr) {
      reader_.bad("output_config.format", R"(expected {"type": "json_schema", "schema": {...}})");
      return;
    }
    set_json_schema(reader_, call_, "output_config.format.schema", *schema);
  }

  void read_metadata() {
    const JsonValue::Object* metadata = reader_.object("metadata");
    const std::string* user = metadata == nullptr ? nullptr : find_text(*metadata, "user_id");
    if (user != nullptr && user->size() <= kMaxUserBytes) call_.user = *user;
  }

 private:
  // A string, or blocks of text.
  bool read_texts(const JsonValue& value, const std::string& where, JsonValue::Array& parts) {
    if (value.string() != nullptr) {
      parts.push_back(text_part(*value.string()));
      return true;
    }
    if (value.array() == nullptr) {
      reader_.mistyped(where, value, "a string or an array of text blocks");
      return false;
    }
    for (std::size_t i = 0; i < value.array()->size() && !reader_.failed(); ++i) {
      const JsonValue& block = (*value.array())[i];
      const std::string place = fmt::format("{}[{}]", where, i);
      const std::string* type = block_type(block, place);
      if (type != nullptr && *type == "text") {
        read_text(block, place, parts);
      } else if (type != nullptr) {
        refuse_block(*type, place);
      }
    }
    return !reader_.failed();
  }

  const std::string* block_type(const JsonValue& block, const std::string& where) {
    const std::string* type =
        block.object() == nullptr ? nullptr : find_text(*block.object(), "type");
    if (type == nullptr) reader_.bad(where, "expected a block with a type, such as text");
    return type;
  }

  void read_text(const JsonValue& block, const std::string& where, JsonValue::Array& parts) {
    const std::string* text = find_text(*block.object(), "text");
    if (text == nullptr) return reader_.bad(where + ".text", "is missing; expected a string");
    parts.push_back(text_part(*text));
  }

  void refuse_block(const std::string& type, const std::string& where) {
    reader_.unsupported(where + ".type",
                        fmt::format("got {}; this model reads text, tool_use and tool_result",
                                    shown_value(JsonValue{type})));
  }

  void add_message(std::string role, JsonValue::Array parts, JsonValue::Array calls,
                   const std::string& reasoning) {
    if (calls.empty() && reasoning.empty() && join_last(role, parts)) return;
    JsonValue::Object message = {text_member("role", std::move(role))};
    if (parts.size() == 1) {
      message.push_back(tree_member("content", *find_member(*parts[0].object(), "text")));
    } else if (!parts.empty() || calls.empty()) {
      if (parts.empty()) parts.push_back(text_part(""));
      message.push_back(tree_member("content", JsonValue{std::move(parts)}));
    }
    if (!reasoning.empty()) message.push_back(text_member("reasoning_content", reasoning));
    if (!calls.empty()) message.push_back(tree_member("tool_calls", JsonValue{std::move(calls)}));
    call_.chat.messages.array()->push_back(tree(std::move(message)));
  }

  // Turns of one role in a row are one turn, as Anthropic has it: many templates refuse two.
  bool join_last(const std::string& role, JsonValue::Array& parts) {
    JsonValue::Array& messages = *call_.chat.messages.array();
    if (messages.empty() || (role != "user" && role != "assistant")) return false;
    JsonValue::Object& last = *messages.back().object();
    JsonValue* content = find_member(last, "content");
    const bool plain = find_member(last, "tool_calls") == nullptr &&
                       find_member(last, "reasoning_content") == nullptr;
    if (*find_text(last, "role") != role || content == nullptr || !plain) return false;
    if (content->array() == nullptr) {
      JsonValue::Array first = {text_part(*content->string())};
      content->data = std::move(first);
    }
    for (JsonValue& part : parts) content->array()->push_back(std::move(part));
    return true;
  }

  void read_message(const JsonValue& value, const std::string& where) {
    const JsonValue::Object* message = value.object();
    const std::string* role = message == nullptr ? nullptr : find_text(*message, "role");
    if (role == nullptr || (*role != "user" && *role != "assistant" && *role != "system")) {
      reader_.bad(where + ".role", "expected \"user\" or \"assistant\"");
      return;
    }
    const JsonValue* content = find_member(*message, "content");
    if (content == nullptr || (content->string() == nullptr && content->array() == nullptr)) {
      reader_.bad(where + ".content", "expected a string or an array of blocks");
      return;
    }
    JsonValue::Array parts;
    JsonValue::Array calls;
    std::string reasoning;
    if (content->string() != nullptr) {
      parts.push_back(text_part(*content->string()));
    } else {
      const JsonValue::Array& blocks = *content->array();
      for (std::size_t i = 0; i < blocks.size() && !reader_.failed(); ++i) {
        read_block(blocks[i], fmt::format("{}.content[{}]", where, i), *role, parts, calls,
                   reasoning);
      }
      // Results alone are messages of their own.
      if (parts.empty() && calls.empty() && *role == "user" && !blocks.empty()) return;
    }
    add_message(*role, std::move(parts), std::move(calls), reasoning);
  }

  void read_block(const JsonValue& block, const std::string& where, const std::string& role,
                  JsonValue::Array& parts, JsonValue::Array& calls, std::string& reasoning) {
    const std::string* type = block_type(block, where);
    if (type == nullptr) return;
    const bool assistant = role == "assistant";
    if (*type == "text") return read_text(block, where, parts);
    if (*type == "tool_use" && assistant) return read_tool_use(*block.object(), where, calls);
    if (*type == "tool_result" && !assistant) return read_tool_result(*block.object(), where);
    if (*type == "thinking" && assistant) {
      if (const std::string* text = find_text(*block.object(), "thinking")) reasoning += *text;
      return;
    }
    if (*type == "redacted_thinking" && assistant) return;
    refuse_block(*type, where);
  }

  void read_tool_use(const JsonValue::Object& block, const std::string& where,
                     JsonValue::Array& calls) {
    const std::string* id = find_text(block, "id");
    const std::string* name = find_text(block, "name");
    const JsonValue* input = find_member(block, "input");
    if (id == nullptr || name == nullptr || input == nullptr || input->object() == nullptr) {
      return reader_.bad(where, "expected id, name and input, an object");
    }
    std::string arguments;
    append_json(*input, arguments);
    calls.push_back(function_call(*id, *name, std::move(arguments)));
  }

  void read_tool_result(const JsonValue::Object& block, const std::string& where) {
    const std::string* id = find_text(block, "tool_use_id");
    if (id == nullptr) return reader_.bad(where + ".tool_use_id", "is missing; expected a string");
    JsonValue::Array parts;
    const JsonValue* content = find_member(block, "content");
    if (content != nullptr && !content->is_null() &&
        !read_texts(*content, where + ".content", parts)) {
      return;
    }
    if (parts.empty()) parts.push_back(text_part(""));
    JsonValue text =
        parts.size() == 1 ? *find_member(*parts[0].object(), "text") : JsonValue{std::move(parts)};
    call_.chat.messages.array()->push_back(
        tree({text_member("role", "tool"), text_member("tool_call_id", *id),
              tree_member("content", std::move(text))}));
  }

  void read_tool(const JsonValue& value, const std::string& where, JsonValue::Array& read) {
    const JsonValue::Object* tool = value.object();
    if (tool == nullptr) return reader_.mistyped(where, value, "an object with name");
    const JsonValue* type = find_member(*tool, "type");
    if (type != nullptr && !type->is_null() && !(type->string() && *type->string() == "custom")) {
      return reader_.unsupported(
          where + ".type",
          fmt::format("got {}; only tools of your own are served", shown_value(*type)));
    }
    const std::string* name = find_text(*tool, "name");
    if (name == nullptr || name->empty()) {
      return reader_.bad(where + ".name", "is missing; expected a string");
    }
    read.push_back(function_tool(*name, find_member(*tool, "description"),
                                 find_member(*tool, "input_schema"), find_member(*tool, "strict")));
  }

  FieldReader& reader_;
  GenerationCall& call_;
};

}  // namespace

ApiResult<GenerationCall> parse_messages_call(std::string_view body, BodyReading reading,
                                              MessagesUse use) {
  auto object = parse_request_json(body);
  if (!object) return tl::unexpected(object.error());
  GenerationCall call;
  FieldReader reader(*object, "", ignored_of(call, reading), reading.fields);
  call.dialect = Dialect::kMessages;
  call.add_special_tokens = false;  // the template has them
  read_basic_fields(reader, call);
  read_output_limit(reader, "max_tokens", call);
  if (use == MessagesUse::kAnswer && !call.given.max_tokens && !reader.failed()) {
    reader.missing("max_tokens", "the most tokens that the answer may have");
  }
  if (const auto top_k = reader.integer("top_k", -1, std::numeric_limits<std::int32_t>::max())) {
    call.sampling.top_k = static_cast<std::int32_t>(*top_k);
    call.given.top_k = true;
  }
  MessagesReader messages(reader, call);
  messages.read_system();
  messages.read_messages();
  messages.read_tools();
  messages.read_tool_choice();
  messages.read_stop_sequences();
  messages.read_thinking();
  messages.read_output_config();
  messages.read_metadata();
  // Hints that change no answer.
  for (const std::string_view hint : {"service_tier", "cache_control", "inference_geo"}) {
    reader.find(hint);
  }
  check_tool_choice(reader, "tool_choice", call);
  reader.refuse_unless_neutral(kRefusedMessages);
  check_sampling(reader, call, "max_tokens", "logprobs");
  reader.check_unknown();
  if (reader.failed()) return tl::unexpected(*reader.error());
  return call;
}

}  // namespace sluice
