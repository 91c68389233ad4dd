#include "loadgen/stream_chunk.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <limits>

namespace sluice {
namespace {

namespace dom = simdjson::dom;
using simdjson::SUCCESS;

constexpr std::size_t kShownBytes = 200;

// Control characters would break the one line that a message is.
std::string shown(std::string_view text) {
  std::string out(text.substr(0, kShownBytes));
  std::replace_if(
      out.begin(), out.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
  return text.size() > kShownBytes ? out + "..." : out;
}

bool is_text(const dom::object& object, const char* key) {
  std::string_view text;
  return object[key].get(text) == SUCCESS && !text.empty();
}

bool has_token(const dom::object& choice, bool ended) {
  std::string_view text;
  if (choice["text"].get(text) == SUCCESS) return !text.empty() || !ended;
  dom::object delta;
  if (choice["delta"].get(delta) != SUCCESS) return false;
  dom::array calls;
  return is_text(delta, "content") || is_text(delta, "reasoning_content") ||
         is_text(delta, "reasoning") ||
         (delta["tool_calls"].get(calls) == SUCCESS && calls.size() > 0);
}

// The readable text of the choice.
std::string_view text_of(const dom::object& choice) {
  std::string_view text;
  if (choice["text"].get(text) == SUCCESS) return text;
  dom::object delta;
  if (choice["delta"].get(delta) != SUCCESS) return {};
  for (const char* key : {"content", "reasoning_content", "reasoning"}) {
    if (delta[key].get(text) == SUCCESS && !text.empty()) return text;
  }
  return {};
}

std::int32_t token_count(const dom::object& usage, const char* key) {
  std::int64_t value = 0;
  if (usage[key].get(value) != SUCCESS) return 0;
  return static_cast<std::int32_t>(
      std::clamp<std::int64_t>(value, 0, std::numeric_limits<std::int32_t>::max()));
}

// "" when there is none.
std::string message_in(const dom::object& object) {
  std::string_view text;
  dom::object error;
  if (object["error"].get(error) == SUCCESS && error["message"].get(text) == SUCCESS) {
    return shown(text);
  }
  if (object["error"].get(text) == SUCCESS && !text.empty()) return shown(text);
  std::string_view kind;
  if (object["object"].get(kind) == SUCCESS && kind == "error" &&
      object["message"].get(text) == SUCCESS) {
    return shown(text);
  }
  if (object["detail"].get(text) == SUCCESS) return shown(text);
  return {};
}

}  // namespace

struct ChunkReader::Impl {
  dom::parser parser;
};

ChunkReader::ChunkReader() : impl_(std::make_unique<Impl>()) {}
ChunkReader::~ChunkReader() = default;

Result<StreamChunk> ChunkReader::read(std::string_view json) {
  dom::object object;
  if (impl_->parser.parse(json.data(), json.size()).get(object) != SUCCESS) {
    return invalid_argument(fmt::format("an event is not a JSON object: {}", shown(json)));
  }
  StreamChunk chunk;
  chunk.error = message_in(object);
  dom::array choices;
  dom::object usage;
  const bool has_choices = object["choices"].get(choices) == SUCCESS;
  if (object["usage"].get(usage) == SUCCESS) {
    chunk.has_usage = true;
    chunk.prompt_tokens = token_count(usage, "prompt_tokens");
    chunk.completion_tokens = token_count(usage, "completion_tokens");
  }
  if (!has_choices && !chunk.has_usage && chunk.error.empty()) {
    return invalid_argument(fmt::format(
        "an event has neither choices nor usage; not an OpenAI stream: {}", shown(json)));
  }
  if (!has_choices) return chunk;
  for (const dom::element element : choices) {
    dom::object choice;
    if (element.get(choice) != SUCCESS) continue;
    std::string_view reason;
    chunk.has_choice = true;
    const bool ended = choice["finish_reason"].get(reason) == SUCCESS;
    chunk.has_token = chunk.has_token || has_token(choice, ended);
    if (chunk.text.empty()) chunk.text = text_of(choice);
    chunk.ended = chunk.ended || ended;
  }
  return chunk;
}

std::string ChunkReader::error_message(std::string_view body) {
  dom::object object;
  if (impl_->parser.parse(body.data(), body.size()).get(object) == SUCCESS) {
    std::string message = message_in(object);
    if (!message.empty()) return message;
  }
  return body.empty() ? "(no body)" : shown(body);
}

}  // namespace sluice
