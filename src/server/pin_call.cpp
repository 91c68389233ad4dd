#include "server/pin_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "server/chat_fields.h"
#include "server/json_writer.h"
#include "server/prompt_fields.h"
#include "server/sampling_fields.h"

namespace sluice {
namespace {

void read_prompt(FieldReader& reader, JsonValue::Object& body, GenerationCall& call) {
  const bool has_prompt = reader.find("prompt") != nullptr;
  const bool has_messages = reader.find("messages") != nullptr;
  if (has_prompt && has_messages) {
    reader.bad("prompt", "is given together with messages; give one of them");
  } else if (has_prompt) {
    call.kind = ApiKind::kCompletion;
    read_prompts(reader, "prompt", 1, call.prompts);
    reader.read_into("add_special_tokens", call.add_special_tokens);
  } else if (has_messages) {
    call.kind = ApiKind::kChat;
    call.add_special_tokens = false;  // the template has them
    read_chat_fields(reader, body, call.chat);
    read_tools(reader, body, call.chat.tools);
    // The turns that follow come where the template would begin the answer.
    if (!reader.boolean("add_generation_prompt")) call.chat.add_generation_prompt = false;
  } else if (!reader.failed()) {
    reader.missing_either("messages", "prompt", "an array of messages, or prompt");
  }
}

// The names of the fields that only one kind of prompt has, for the document of the API.
void record_prompt_fields(FieldReader& reader, JsonValue::Object& body, GenerationCall& call) {
  reader.missing_either("messages", "prompt", "an array of messages, or prompt");
  reader.find("messages");
  reader.find("prompt");
  reader.boolean("add_special_tokens");
  reader.boolean("add_generation_prompt");
  reader.boolean("continue_final_message");
  reader.find("chat_template_kwargs");
  read_tools(reader, body, call.chat.tools);
}

std::string_view place_of(const PinnedBlocks& blocks) {
  if (blocks.in_memory == blocks.all) return "memory";
  if (blocks.in_tier == blocks.all) return "tier";
  return blocks.in_memory + blocks.in_tier == blocks.all ? "memory_and_tier" : "partly_missing";
}

void append_pin(const PinStatus& pin, TimePoint now, std::int64_t unix_seconds, std::string& out) {
  const auto at = [&](TimePoint time) {
    return unix_seconds + std::chrono::round<std::chrono::seconds>(time - now).count();
  };
  out += R"({"id":)";
  append_json_string(pin.id, out);
  out += R"(,"object":"kv.prefix","model":)";
  append_json_string(pin.model, out);
  out += fmt::format(
      R"(,"created_at":{},"expires_at":{},"tokens":{},"blocks":{},"bytes":{},"where":"{}",)"
      R"("blocks_in_memory":{},"blocks_in_tier":{},"hits":{}}})",
      at(pin.made), at(pin.expires), pin.tokens, pin.blocks.all, pin.blocks.all * pin.block_bytes,
      place_of(pin.blocks), pin.blocks.in_memory, pin.blocks.in_tier, pin.hits);
}

}  // namespace

bool is_pin_id(std::string_view id) {
  const auto is_alphanumeric = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0;
  };
  return !id.empty() && id.size() <= kMaxPinIdBytes && is_alphanumeric(id.front()) &&
         std::ranges::all_of(
             id, [&](char c) { return is_alphanumeric(c) || c == '.' || c == '_' || c == '-'; });
}

ApiResult<GenerationCall> parse_pin_call(std::string_view body, BodyReading reading) {
  auto object = parse_request_json(body);
  if (!object) return tl::unexpected(object.error());
  GenerationCall call;
  FieldReader reader(*object, "", ignored_of(call, reading), reading.fields);
  if (const std::string* model = reader.string("model", kMaxModelBytes)) {
    call.model = *model;
  } else if (!reader.failed()) {
    reader.missing("model", "the name of a served model; GET /v1/models lists them");
  }
  if (reading.fields != nullptr) {
    record_prompt_fields(reader, *object, call);
  } else {
    read_prompt(reader, *object, call);
  }
  const auto seconds = reader.integer("ttl_seconds", 1, kMostPinSeconds);
  call.pin.emplace().ttl = std::chrono::seconds(seconds.value_or(kDefaultPinSeconds));
  read_account_fields(reader, call);
  reader.check_unknown();
  if (reader.failed()) return tl::unexpected(*reader.error());
  call.prompt_only = true;
  call.sampling.max_tokens = 1;
  call.sampling.temperature = 0;
  call.sampling.ignore_eos = true;
  call.given.max_tokens = true;
  call.given.temperature = true;
  return call;
}

std::string pin_json(const PinStatus& pin, TimePoint now, std::int64_t unix_seconds) {
  std::string out;
  append_pin(pin, now, unix_seconds, out);
  return out;
}

std::string pin_list_json(std::span<const PinStatus> pins, TimePoint now,
                          std::int64_t unix_seconds) {
  std::string out = R"({"object":"list","data":[)";
  for (const PinStatus& pin : pins) {
    if (&pin != &pins.front()) out += ',';
    append_pin(pin, now, unix_seconds, out);
  }
  return out + "]}";
}

std::string pin_deleted_json(std::string_view id) {
  std::string out = R"({"id":)";
  append_json_string(id, out);
  return out + R"(,"object":"kv.prefix","deleted":true})";
}

}  // namespace sluice
