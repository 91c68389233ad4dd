// The facts that a run needs before it begins, from any OpenAI-compatible server. Blocks the
// calling thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/token_id.h"
#include "http/http_client.h"

namespace sluice {

struct ServerFacts {
  std::string model;
  std::int32_t max_model_len = 0;  // 0: unknown
};

// Reads /v1/models: `model` must be listed; empty: the first model. Errors contain the server's
// answer.
Result<ServerFacts> ask_models(const http::HttpClientOptions& options, const std::string& model);

// Waits until GET /ready succeeds, or /v1/models on a server without that path. kDeadlineExceeded,
// with the last answer, after `timeout`.
Status await_ready(const http::HttpClientOptions& options, Duration timeout, const Clock& clock);

// The token ids of which prompts are made: /tokenize (of vLLM and Sluice) is applied to ordinary
// words, so that every id is an ordinary token. If there is no such endpoint, the error says to
// give --vocab-size.
Result<std::vector<TokenId>> ask_token_ids(const http::HttpClientOptions& options,
                                           const std::string& model);

}  // namespace sluice
