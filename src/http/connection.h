// Connection: one client's socket and its current request. It reads one request after another,
// passes each to the Handler, and sends the answers. While the handler answers, the connection
// still reads the socket, to detect a client that leaves and to keep pipelined requests up to a
// limit.
//
// Between requests it holds no buffer and no parser: a thousand idle clients cost a few megabytes.
// Owner: the server (ServerState), which destroys it after retire(). Threads: the event loop's.
// Limits: HttpLimits; kMaxPipelined bytes of further requests; kLingerTime. A client that does not
// read may leave kFairUnsent bytes unsent, and more while HttpLimits::total_unsent_bytes has room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "http/exchange.h"
#include "http/http_server.h"
#include "http/message.h"
#include "http/request_parser.h"
#include "http/response_head.h"
#include "http/socket.h"

namespace sluice::http {

class Connection;
class ConnectionExchange;

// Bytes of request bodies in memory, against HttpLimits::total_body_bytes.
struct BodyBudget {
  std::size_t used = 0;
};

// The state that all connections of a server share.
struct ServerState {
  ServerState(EventLoop& loop_of_all, const HttpLimits& limits_of_all, Handler& handler_of_all,
              const Clock& clock_of_all)
      : loop(loop_of_all), limits(limits_of_all), handler(handler_of_all), clock(clock_of_all) {}

  EventLoop& loop;
  const HttpLimits limits;
  Handler& handler;
  const Clock& clock;
  bool draining = false;
  // Connections that wait for a request; the longest idle first.
  std::list<Connection*> idle;
  std::size_t unsent = 0;  // bytes, of all connections
  ResponseHeads heads;
  std::vector<char> scratch;  // the receive buffer of all connections
  std::string frame;          // the send buffer of all connections
  // Shared with exchanges, which the handler may keep longer than the server lives.
  std::shared_ptr<BodyBudget> budget = std::make_shared<BodyBudget>();
  std::function<void(Connection&)> retire;  // the connection is closed; destroy it later
};

class Connection final : private SocketEvents {
 public:
  static constexpr std::size_t kMaxPipelined = 64 << 10;
  static constexpr std::size_t kFairUnsent = 1 << 20;
  // After an answer to a request that was not completely read, the connection reads and drops
  // further bytes for this long. Closing with unread bytes would make the client's system discard
  // the answer.
  static constexpr Duration kLingerTime = std::chrono::seconds(2);

  Connection(ServerState& server, Socket socket, std::string peer);
  ~Connection() override;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Starts to wait for the first request.
  void start();
  // Answers 503 without reading a request, and closes.
  void reject();
  // Whether no request is being read or answered.
  bool idle() const { return phase_ == Phase::kIdle; }
  // Bytes that are read and not parsed.
  std::size_t waiting_bytes() const { return waiting().size(); }
  void close(CloseReason reason);

  // For the exchange of the request being answered.
  void respond(Response response);
  void begin_stream(const Response& head);
  void write(std::string_view bytes);
  void end_stream();
  void abort();
  std::size_t unsent_bytes() const { return unsent_.size() - unsent_begin_; }
  void set_on_close(std::function<void(CloseReason)> task) { on_close_ = std::move(task); }
  void exchange_gone() { exchange_ = nullptr; }
  // The handler gave no answer: sends 500, or closes the connection in the middle of a stream.
  void fail_unanswered(bool nothing_sent);

 private:
  enum class Phase : std::uint8_t { kIdle, kHead, kBody, kAnswering, kLingering, kClosed };

  void on_readable() override;
  void on_writable() override;
  void on_deadline() override;
  void on_wake() override;

  void enter(Phase phase);
  std::string_view waiting() const { return std::string_view(input_).substr(input_begin_); }
  std::size_t input_room() const;
  void keep_reading();
  void peer_ended();
  void drop_input(std::size_t bytes);
  void advance();
  bool skip_blank_lines();
  void start_header_timer();
  void take_head();
  bool has_room_for(std::uint64_t size, std::uint64_t more) const;
  void refuse_body();
  bool charge_body();
  void dispatch();
  void refuse(int status, std::string message);
  void answer_at_once(Response response, bool keep_alive);
  void send(std::string_view bytes);
  void send_body(std::string body);
  std::size_t send_now(std::string_view bytes);
  void await_unsent();
  void count_sent(std::size_t bytes);
  void count_unsent();
  void finish_if_sent();
  void become_idle();
  void linger();
  void release_buffers();
  void shut(std::optional<CloseReason> reason, bool hard);

  ServerState& server_;
  Socket socket_;
  std::string peer_;
  std::string local_;
  std::string input_;  // read and not parsed, from input_begin_ on
  std::size_t input_begin_ = 0;
  std::string unsent_;  // from unsent_begin_ on
  std::size_t unsent_begin_ = 0;
  std::size_t counted_unsent_ = 0;          // of it in ServerState::unsent
  std::unique_ptr<RequestParser> parser_;   // while a request is being read
  ConnectionExchange* exchange_ = nullptr;  // of the request being answered; nullptr: dropped
  std::function<void(CloseReason)> on_close_;
  TimePoint last_read_;
  std::size_t charged_ = 0;  // of the budget, while a body is being read
  std::size_t lingered_ = 0;
  Phase phase_ = Phase::kIdle;                                  // enter() sets it
  std::optional<std::list<Connection*>::iterator> idle_place_;  // in ServerState::idle
  Framing framing_ = Framing::kLength;
  bool had_blank_line_ = false;  // since the last request
  bool header_timer_runs_ = false;
  bool keep_alive_ = false;  // after the current answer
  bool http_1_1_ = true;
  bool head_only_ = false;  // HEAD
  bool refused_ = false;    // some of the request may not have been read
  bool ended_ = false;      // the answer is complete; some of it may be unsent
};

}  // namespace sluice::http
