// CoordinatorService: a LendingBook over HTTP. POST /v1/VERB for each verb of lending_message.h,
// GET /v1/status, /metrics, /health and /openapi.json. All but /health and /openapi.json need the
// token. docs/elastic-memory.md describes bodies and answers.
// Owner: the command. Threads: the event loop's. Limits: bodies of kMaxLendingBody.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "coordinator/bearer_token.h"
#include "http/http_server.h"
#include "lending/lending_book.h"
#include "metrics/counter.h"

namespace sluice {

class CoordinatorService final : public http::Handler {
 public:
  // REQUIRES: `clock` outlives this.
  CoordinatorService(LendingOptions options, BearerToken token, const Clock& clock,
                     std::string version);

  std::optional<http::Response> admit(const http::Request& head) override;
  void handle(std::shared_ptr<http::Exchange> exchange) override;  // shared as every exchange is
  http::Response refusal(const http::Request& head, int status, std::string message) override;

  // Forgets silent parties; the owner calls it now and then, so that /metrics is up to date.
  void advance() { book_.advance(clock_.now()); }

 private:
  http::Response answer(const http::Request& request);
  http::Response lend(LendVerb verb, const http::Request& request);
  std::string metrics();

  LendingBook book_;
  const BearerToken token_;
  const Clock& clock_;
  const std::string version_;
  std::array<Counter, 9> handled_;  // by verb
  std::array<Counter, 9> refused_;
  Counter wrong_tokens_;
};

// The document of GET /openapi.json.
std::string coordinator_openapi(std::string_view version);

}  // namespace sluice
