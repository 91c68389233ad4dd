// SamplingParams: how the tokens of one request are chosen. Pure data. Callers run validate() once
// where requests enter; all later code relies on it. Names and defaults are vLLM's.
// Values: plain, copyable; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"

namespace sluice {

class TokenGrammar;

struct SamplingParams {
  // At least 1. Counts the output tokens of a sequence's whole life, across preemptions.
  std::int32_t max_tokens = 16;
  // Before this many output tokens no stop id or end-of-sequence id is sampled, and no stop string
  // ends the sequence.
  std::int32_t min_tokens = 0;
  std::int32_t n = 1;  // choices; choice k samples from the random stream (seed, k)

  float temperature = 1.0F;  // 0 = greedy
  float top_p = 1.0F;        // (0, 1]
  std::int32_t top_k = 0;    // 0 = off
  float min_p = 0.0F;        // [0, 1]
  std::uint64_t seed = 0;

  float repetition_penalty = 1.0F;  // > 0; prompt and output tokens
  float presence_penalty = 0.0F;    // [-2, 2]; output tokens
  float frequency_penalty = 0.0F;   // [-2, 2]; output tokens
  std::vector<std::pair<TokenId, float>> logit_bias;
  std::vector<TokenId> allowed_token_ids;       // no other token is sampled; empty = all may be
  std::vector<std::vector<TokenId>> bad_words;  // the output contains none of these sequences

  // The output is a text of this grammar, or the beginning of one when it is cut; null: any text.
  // Shared by all sequences that keep to the same grammar, and by the cache of grammars.
  std::shared_ptr<const TokenGrammar> grammar;

  std::vector<std::string> stop;  // matched on text, by the owner of the detokenizer
  std::vector<TokenId> stop_token_ids;
  bool ignore_eos = false;
  bool include_stop_str_in_output = false;

  // -1 = none; k >= 0: the chosen token's log-probability and those of the k most likely.
  std::int32_t logprobs = -1;
  // The same for each token of the prompt but the first, given the tokens before it. Choice 0
  // reports them. REQUIRES, for all of them: the request has no block hashes, since a token whose
  // KV comes from the prefix cache has no logits.
  std::int32_t prompt_logprobs = -1;

  friend bool operator==(const SamplingParams&, const SamplingParams&) = default;
};

// Largest number of alternatives per token that `logprobs` may ask for.
inline constexpr std::int32_t kMaxLogprobs = 20;

// kInvalidArgument naming the field and its range, or success.
Status validate(const SamplingParams& params, std::int32_t vocab_size);

}  // namespace sluice
