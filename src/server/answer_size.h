// Bounds the size of answers that are not streamed, so that calls with many choices or
// log-probabilities cannot exhaust memory. A stream holds almost nothing and is not bounded here.
// Pure functions; any thread.
#pragma once

#include <cstddef>

#include "server/api_error.h"
#include "server/generation_call.h"

namespace sluice {

// The JSON of one answer. A call whose answer could be longer is refused.
inline constexpr std::size_t kMaxAnswerBytes = std::size_t{64} << 20;
// The memory that the unfinished non-streamed answers of all calls may reach. A call beyond that
// total is answered 429; a call that holds at most kFairAnswerBytes is always accepted.
inline constexpr std::size_t kMaxHeldBytes = std::size_t{256} << 20;
inline constexpr std::size_t kFairAnswerBytes = std::size_t{1} << 20;

struct AnswerSize {
  std::size_t json = 0;  // of the answer, for text of ordinary tokens
  std::size_t held = 0;  // of text and log-probabilities until the answer is made
};

// Estimates one prompt's choices from n, max_tokens and logprobs. REQUIRES: `sampling` is complete.
AnswerSize whole_answer_size(const GenerationCall& call, const SamplingParams& sampling,
                             std::size_t prompt_tokens, std::size_t echo_bytes);

// The size of a prompt's part in an answer of vectors of `width`.
AnswerSize embedding_size(const EmbeddingPart& part, std::int32_t width);

// 400 if the call is not streamed and its answer could be longer than kMaxAnswerBytes.
ApiResult<void> check_answer_size(const GenerationCall& call, const AnswerSize& size);

}  // namespace sluice
