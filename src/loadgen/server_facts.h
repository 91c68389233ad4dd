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
  std::int32_t max_model_len = 0;  // 0: it does not say
};

// /v1/models: `model` must be there; empty: the first one. Errors say what the server answered.
Result<ServerFacts> ask_models(const http::HttpClientOptions& options, const std::string& model);

// Waits until the server can answer: GET /ready says so, or, of a server without that path,
// /v1/models is there. kDeadlineExceeded, with what it said last, when it does not within
// `timeout`.
Status await_ready(const http::HttpClientOptions& options, Duration timeout, const Clock& clock);

// Ids that prompts may be made of: what /tokenize (of vLLM and Sluice) makes of ordinary words, so
// that every id is a plain one. An error says to give --vocab-size where there is no such endpoint.
Result<std::vector<TokenId>> ask_token_ids(const http::HttpClientOptions& options,
                                           const std::string& model);

}  // namespace sluice
