// Writes the JSON of answers: whole objects, and the chunks of a stream (without SSE framing),
// exactly as the `openai` client and vLLM expect them. Pure functions; the hot one, a chunk with a
// piece of text, is built without a JSON tree.
// Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/token_id.h"
#include "request/finish_reason.h"
#include "server/generation_call.h"

namespace sluice {

struct Usage {
  std::int64_t prompt_tokens = 0;
  std::int64_t completion_tokens = 0;
  std::int64_t cached_tokens = 0;  // prompt_tokens_details.cached_tokens
  // completion_tokens_details.reasoning_tokens; absent without a format of reasoning.
  std::optional<std::int64_t> reasoning_tokens = std::nullopt;
};

// The fields that every object and chunk of one answer repeats.
struct AnswerHead {
  ApiKind kind = ApiKind::kChat;
  std::string id;            // "chatcmpl-...", "cmpl-...", "resp_..." or "msg_..."
  std::int64_t created = 0;  // Unix seconds
  std::string model;
  std::string system_fingerprint;  // empty: absent
  Dialect dialect = Dialect::kOpenAi;
  std::string repeated_json = {};  // GenerationCall::repeated_json
};

// One token with its alternatives, as text.
struct TokenLogprobText {
  TokenId id = 0;
  std::string bytes;  // the token's bytes; possibly a part of a character
  float logprob = 0.0F;
};
struct OutputTokenLogprobs {
  TokenLogprobText chosen;
  bool has_logprob = true;            // false: null, for the first token of an echoed prompt
  std::vector<TokenLogprobText> top;  // most likely first
  std::int64_t text_offset = 0;       // of the token in the choice's text, for completions
};

// The log-probabilities of a choice's tokens. `get` replaces `out` with those of one token, so that
// a long answer is never in memory as text and as JSON at the same time.
struct LogprobList {
  std::size_t size = 0;
  std::function<void(std::size_t index, OutputTokenLogprobs& out)> get;
};

// A token of a prompt as vLLM shows it: itself and the likeliest alternatives, which may include
// it.
struct RankedLogprob {
  TokenLogprobText token;
  std::int32_t rank = 0;  // 1 = the likeliest
};
// The log-probabilities of a prompt's tokens. `get` replaces `out`; empty = null.
struct PromptLogprobList {
  std::size_t size = 0;
  std::function<void(std::size_t index, std::vector<RankedLogprob>& out)> get;
};

// A call of a tool in a chat's answer.
struct ToolCallAnswer {
  std::int32_t index = 0;  // in its choice
  std::string id;
  std::string name;
  std::string arguments;  // JSON text
  bool cut = false;       // by the limit of tokens: `arguments` are its beginning
};

struct ChoiceAnswer {
  std::int32_t index = 0;
  std::string text;
  std::string reasoning;                   // chat; empty: absent
  std::vector<ToolCallAnswer> tool_calls;  // with any, kStop is "tool_calls"
  FinishReason finish_reason = FinishReason::kStop;
  std::optional<std::string> stop_reason;  // vLLM: which stop string; null else
  // Absent: "logprobs": null.
  std::optional<LogprobList> logprobs;
  std::optional<PromptLogprobList> prompt_logprobs;      // prompt_logprobs
  std::optional<std::vector<TokenId>> token_ids;         // return_token_ids
  std::optional<std::vector<TokenId>> prompt_token_ids;  // return_token_ids
  std::vector<float> embedding;                          // kEmbedding
};

// The object of an answer that is not streamed. Takes about a millisecond for each 200 KB.
std::string answer_json(const AnswerHead& head, std::span<const ChoiceAnswer> choices,
                        const Usage& usage);

// An upper bound of the length of answer_json(), within a few kilobytes a choice.
std::size_t answer_json_bound(ApiKind kind, std::span<const ChoiceAnswer> choices);

// One piece of one choice in a stream.
struct ChunkPart {
  std::int32_t index = 0;
  bool first = false;  // chat: the delta carries the role
  std::string_view text;
  std::string_view reasoning;
  std::span<const ToolCallAnswer> tool_calls;
  FinishReason finish_reason = FinishReason::kNone;  // kNone: null
  bool called_tools = false;                         // kStop is "tool_calls"
  std::optional<std::string> stop_reason;
  const LogprobList* logprobs = nullptr;                   // nullptr: null
  std::span<const TokenId> token_ids;                      // empty: absent
  const std::vector<TokenId>* prompt_token_ids = nullptr;  // first chunk, return_token_ids
  const Usage* usage = nullptr;                            // nullptr: absent
};

// Appends the chunks of one stream; caches the parts that repeat.
class ChunkWriter {
 public:
  explicit ChunkWriter(const AnswerHead& head);
  void append_chunk(const ChunkPart& part, std::string& out) const;
  // The last chunk of include_usage: no choices.
  void append_usage_chunk(const Usage& usage, std::string& out) const;

 private:
  AnswerHead head_;
  std::string prefix_;  // {"id":...,"object":...,"created":...,"model":...,"choices":
};

// "data: " + json + "\n\n".
void append_sse(std::string_view json, std::string& out);

struct ModelCard {
  std::string id;
  std::int64_t created = 0;
  std::int32_t max_model_len = 0;
  std::string root;    // of an adapter: its directory's name
  std::string parent;  // of an adapter: the base model
};
std::string models_json(std::span<const ModelCard> models);
std::string model_json(const ModelCard& model);

struct TokenizeAnswer {
  std::vector<TokenId> tokens;
  std::int32_t max_model_len = 0;
  std::optional<std::vector<std::string>> token_strs;
};
std::string tokenize_json(const TokenizeAnswer& answer);
std::string detokenize_json(std::string_view text);

}  // namespace sluice
