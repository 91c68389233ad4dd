#include "apps/party_link.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include <utility>

#include "apps/host_name.h"
#include "base/log.h"
#include "http/fetch.h"
#include "lending/lending_json.h"

namespace sluice {
namespace {

constexpr Duration kAnswerTime = std::chrono::seconds(1);

}  // namespace

std::string lend_party_name(std::string_view word) {
  // Shorter than a name may be, so that the rest has room.
  const std::string host = host_name("serve").substr(0, 40);
  return fmt::format("{}-{}{}{}", host, getpid(), word.empty() ? "" : ".", word);
}

std::string random_lend_word() {
  std::uint64_t bits = 0;
  if (getrandom(&bits, sizeof(bits), 0) != static_cast<ssize_t>(sizeof(bits))) {
    bits = static_cast<std::uint64_t>(getpid());
  }
  return fmt::format("{:016x}", bits);
}

Result<std::unique_ptr<PartyLink>> PartyLink::open(const http::BaseUrl& url,
                                                   const BearerToken& token, http::EventLoop& loop,
                                                   Calls calls) {
  http::HttpClientOptions options;
  options.url = url;
  options.headers = {{"Authorization", token.header()}};
  options.connect_timeout = kAnswerTime;
  options.silence_timeout = kAnswerTime;
  auto client = http::HttpClient::open(loop, options);
  if (!client) return with_context("--lend", std::move(client).error());
  auto link = std::unique_ptr<PartyLink>(new PartyLink(std::move(options), std::move(calls)));
  link->client_ = *std::move(client);
  return link;
}

void PartyLink::send(const LendRequest& message) {
  body_.clear();
  client_->start({.method = "POST",
                  .path = "/v1/" + std::string(lend_verb_name(message.verb)),
                  .body = lend_request_json(message)},
                 *this);
}

void PartyLink::on_body(std::string_view piece) {
  if (body_.size() + piece.size() <= kMaxLendingBody) body_ += piece;
}

void PartyLink::on_end(Status status) {
  if (!status) return calls_.failed(status.error().message);
  const auto answer = parse_lend_answer(body_);
  if (!answer) return calls_.failed(answer.error().message);
  if (answer->fault == LendFault::kNotLeading) return calls_.failed(answer->message);
  calls_.answer(*answer);
}

void PartyLink::leave(const std::optional<LendRequest>& message, const std::string& url) {
  client_.reset();
  if (!message) return;
  const auto answer = http::fetch(
      options_, {.method = "POST", .path = "/v1/leave", .body = lend_request_json(*message)});
  if (!answer) log_warning(fmt::format("--lend: {}: {}", url, answer.error().message));
}

}  // namespace sluice
