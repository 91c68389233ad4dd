// The bodies of the calls that have one. Any input gives a call within its limits, or a 400
// that is valid JSON. Chat templates see the same values as from the JSON text.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "chat_template/heap.h"
#include "chat_template/json_text.h"
#include "chat_template/json_value.h"
#include "server/chat_fields.h"
#include "server/generation_call.h"
#include "server/request_json.h"
#include "server/sampling_fields.h"

namespace {

using nlohmann::json;

json parsed(std::string_view text) {
  json value = sluice::parse_json(text);
  CHECK(!value.is_discarded());
  return value;
}

void check_error(const sluice::ApiError& error) {
  CHECK(error.status == 400);
  CHECK(!error.message.empty());
  CHECK(error.message.size() < 4096 + error.param.size());
  const json shown = parsed(to_json(error));
  CHECK(shown["error"]["message"] == error.message);
}

// A text, nothing, or text parts only.
void check_content(const json& content) {
  if (content.is_string() || content.is_null()) return;
  CHECK(content.is_array() && !content.empty());
  for (const json& part : content) {
    CHECK(part.is_object() && part["type"] == "text" && part["text"].is_string());
  }
}

// Renders a value as JSON, as the filter `tojson` does.
std::string dumped(sluice::jinja::Heap& heap, const sluice::Result<sluice::jinja::Value>& value) {
  CHECK(value);
  const auto text = sluice::jinja::dump_json(heap, *value, {});
  CHECK(text);
  return std::string(text->text());
}

// A chat template sees the tree as it would see its text. Returns the text, parsed.
json checked_tree(const sluice::JsonValue& tree) {
  std::string text;
  append_json(tree, text);
  sluice::jinja::Heap heap(std::size_t{1} << 30, std::uint64_t{1} << 40);
  CHECK(dumped(heap, sluice::jinja::from_tree(tree, heap, "tree")) ==
        dumped(heap, sluice::jinja::parse_json(text, heap, "text")));
  return parsed(text);
}

void check_chat(const sluice::ChatPart& chat) {
  const json messages = checked_tree(chat.messages);
  CHECK(messages.is_array() && !messages.empty());
  for (const json& message : messages) {
    CHECK(message.is_object() && message["role"].is_string());
    if (message.contains("content")) check_content(message["content"]);
  }
  if (!chat.tools.is_null()) {
    const json tools = checked_tree(chat.tools);
    CHECK(tools.is_array() && !tools.empty() && tools.size() <= sluice::kMaxTools);
  }
  if (!chat.variables.is_null()) CHECK(checked_tree(chat.variables).is_object());
  CHECK(!(chat.add_generation_prompt && chat.continue_final_message));
}

void check_sampling(const sluice::GenerationCall& call) {
  const sluice::SamplingParams& params = call.sampling;
  CHECK(params.max_tokens >= 1 && params.min_tokens >= 0);
  CHECK(params.n >= 1 && params.n <= 128);
  CHECK(params.temperature >= 0 && std::isfinite(params.temperature));
  CHECK(params.top_p > 0 && params.top_p <= 1);
  CHECK(params.top_k >= -1);
  CHECK(params.min_p >= 0 && params.min_p <= 1);
  CHECK(params.repetition_penalty > 0 && std::isfinite(params.repetition_penalty));
  CHECK(std::fabs(params.presence_penalty) <= 2 && std::fabs(params.frequency_penalty) <= 2);
  CHECK(params.logprobs >= -1 && params.logprobs <= sluice::kMaxLogprobs);
  CHECK(params.prompt_logprobs >= -1 && params.prompt_logprobs <= sluice::kMaxLogprobs);
  CHECK(params.stop.size() <= sluice::kMaxStopStrings);
  for (const std::string& stop : params.stop) {
    CHECK(!stop.empty() && stop.size() <= sluice::kMaxStopBytes);
  }
  CHECK(params.logit_bias.size() <= sluice::kMaxLogitBiases);
  for (const auto& [id, bias] : params.logit_bias) CHECK(id >= 0 && std::fabs(bias) <= 100);
  CHECK(params.stop_token_ids.size() <= sluice::kMaxStopTokenIds);
  for (const sluice::TokenId id : params.stop_token_ids) CHECK(id >= 0);
  for (const sluice::TokenId id : params.allowed_token_ids) CHECK(id >= 0);
  CHECK(call.bad_words.size() <= sluice::kMaxBadWords);
  CHECK(call.truncate_prompt_tokens != 0);
  CHECK(call.stream || !(call.include_usage || call.continuous_usage_stats));
  CHECK(call.user.size() <= sluice::kMaxUserBytes);
}

void check_prompts(const sluice::GenerationCall& call) {
  CHECK(!call.prompts.empty() && call.prompts.size() <= sluice::kMaxPrompts);
  CHECK(static_cast<std::int64_t>(call.prompts.size()) * call.sampling.n <= sluice::kMaxChoices);
  CHECK(!call.prompt_only || call.echo || call.prompt_logprobs >= 0);
  CHECK(!call.echo || call.sampling.prompt_logprobs >= call.sampling.logprobs);
  CHECK(call.sampling.min_tokens <= call.sampling.max_tokens);
  for (const sluice::CompletionPrompt& prompt : call.prompts) {
    const auto* ids = std::get_if<std::vector<sluice::TokenId>>(&prompt);
    if (ids == nullptr) continue;
    CHECK(!ids->empty());
    for (const sluice::TokenId id : *ids) CHECK(id >= 0);
  }
}

// A tree written again is read as the same tree.
void check_tree(std::string_view body) {
  auto object = sluice::parse_request_json(body);
  if (!object) return;
  std::string once;
  append_json(sluice::JsonValue{*std::move(object)}, once);
  auto again = sluice::parse_request_json(once);
  CHECK(again.has_value());
  std::string twice;
  append_json(sluice::JsonValue{*std::move(again)}, twice);
  CHECK(once == twice);
  CHECK(parsed(once) == parsed(body));  // what the fast parser accepts is JSON, and is equal
}

// Whatever is read strictly is read the same way when unknown fields are ignored, and their names
// are safe in a header.
void check_ignored(std::string_view body) {
  using sluice::UnknownFields;
  const auto strict = sluice::parse_chat_call(body, UnknownFields::kRefuse);
  const auto lenient = sluice::parse_chat_call(body, UnknownFields::kIgnore);
  if (strict) CHECK(lenient && lenient->ignored_fields.empty());
  if (!lenient) return;
  CHECK(strict.has_value() == lenient->ignored_fields.empty());
  CHECK(lenient->ignored_fields.size() <= sluice::kMaxIgnoredFields);
  for (const sluice::IgnoredField& field : lenient->ignored_fields) {
    CHECK(field.name.size() <= 3 * sluice::kMaxShownFieldBytes);
    for (const char c : field.name) CHECK(c > ' ' && c < 0x7F && c != ',' && c != '"');
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  check_tree(body);
  check_ignored(body);
  if (const auto chat = sluice::parse_chat_call(body)) {
    check_chat(chat->chat);
    check_sampling(*chat);
  } else {
    check_error(chat.error());
  }
  for (const bool messages : {true, false}) {
    constexpr auto kUnknown = sluice::UnknownFields::kIgnore;
    const auto call = messages ? sluice::parse_messages_call(body, kUnknown)
                               : sluice::parse_responses_call(body, kUnknown);
    if (call) {
      check_chat(call->chat);
      check_sampling(*call);
      if (!messages) CHECK(parsed("{" + call->repeated_json + "}").is_object());
    } else {
      check_error(call.error());
    }
  }
  if (const auto completion = sluice::parse_completion_call(body)) {
    check_prompts(*completion);
    check_sampling(*completion);
  } else {
    check_error(completion.error());
  }
  for (const auto use : {sluice::EmbeddingUse::kVectors, sluice::EmbeddingUse::kScore,
                         sluice::EmbeddingUse::kRerank}) {
    const auto call = sluice::parse_embedding_call(body, use);
    if (call) {
      CHECK(!call->prompts.empty() && call->prompts.size() <= sluice::kMaxEmbeddings);
      CHECK(call->embedding.num_first <
            call->prompts.size() + (use == sluice::EmbeddingUse::kVectors));
      for (std::size_t i = 0; i < call->prompts.size(); ++i) {
        CHECK(!call->embedding.field_of(i, call->prompts.size()).empty());
      }
    } else {
      check_error(call.error());
    }
  }
  if (const auto tokenize = sluice::parse_tokenize_call(body)) {
    CHECK(tokenize->prompt.has_value() != tokenize->chat.has_value());
    if (tokenize->chat) check_chat(*tokenize->chat);
  } else {
    check_error(tokenize.error());
  }
  if (const auto detokenize = sluice::parse_detokenize_call(body)) {
    for (const sluice::TokenId id : detokenize->tokens) CHECK(id >= 0);
  } else {
    check_error(detokenize.error());
  }
  return 0;
}
