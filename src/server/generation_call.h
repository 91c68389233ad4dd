// GenerationCall: one HTTP request to generate, in native types, parsed and checked as far as that
// needs no model. Every known field is either used or refused by name. Unknown fields are listed in
// the call, or refused by name with UnknownFields::kRefuse. Values: plain; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/json_document.h"
#include "base/token_id.h"
#include "front/prompt_truncation.h"
#include "front/sampling_defaults.h"
#include "front/tool_grammar.h"
#include "grammar/grammar_compiler.h"
#include "request/pin_order.h"
#include "request/sampling_params.h"
#include "server/api_error.h"
#include "server/body_fields.h"
#include "server/dialect.h"
#include "server/ignored_fields.h"

namespace sluice {

// Bounds of one call to /v1/completions: its prompts, and prompts times n.
inline constexpr std::size_t kMaxPrompts = 256;
inline constexpr std::int64_t kMaxChoices = 1024;
// Texts of one call to /v1/embeddings, as in OpenAI's API.
inline constexpr std::size_t kMaxEmbeddings = 2048;

enum class ApiKind : std::uint8_t { kChat, kCompletion, kEmbedding };

// A prompt of /v1/completions: text, or token ids used as they are.
using CompletionPrompt = std::variant<std::string, std::vector<TokenId>>;

// The parts of a chat as checked JSON, moved out of the request's body.
struct ChatPart {
  JsonValue messages;   // an array of objects
  JsonValue tools;      // an array; null = none
  JsonValue variables;  // an object: chat_template_kwargs; null = none
  bool add_generation_prompt = true;
  bool continue_final_message = false;
};

// The grammar of the answers, and the field that asks for it.
struct StructuredOutput {
  GrammarSpec spec;
  std::string field;
};

// Vectors of texts, or what is computed of them.
enum class EmbeddingUse : std::uint8_t { kVectors, kScore, kRerank };
struct EmbeddingPart {
  EmbeddingUse use = EmbeddingUse::kVectors;
  std::optional<std::int32_t> dimensions;  // kVectors: the first ones; absent: all
  bool base64 = false;                     // kVectors: of F32, little-endian
  std::optional<bool> normalize;           // kVectors: to length 1; absent: as the model says
  // kScore and kRerank: the prompts are the first texts and then the second ones. One first text
  // goes with every second one, otherwise each goes with that of its place.
  std::size_t num_first = 0;
  std::string first_field;             // for errors: where the first texts were
  std::string second_field;            // and the second
  std::optional<std::int32_t> top_n;   // kRerank: so many results; absent: all
  std::vector<std::string> documents;  // kRerank: those that the answer repeats

  // The field that holds a prompt.
  std::string field_of(std::size_t prompt, std::size_t num_prompts) const;
};

struct GenerationCall {
  ApiKind kind = ApiKind::kChat;
  Dialect dialect = Dialect::kOpenAi;
  std::string model;
  ChatPart chat;                          // kChat
  ToolChoice tool_choice;                 // kChat
  std::vector<CompletionPrompt> prompts;  // kCompletion and kEmbedding; at least one
  EmbeddingPart embedding;                // kEmbedding

  // Without max_tokens: 16 for kCompletion, as in OpenAI's API; for kChat the context is the limit.
  SamplingParams sampling;
  GivenSampling given;  // the model's generation_config.json fills in the others
  bool echo = false;    // kCompletion: the prompt's text in front of each choice
  // max_tokens was 0: the answer is about the prompt alone. The engine still samples one token,
  // which the answer leaves out: sampling.max_tokens is 1.
  bool prompt_only = false;
  // vLLM: the answer has the log-probabilities of the prompt's tokens, with so many alternatives;
  // -1: it has none. sampling.prompt_logprobs is at least this.
  std::int32_t prompt_logprobs = -1;

  bool stream = false;
  bool include_usage = false;           // stream_options: a last chunk with usage
  bool continuous_usage_stats = false;  // stream_options: usage in every chunk (vLLM)
  bool return_token_ids = false;        // vLLM: prompt_token_ids and token_ids
  bool add_special_tokens = true;       // kCompletion: BOS as the tokenizer says; kChat: false
  bool skip_special_tokens = true;

  // vLLM: the prompt keeps so many tokens; -1: as many as the context has room for.
  std::optional<std::int32_t> truncate_prompt_tokens;
  TruncationSide truncation_side = TruncationSide::kLeft;
  std::vector<std::string> bad_words;  // become SamplingParams::bad_words with the tokenizer

  std::optional<StructuredOutput> structured;  // becomes SamplingParams::grammar in a worker

  std::string user;             // the client that fair scheduling charges without an API key
  bool kv_memory_only = false;  // prompt_cache_retention: the KV never goes to a disk
  std::string cache_salt;       // keeps the prompt's cached blocks apart; empty = the tenant's own
  std::int32_t priority = 0;
  std::optional<Duration> timeout;  // the answer ends then, complete or not
  std::optional<PinOrder> pin;      // the call makes a pin; the answer describes it
  std::string repeated_json;        // kResponses: members of the request that the answer repeats
  std::vector<IgnoredField> ignored_fields;
};

ApiResult<GenerationCall> parse_chat_call(std::string_view body,
                                          BodyReading reading = UnknownFields::kRefuse);
ApiResult<GenerationCall> parse_completion_call(std::string_view body,
                                                BodyReading reading = UnknownFields::kRefuse);
// OpenAI's /v1/embeddings, vLLM's /score, Jina's and Cohere's /rerank.
ApiResult<GenerationCall> parse_embedding_call(std::string_view body, EmbeddingUse use,
                                               BodyReading reading = UnknownFields::kRefuse);

// Anthropic's /v1/messages, and its count_tokens, which needs no max_tokens.
enum class MessagesUse : std::uint8_t { kAnswer, kCount };
ApiResult<GenerationCall> parse_messages_call(std::string_view body, BodyReading reading,
                                              MessagesUse use = MessagesUse::kAnswer);
// OpenAI's /v1/responses.
ApiResult<GenerationCall> parse_responses_call(std::string_view body, BodyReading reading);

// /tokenize: text or chat to ids; /detokenize: ids to text (vLLM's shapes).
struct TokenizeCall {
  std::optional<std::string> model;  // absent: the only one
  std::optional<std::string> prompt;
  std::optional<ChatPart> chat;
  bool add_special_tokens = true;
  bool return_token_strs = false;
  std::vector<IgnoredField> ignored_fields;
};
struct DetokenizeCall {
  std::optional<std::string> model;
  std::vector<TokenId> tokens;
  std::vector<IgnoredField> ignored_fields;
};
ApiResult<TokenizeCall> parse_tokenize_call(std::string_view body,
                                            BodyReading reading = UnknownFields::kRefuse);
ApiResult<DetokenizeCall> parse_detokenize_call(std::string_view body,
                                                BodyReading reading = UnknownFields::kRefuse);

// The list for FieldReader: of the call, or none when unknown fields are refused.
template <class Call>
std::vector<IgnoredField>* ignored_of(Call& call, const BodyReading& reading) {
  return reading.unknown == UnknownFields::kIgnore ? &call.ignored_fields : nullptr;
}

}  // namespace sluice
