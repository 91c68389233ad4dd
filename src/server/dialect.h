// The dialects of the API. Each is a reader, which turns a body into a GenerationCall, and a writer
// (answer_writer.h), which turns the answer into JSON and events. Nothing between them differs.
#pragma once

#include <cstdint>
#include <string_view>

namespace sluice {

enum class Dialect : std::uint8_t {
  kOpenAi,     // /v1/chat/completions, /v1/completions
  kResponses,  // OpenAI's /v1/responses
  kMessages,   // Anthropic's /v1/messages
};

inline Dialect dialect_of(std::string_view path) {
  if (path.starts_with("/v1/messages")) return Dialect::kMessages;
  return path == "/v1/responses" ? Dialect::kResponses : Dialect::kOpenAi;
}

}  // namespace sluice
