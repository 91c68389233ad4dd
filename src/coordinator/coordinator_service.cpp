#include "coordinator/coordinator_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lending/lending_json.h"
#include "metrics/prometheus.h"

namespace sluice {
namespace {

http::Response error(int status, LendFault fault, std::string message) {
  LendAnswer answer;
  answer.fault = fault;
  answer.message = std::move(message);
  http::Response response;
  response.status = status;
  response.body = lend_answer_json(answer);
  return response;
}

std::optional<LendVerb> verb_of(std::string_view path) {
  constexpr std::string_view kPrefix = "/v1/";
  if (!path.starts_with(kPrefix)) return std::nullopt;
  path.remove_prefix(kPrefix.size());
  for (const LendVerb verb : lend_verbs()) {
    if (lend_verb_name(verb) == path) return verb;
  }
  return std::nullopt;
}

bool is_open(std::string_view path) { return path == "/health" || path == "/openapi.json"; }

}  // namespace

CoordinatorService::CoordinatorService(CoordinatorState& state, BearerToken token,
                                       const Clock& clock, std::string version)
    : state_(state), token_(std::move(token)), clock_(clock), version_(std::move(version)) {}

std::optional<http::Response> CoordinatorService::admit(const http::Request& head) {
  const auto verb = verb_of(head.path);
  const bool is_get = head.path == "/v1/status" || head.path == "/metrics" || is_open(head.path);
  if (!verb && !is_get) {
    return error(404, LendFault::kBadRequest,
                 fmt::format("there is no path {}; GET /openapi.json lists them", head.path));
  }
  if (head.method != (verb ? "POST" : "GET")) {
    return error(405, LendFault::kBadRequest,
                 fmt::format("{} needs the method {}", head.path, verb ? "POST" : "GET"));
  }
  if (is_open(head.path) || token_.admits(head.header("authorization"))) return std::nullopt;
  wrong_tokens_.add();
  http::Response response = error(401, LendFault::kBadRequest,
                                  "the header Authorization must be 'Bearer TOKEN', with the "
                                  "token of --token-file");
  response.headers.push_back({"WWW-Authenticate", "Bearer"});
  return response;
}

// `exchange` is shared as every exchange is.
void CoordinatorService::handle(std::shared_ptr<http::Exchange> exchange) {
  const auto verb = verb_of(exchange->request().path);
  if (!verb) return exchange->respond(look(exchange->request()));
  if (state_.book() == nullptr) return exchange->respond(not_leading());
  // Nothing is said before it is stored.
  state_.store([this, exchange, response = lend(*verb, exchange->request())](bool stored) {
    if (!exchange->closed()) exchange->respond(stored ? response : not_leading());
  });
}

http::Response CoordinatorService::not_leading() const {
  return error(
      503, LendFault::kNotLeading,
      fmt::format("this coordinator does not lead ({}); repeat the request", state_.cause()));
}

http::Response CoordinatorService::refusal(const http::Request&, int status, std::string message) {
  return error(status, LendFault::kBadRequest, std::move(message));
}

http::Response CoordinatorService::look(const http::Request& request) {
  http::Response response;
  if (request.path == "/v1/status") {
    LendingBook* const book = state_.book();
    if (book == nullptr) return not_leading();
    response.body = lending_status_json(book->status(clock_.now()));
  } else if (request.path == "/metrics") {
    response.content_type = std::string(kPrometheusContentType);
    response.body = metrics();
  } else if (request.path == "/openapi.json") {
    response.body = coordinator_openapi(version_);
  } else {
    response.body = R"({"status":"ok"})";
  }
  return response;
}

http::Response CoordinatorService::lend(LendVerb verb, const http::Request& request) {
  const auto index = static_cast<std::size_t>(verb);
  handled_[index].add();
  const auto message = parse_lend_request(verb, request.body);
  LendAnswer answer;
  if (message) {
    answer = state_.book()->handle(clock_.now(), *message);
  } else {
    answer.fault = LendFault::kBadRequest;
    answer.message = message.error().message;
  }
  if (answer.fault != LendFault::kNone) refused_[index].add();
  http::Response response;
  response.status = lend_fault_status(answer.fault);
  response.body = lend_answer_json(answer);
  return response;
}

std::string CoordinatorService::metrics() {
  LendingBook* const book = state_.book();
  const LendingStatus status = book == nullptr ? LendingStatus{} : book->status(clock_.now());
  std::string text;
  PrometheusWriter writer("sluice:coordinator_", text);
  writer.counter("requests_total", "Messages of parties, by verb.");
  for (const LendVerb verb : lend_verbs()) {
    writer.value({{"verb", lend_verb_name(verb)}},
                 handled_[static_cast<std::size_t>(verb)].value());
  }
  writer.counter("refused_total", "Messages that changed nothing because of an error, by verb.");
  for (const LendVerb verb : lend_verbs()) {
    writer.value({{"verb", lend_verb_name(verb)}},
                 refused_[static_cast<std::size_t>(verb)].value());
  }
  writer.counter("wrong_tokens_total", "Requests without the token.");
  writer.value({}, wrong_tokens_.value());
  writer.counter("expired_parties_total", "Parties that were silent for longer than the expiry.");
  writer.value({}, static_cast<double>(status.expired));
  writer.gauge("leads", "Whether this coordinator answers parties: always 1 without etcd.");
  writer.value({}, book == nullptr ? 0 : 1);
  writer.gauge("parties", "Parties that have joined.");
  writer.value({}, static_cast<double>(status.parties.size()));
  writer.gauge("lease_bytes", "Memory of each lease.");
  for (const DeviceLeaseView& lease : status.leases) {
    writer.value({{"device", lease.device}, {"lease", lease.lease.lease}},
                 static_cast<double>(lease.lease.bytes));
  }
  writer.gauge("lent_bytes", "Memory of each lease that is lent.");
  for (const DeviceLeaseView& lease : status.leases) {
    writer.value({{"device", lease.device}, {"lease", lease.lease.lease}},
                 static_cast<double>(lease.lease.lent));
  }
  writer.gauge("recalled_bytes", "Lent memory that its holders were asked to give back.");
  double recalled = 0;
  for (const DeviceLoanView& loan : status.loans) {
    recalled += static_cast<double>(loan.loan.bytes - loan.loan.keep);
  }
  writer.value({}, recalled);
  return text;
}

}  // namespace sluice
