// CoordinatorService: a coordinator's state over HTTP. POST /v1/VERB for each verb of
// lending_message.h, GET /v1/status, /metrics, /health and /openapi.json. All but /health and
// /openapi.json need the token. docs/elastic-memory.md describes bodies and answers. Owner: the
// command. Threads: the event loop's. Limits: bodies of kMaxLendingBody.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "coordinator/coordinator_state.h"
#include "http/http_server.h"
#include "lending/lending_message.h"
#include "membership/bearer_token.h"
#include "metrics/counter.h"

namespace sluice {

class CoordinatorService final : public http::Handler {
 public:
  // REQUIRES: `state` and `clock` outlive this.
  CoordinatorService(CoordinatorState& state, BearerToken token, const Clock& clock,
                     std::string version);

  std::optional<http::Response> admit(const http::Request& head) override;
  void handle(std::shared_ptr<http::Exchange> exchange) override;  // shared as every exchange is
  http::Response refusal(const http::Request& head, int status, std::string message) override;

 private:
  http::Response look(const http::Request& request);
  http::Response lend(LendVerb verb, const http::Request& request);
  http::Response not_leading() const;
  std::string metrics();

  CoordinatorState& state_;
  const BearerToken token_;
  const Clock& clock_;
  const std::string version_;
  std::array<Counter, 10> handled_;  // by verb
  std::array<Counter, 10> refused_;
  Counter wrong_tokens_;
};

// The document of GET /openapi.json.
std::string coordinator_openapi(std::string_view version);

}  // namespace sluice
