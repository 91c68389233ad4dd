#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "server/chat_fields.h"
#include "server/dialect_fields.h"
#include "server/generation_call.h"
#include "server/sampling_fields.h"

namespace sluice {
namespace {

constexpr std::int64_t kMaxInt32 = std::numeric_limits<std::int32_t>::max();

constexpr RefusedField kRefused[] = {
    {"echo", Neutral::kFalse, "to continue the last message set continue_final_message"},
    {"functions", Neutral::kEmpty, "use tools"},
    {"audio", Neutral::kNull, "answers are text"},
    {"web_search_options", Neutral::kNull, "this server searches nothing"},
    {"include_reasoning", Neutral::kTrue, "reasoning is part of the text"},
    {"return_prompt_text", Neutral::kFalse, "use return_token_ids, or /tokenize"},
    {"return_mm_kwargs", Neutral::kTrue, "this model reads text only"},
    {"store", Neutral::kFalse, "answers are not kept; save them yourself"},
};

// A field that only these strings may have; `advice` is for all others.
void read_choice(FieldReader& reader, std::string_view name,
                 std::initializer_list<std::string_view> accepted, std::string_view advice) {
  const std::string* text = reader.string(name, std::numeric_limits<std::size_t>::max());
  if (text == nullptr || std::ranges::find(accepted, *text) != accepted.end()) return;
  reader.unsupported(name, fmt::format("got {}; {}", shown_value(JsonValue{*text}), advice));
}

void read_length(FieldReader& reader, GenerationCall& call, std::string_view& name) {
  const auto old_name = reader.integer("max_tokens", 1, kMaxInt32);
  const auto new_name = reader.integer("max_completion_tokens", 1, kMaxInt32);
  if (old_name && new_name && *old_name != *new_name) {
    reader.bad("max_tokens", fmt::format("is {} while max_completion_tokens, its new name, is {}; "
                                         "give one of them",
                                         *old_name, *new_name));
  }
  if (new_name) name = "max_completion_tokens";
  const auto limit = new_name ? new_name : old_name;
  if (!limit) return;
  call.sampling.max_tokens = static_cast<std::int32_t>(*limit);
  call.given.max_tokens = true;
}

void read_logprobs(FieldReader& reader, SamplingParams& sampling) {
  const bool wanted = reader.boolean("logprobs").value_or(false);
  const auto top = reader.integer("top_logprobs", 0, kMaxLogprobs);
  if (wanted) sampling.logprobs = static_cast<std::int32_t>(top.value_or(0));
  if (!wanted && top.value_or(0) > 0) {
    reader.bad("top_logprobs", "is given without \"logprobs\": true; set logprobs or leave it out");
  }
}

// {"type": "function", "function": {"name": NAME}}; nullptr for anything else.
const std::string* named_tool(const JsonValue& choice) {
  const JsonValue::Object* object = choice.object();
  const JsonValue* function = object == nullptr ? nullptr : find_member(*object, "function");
  if (function == nullptr || function->object() == nullptr) return nullptr;
  const JsonValue* name = find_member(*function->object(), "name");
  return name == nullptr ? nullptr : name->string();
}

void read_tool_choice(FieldReader& reader, const JsonValue& value, GenerationCall& call) {
  JsonValue& tools = call.chat.tools;
  const std::string* text = value.string();
  const std::string* name = named_tool(value);
  if (text != nullptr && *text == "none") {
    tools = {};
    return;
  }
  if (text != nullptr && *text == "auto") return;
  const JsonValue::Object* choice = value.object();
  const JsonValue* allowed = choice == nullptr ? nullptr : find_member(*choice, "allowed_tools");
  if (allowed != nullptr && allowed->object() != nullptr) {
    return read_allowed_tools(reader, "tool_choice.allowed_tools", *allowed->object(), call);
  }
  // "any" is the word of Mistral's clients for it.
  const bool required = text != nullptr && (*text == "required" || *text == "any");
  if (name == nullptr && !required) {
    reader.unsupported("tool_choice",
                       fmt::format("got {}; expected \"auto\", \"none\", \"required\" or "
                                   R"({{"type": "function", "function": {{"name": ...}}}})",
                                   shown_value(value)));
    return;
  }
  call.tool_choice.required = true;
  if (name != nullptr) call.tool_choice.name = *name;
}

void read_tool_fields(FieldReader& reader, JsonValue::Object& body, GenerationCall& call) {
  read_tools(reader, body, call.chat.tools);
  if (const JsonValue* choice = reader.find("tool_choice")) read_tool_choice(reader, *choice, call);
  reader.read_into("parallel_tool_calls", call.tool_choice.parallel);
  check_tool_choice(reader, "tool_choice", call);
  const JsonValue* function_call = reader.find("function_call");
  if (function_call == nullptr) return;
  const std::string* text = function_call->string();
  if (text != nullptr && (*text == "none" || *text == "auto")) return;
  reader.unsupported("function_call",
                     fmt::format("got {}; use tools and tool_choice", shown_value(*function_call)));
}

void read_modalities(FieldReader& reader) {
  const JsonValue::Array* modalities = reader.array("modalities");
  if (modalities == nullptr) return;
  for (const JsonValue& item : *modalities) {
    if (item.string() != nullptr && *item.string() == "text") continue;
    reader.unsupported("modalities",
                       fmt::format("got {}; only [\"text\"] is served", shown_value(item)));
  }
}

// Templates of reasoning models read these variables; others do not see them, as in vLLM.
void read_reasoning_effort(FieldReader& reader, JsonValue& variables) {
  constexpr std::array<std::string_view, 7> kEfforts = {"none", "minimal", "low", "medium",
                                                        "high", "xhigh",   "max"};
  const std::string* effort = reader.string("reasoning_effort", 16);
  if (effort == nullptr) return;
  if (std::ranges::find(kEfforts, *effort) == kEfforts.end()) {
    reader.bad("reasoning_effort",
               fmt::format("got {}; expected \"none\", \"minimal\", \"low\", \"medium\", \"high\", "
                           "\"xhigh\" or \"max\"",
                           shown_value(JsonValue{*effort})));
    return;
  }
  if (variables.is_null()) variables.data = JsonValue::Object();
  JsonValue::Object& object = *variables.object();
  const auto add = [&](std::string_view name, JsonValue value) {
    if (find_member(object, name) == nullptr) {
      object.push_back({std::string(name), std::move(value)});
    }
  };
  add("reasoning_effort", JsonValue{*effort});
  add("enable_thinking", JsonValue{*effort != "none"});
}

// Fields that do not change the answer. They are checked, so that a mistake is found.
void read_hints(FieldReader& reader) {
  if (const JsonValue::Object* metadata = reader.object("metadata")) {
    for (const JsonMember& member : *metadata) {
      if (member.value.string() != nullptr) continue;
      reader.bad("metadata",
                 fmt::format("holds {}; expected an object of strings", shown_value(member.value)));
      break;
    }
  }
  reader.string("prompt_cache_key", kMaxUserBytes);
  reader.object("prediction");
  read_choice(reader, "service_tier", {"auto", "default"},
              "only \"auto\" and \"default\" are served; use priority");
  read_choice(reader, "verbosity", {"medium"},
              "only \"medium\" is served; say in the prompt how long the answer should be");
}

}  // namespace

ApiResult<GenerationCall> parse_chat_call(std::string_view body, BodyReading reading) {
  auto object = parse_request_json(body);
  if (!object) return tl::unexpected(object.error());
  GenerationCall call;
  FieldReader reader(*object, "", ignored_of(call, reading), reading.fields);
  call.kind = ApiKind::kChat;
  call.add_special_tokens = false;  // the template has them
  std::string_view max_tokens_name = "max_tokens";
  read_common_fields(reader, call);
  read_chat_fields(reader, *object, call.chat);
  read_length(reader, call, max_tokens_name);
  read_logprobs(reader, call.sampling);
  read_tool_fields(reader, *object, call);
  read_modalities(reader);
  read_reasoning_effort(reader, call.chat.variables);
  read_hints(reader);
  reader.refuse_unless_neutral(kRefused);
  check_sampling(reader, call, max_tokens_name, "top_logprobs");
  reader.check_unknown();
  if (reader.failed()) return tl::unexpected(*reader.error());
  return call;
}

}  // namespace sluice
