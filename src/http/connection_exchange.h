// ConnectionExchange: the Exchange that a Connection hands out. If the handler keeps it, it
// outlives the connection and then does nothing. If the handler drops it without an answer, the
// client gets a 500.
// Owner: the handler. Threads: the event loop's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "http/connection.h"
#include "http/exchange.h"

namespace sluice::http {

class ConnectionExchange final : public Exchange,
                                 public std::enable_shared_from_this<ConnectionExchange> {
 public:
  // `charged`: the body's bytes that count against the budget until the body is dropped.
  ConnectionExchange(Connection& connection, ServerState& server, Request request,
                     std::size_t charged);
  ~ConnectionExchange() override;

  const Request& request() const override { return request_; }
  std::string take_body() override { return std::exchange(request_.body, {}); }
  void drop_body() override;
  void add_header(Header header) override { headers_.push_back(std::move(header)); }
  void respond(Response response) override;
  void begin_stream(Response head) override;
  void write(std::string_view bytes) override;
  void end_stream() override;
  std::size_t unsent_bytes() const override;
  std::int64_t bytes_sent() const override { return bytes_sent_; }
  void on_close(std::function<void(CloseReason)> task) override;
  bool closed() const override { return state_ == State::kClosed || state_ == State::kAborted; }
  void abort() override;

  // Called by the connection.
  void count_sent(std::size_t bytes) { bytes_sent_ += static_cast<std::int64_t>(bytes); }
  void sent_whole();
  void connection_closed(CloseReason reason);

 private:
  enum class State : std::uint8_t { kOpen, kSentWhole, kClosed, kAborted };
  enum class Progress : std::uint8_t { kNothing, kStreaming, kEnded };

  Connection* connection_;  // nullptr once the answer is sent or the connection closed
  EventLoop& loop_;
  Request request_;
  std::vector<Header> headers_;         // added ones
  std::shared_ptr<BodyBudget> budget_;  // shared: an exchange may outlive the server
  std::size_t charged_;
  std::int64_t bytes_sent_ = 0;
  State state_ = State::kOpen;
  Progress progress_ = Progress::kNothing;
  CloseReason close_reason_ = CloseReason::kPeerGone;
};

}  // namespace sluice::http
