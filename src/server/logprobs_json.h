// Log-probabilities in the two shapes of the OpenAI API, and of prompts as vLLM shows them.
// Pure functions; any thread.
#pragma once

#include <span>
#include <string>

#include "server/response_json.h"

namespace sluice {

// Chat: {"content": [{"token", "logprob", "bytes", "top_logprobs": [..]}, ..], "refusal": null}.
void append_chat_logprobs(const LogprobList& tokens, std::string& out);

// Completions: {"text_offset": [..], "token_logprobs": [..], "tokens": [..], "top_logprobs": [..]},
// the last one objects from token text to log-probability. Tokens of equal text, as pieces of
// characters are, share a key: the likeliest has it. The chosen token is always among them.
void append_completion_logprobs(const LogprobList& tokens, std::string& out);
// An upper bound of the bytes that either function appends.
std::size_t logprobs_json_bound(ApiKind kind, const LogprobList& tokens);

// vLLM's prompt_logprobs: [null, {"ID": {"logprob", "rank", "decoded_token"}, ..}, ..], an object
// for each token, with itself first.
void append_prompt_logprobs(const PromptLogprobList& tokens, std::string& out);
std::size_t prompt_logprobs_json_bound(const PromptLogprobList& tokens);

}  // namespace sluice
