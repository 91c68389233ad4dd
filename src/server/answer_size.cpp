#include "server/answer_size.h"

#include <fmt/format.h>

namespace sluice {
namespace {

// Bytes of JSON for each token: its text, its id, and each of its log-probabilities.
constexpr std::size_t kTextJson = 8;
constexpr std::size_t kIdJson = 8;
constexpr std::size_t kChatEntryJson = 96;
constexpr std::size_t kCompletionEntryJson = 48;
constexpr std::size_t kPromptEntryJson = 72;
// Bytes of memory for each token.
constexpr std::size_t kTextHeld = 8;
constexpr std::size_t kIdHeld = 4;
constexpr std::size_t kEntryHeld = 8;
constexpr std::size_t kOffsetHeld = 8;
constexpr std::size_t kPromptEntryHeld = 20;  // the prompt's own, and a choice's

}  // namespace

AnswerSize whole_answer_size(const GenerationCall& call, const SamplingParams& sampling,
                             std::size_t prompt_tokens, std::size_t echo_bytes) {
  AnswerSize token{kTextJson, kTextHeld};
  AnswerSize choice{echo_bytes, 0};
  if (sampling.logprobs >= 0) {
    const auto entries = static_cast<std::size_t>(1 + sampling.logprobs);
    token.json += entries * (call.kind == ApiKind::kChat ? kChatEntryJson : kCompletionEntryJson);
    token.held += entries * kEntryHeld + kOffsetHeld;
  }
  if (sampling.prompt_logprobs >= 0) {
    const auto entries = static_cast<std::size_t>(1 + sampling.prompt_logprobs) * prompt_tokens;
    const bool shown_twice = call.echo && call.prompt_logprobs >= 0;
    choice.json += entries * kPromptEntryJson * (shown_twice ? 2 : 1);
    choice.held += entries * kPromptEntryHeld;
  }
  if (call.return_token_ids) {
    token.json += kIdJson;
    token.held += kIdHeld;
    choice.json += kIdJson * prompt_tokens;
  }
  const auto n = static_cast<std::size_t>(sampling.n);
  const auto tokens = static_cast<std::size_t>(sampling.max_tokens);
  return {n * (choice.json + tokens * token.json), n * (choice.held + tokens * token.held)};
}

AnswerSize embedding_size(const EmbeddingPart& part, std::int32_t width) {
  constexpr std::size_t kFloatJson = 13;
  constexpr std::size_t kObjectJson = 64;
  const auto held = static_cast<std::size_t>(width);
  const auto shown = static_cast<std::size_t>(part.dimensions.value_or(width));
  if (part.use != EmbeddingUse::kVectors) return {kObjectJson, held * sizeof(float)};
  return {kObjectJson + shown * (part.base64 ? 6 : kFloatJson), held * sizeof(float)};
}

ApiResult<void> check_answer_size(const GenerationCall& call, const AnswerSize& size) {
  if (call.stream || size.json <= kMaxAnswerBytes) return {};
  if (call.kind == ApiKind::kEmbedding) {
    return tl::unexpected(bad_field(
        "input", fmt::format("the answer would have {} MiB, and at most {} MiB are answered at "
                             "once; send fewer texts, or set encoding_format to \"base64\"",
                             size.json >> 20, kMaxAnswerBytes >> 20)));
  }
  const bool has_logprobs = call.sampling.logprobs >= 0 || call.sampling.prompt_logprobs >= 0;
  return tl::unexpected(bad_field(
      has_logprobs ? "logprobs" : "max_tokens",
      fmt::format("the answer could have {} MiB, and at most {} MiB are answered at once; lower {}"
                  "n or max_tokens, or set \"stream\": true",
                  size.json >> 20, kMaxAnswerBytes >> 20,
                  has_logprobs ? "the number of log-probabilities, " : "")));
}

}  // namespace sluice
