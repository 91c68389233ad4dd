#include "http/connection_exchange.h"

#include <fmt/format.h>

#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace sluice::http {

ConnectionExchange::ConnectionExchange(Connection& connection, ServerState& server, Request request,
                                       std::size_t charged)
    : connection_(&connection),
      loop_(server.loop),
      request_(std::move(request)),
      budget_(server.budget),
      charged_(charged) {}

ConnectionExchange::~ConnectionExchange() {
  budget_->used -= charged_;
  if (connection_ == nullptr) return;
  connection_->exchange_gone();
  if (progress_ == Progress::kEnded) return;  // its last bytes are still being sent
  log_error(
      fmt::format("{} {} was dropped without a complete answer", request_.method, request_.path));
  connection_->fail_unanswered(progress_ == Progress::kNothing);
}

void ConnectionExchange::drop_body() {
  std::string().swap(request_.body);  // an assignment would keep the memory
  budget_->used -= std::exchange(charged_, 0);
}

// The end of an answer may make the handler drop the exchange; `self` keeps it until the call ends.
void ConnectionExchange::respond(Response response) {
  CHECK(progress_ == Progress::kNothing);
  progress_ = Progress::kEnded;
  const auto self = shared_from_this();
  response.headers.insert(response.headers.end(), headers_.begin(), headers_.end());
  if (connection_ != nullptr) connection_->respond(std::move(response));
}

void ConnectionExchange::begin_stream(Response head) {
  CHECK(progress_ == Progress::kNothing && head.body.empty());
  progress_ = Progress::kStreaming;
  const auto self = shared_from_this();
  head.headers.insert(head.headers.end(), headers_.begin(), headers_.end());
  if (connection_ != nullptr) connection_->begin_stream(head);
}

void ConnectionExchange::write(std::string_view bytes) {
  CHECK(progress_ == Progress::kStreaming);
  const auto self = shared_from_this();
  if (connection_ != nullptr) connection_->write(bytes);
}

void ConnectionExchange::end_stream() {
  CHECK(progress_ == Progress::kStreaming);
  progress_ = Progress::kEnded;
  const auto self = shared_from_this();
  if (connection_ != nullptr) connection_->end_stream();
}

std::size_t ConnectionExchange::unsent_bytes() const {
  return connection_ == nullptr ? 0 : connection_->unsent_bytes();
}

void ConnectionExchange::on_close(std::function<void(CloseReason)> task) {
  if (connection_ != nullptr) {
    connection_->set_on_close(std::move(task));
  } else if (state_ == State::kClosed) {
    loop_.post([task = std::move(task), reason = close_reason_] { task(reason); });
  }
}

void ConnectionExchange::abort() {
  // A handler that aborts need not answer.
  progress_ = Progress::kEnded;
  if (connection_ == nullptr) return;
  const auto self = shared_from_this();
  state_ = State::kAborted;
  std::exchange(connection_, nullptr)->abort();
}

void ConnectionExchange::sent_whole() {
  connection_ = nullptr;
  state_ = State::kSentWhole;
}

void ConnectionExchange::connection_closed(CloseReason reason) {
  connection_ = nullptr;
  state_ = State::kClosed;
  close_reason_ = reason;
}

}  // namespace sluice::http
