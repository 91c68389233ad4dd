#include "http/connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "http/connection_exchange.h"

namespace sluice::http {
namespace {

constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
// Sent bytes are erased from the front of `unsent_` only when there are this many.
constexpr std::size_t kCompactFrom = 64 << 10;
// A body up to this length goes out in one piece with its head.
constexpr std::size_t kShortBody = 64 << 10;

void release(std::string& text) { std::string().swap(text); }

}  // namespace

Connection::Connection(ServerState& server, Socket socket, std::string peer)
    : server_(server),
      socket_(std::move(socket)),
      peer_(std::move(peer)),
      local_(socket_.local_address()) {
  socket_.set_events(*this);
}

Connection::~Connection() { CHECK(phase_ == Phase::kClosed); }

void Connection::start() {
  enter(Phase::kIdle);
  socket_.set_deadline(server_.limits.idle_timeout);
  keep_reading();
}

void Connection::enter(Phase phase) {
  if (idle_place_) server_.idle.erase(*std::exchange(idle_place_, std::nullopt));
  phase_ = phase;
  if (phase == Phase::kIdle) idle_place_ = server_.idle.insert(server_.idle.end(), this);
}

void Connection::reject() {
  last_read_ = server_.clock.now();
  refuse(503, "too many connections; try again later");
}

// ---------------------------------------------------------------- reading

void Connection::keep_reading() {
  if (phase_ != Phase::kClosed && input_room() > 0) socket_.await_readable();
}

// The number of bytes that may be read now. While a request is parsed, only a piece of it waits.
std::size_t Connection::input_room() const {
  const std::size_t most = server_.scratch.size();
  if (phase_ == Phase::kHead || phase_ == Phase::kBody) return most;
  return std::min(most, kMaxPipelined - std::min(kMaxPipelined, waiting().size()));
}

void Connection::on_readable() {
  const std::size_t room = input_room();
  if (room == 0) return;  // keep_reading() is called when there is room
  const IoResult result = socket_.receive(std::span(server_.scratch).first(room));
  if (result.state == IoState::kClosed) return peer_ended();
  if (result.state == IoState::kDone) {
    last_read_ = server_.clock.now();
    if (phase_ == Phase::kLingering) {
      lingered_ += result.bytes;
      // Twice the largest body: enough for a client that sends all of it before it reads.
      if (lingered_ > 2 * server_.limits.body_bytes + kCompactFrom) return shut({}, false);
    } else {
      drop_input(0);
      input_.append(server_.scratch.data(), result.bytes);
      advance();
    }
  }
  keep_reading();
}

// A client that ends its sending direction counts as gone: almost always it is, and computing an
// unread answer is expensive.
void Connection::peer_ended() {
  if (phase_ == Phase::kAnswering) {
    if (!ended_) return shut(CloseReason::kPeerGone, false);
    keep_alive_ = false;  // the answer is complete; sending the rest of it costs nothing
    return;
  }
  shut({}, false);
}

// Removes `bytes` from the front of the input. With 0, also erases the bytes removed before.
void Connection::drop_input(std::size_t bytes) {
  input_begin_ += bytes;
  if (bytes == 0 && input_begin_ > 0) {
    input_.erase(0, input_begin_);
    input_begin_ = 0;
  } else if (input_begin_ == input_.size()) {
    input_.clear();
    input_begin_ = 0;
  }
}

// Some clients send a blank line after a body (RFC 9112, 2.2). A second blank line counts as the
// slow beginning of a request, for which the timeout runs. False: no request has begun.
bool Connection::skip_blank_lines() {
  while (waiting().starts_with("\r\n")) {
    drop_input(2);
    if (std::exchange(had_blank_line_, true)) start_header_timer();
  }
  if (waiting() != "\r") return !waiting().empty();
  if (had_blank_line_) start_header_timer();
  return false;
}

void Connection::start_header_timer() {
  if (std::exchange(header_timer_runs_, true)) return;
  socket_.set_deadline(server_.limits.header_timeout);
}

void Connection::advance() {
  while (phase_ == Phase::kIdle || phase_ == Phase::kHead || phase_ == Phase::kBody) {
    if (phase_ == Phase::kIdle) {
      if (!skip_blank_lines()) return;
      parser_ = std::make_unique<RequestParser>(
          RequestParser::Limits{server_.limits.header_bytes, server_.limits.body_bytes});
      enter(Phase::kHead);
      start_header_timer();
    }
    const RequestParser::Step step = parser_->put(waiting());
    drop_input(step.consumed);
    switch (step.event) {
      case RequestParser::Event::kRefused: return refuse(parser_->status(), parser_->message());
      case RequestParser::Event::kHead: take_head(); break;
      case RequestParser::Event::kNeedMore: charge_body(); return;
      case RequestParser::Event::kDone:
        if (charge_body()) dispatch();
        return;
    }
  }
}

void Connection::take_head() {
  Request& head = parser_->request();
  head.peer = peer_;
  head.local = local_;
  head.received = last_read_;
  if (!has_room_for(parser_->content_length(), parser_->content_length())) return refuse_body();
  if (auto refused = server_.handler.admit(head)) {
    const bool keep_alive = parser_->keep_alive() && !parser_->has_body();
    return answer_at_once(*std::move(refused), keep_alive);
  }
  enter(Phase::kBody);
  if (!parser_->has_body()) return;
  socket_.set_deadline(server_.limits.body_timeout);
  if (parser_->expects_continue() && waiting().empty()) send(kContinue);
}

// Whether a body of `size` bytes, `more` of which are not counted yet, may be in memory. Short
// bodies always may, so that a few clients with long bodies cannot shut out all others.
bool Connection::has_room_for(std::uint64_t size, std::uint64_t more) const {
  const HttpLimits& limits = server_.limits;
  return size <= limits.fair_body_bytes || server_.budget->used + more <= limits.total_body_bytes;
}

void Connection::refuse_body() {
  refuse(503, "too many requests with large bodies at once; try again later");
}

bool Connection::charge_body() {
  const std::size_t size = parser_->request().body.size();
  server_.budget->used += size - charged_;
  charged_ = size;
  if (has_room_for(size, 0)) return true;
  refuse_body();
  return false;
}

void Connection::dispatch() {
  enter(Phase::kAnswering);
  socket_.clear_deadline();
  if (unsent_bytes() > 0) socket_.set_deadline(server_.limits.write_timeout);
  keep_alive_ = parser_->keep_alive();
  http_1_1_ = parser_->http_1_1();
  Request request = std::move(parser_->request());
  request.received = last_read_;
  head_only_ = request.method == "HEAD";
  parser_.reset();
  // Shared with the handler, which may outlive the connection: see exchange.h.
  auto exchange = std::make_shared<ConnectionExchange>(*this, server_, std::move(request),
                                                       std::exchange(charged_, 0));
  exchange_ = exchange.get();
  server_.handler.handle(std::move(exchange));
}

// ---------------------------------------------------------------- answering

void Connection::refuse(int status, std::string message) {
  Request unread;
  Request& head = parser_ != nullptr ? parser_->request() : unread;
  head.peer = peer_;
  head.local = local_;
  answer_at_once(server_.handler.refusal(head, status, std::move(message)), false);
}

void Connection::answer_at_once(Response response, bool keep_alive) {
  if (parser_ != nullptr) {
    http_1_1_ = parser_->http_1_1() || parser_->request().path.empty();
    head_only_ = parser_->request().method == "HEAD";
    parser_.reset();
  }
  server_.budget->used -= std::exchange(charged_, 0);
  enter(Phase::kAnswering);
  keep_alive_ = keep_alive;
  refused_ = !keep_alive;
  socket_.clear_deadline();
  respond(std::move(response));
}

void Connection::fail_unanswered(bool nothing_sent) {
  if (!nothing_sent) return shut({}, true);
  refuse(500, "the server produced no answer");
}

void Connection::respond(Response response) {
  framing_ = Framing::kLength;
  keep_alive_ = keep_alive_ && !server_.draining;
  std::string& frame = server_.frame;
  frame.clear();
  server_.heads.append(response, framing_, response.body.size(), keep_alive_, http_1_1_,
                       server_.clock.now(), frame);
  if (head_only_ || !has_body(response.status)) response.body.clear();
  const bool in_one_piece = response.body.size() <= kShortBody;
  if (in_one_piece) frame += response.body;
  ended_ = true;
  send(frame);
  if (!in_one_piece) send_body(std::move(response.body));
  finish_if_sent();
}

void Connection::begin_stream(const Response& head) {
  framing_ = http_1_1_ ? Framing::kChunked : Framing::kUntilClose;
  keep_alive_ = keep_alive_ && !server_.draining && framing_ == Framing::kChunked;
  server_.frame.clear();
  server_.heads.append(head, framing_, 0, keep_alive_, http_1_1_, server_.clock.now(),
                       server_.frame);
  send(server_.frame);
}

void Connection::write(std::string_view bytes) {
  if (head_only_ || bytes.empty()) return;
  if (framing_ == Framing::kUntilClose) return send(bytes);
  server_.frame.clear();
  append_chunk(bytes, server_.frame);
  send(server_.frame);
}

void Connection::end_stream() {
  ended_ = true;
  if (framing_ == Framing::kChunked && !head_only_) send(kLastChunk);
  finish_if_sent();
}

void Connection::abort() {
  exchange_ = nullptr;
  shut({}, true);
}

void Connection::close(CloseReason reason) { shut(reason, false); }

void Connection::send(std::string_view bytes) {
  const std::size_t sent = send_now(bytes);
  if (phase_ == Phase::kClosed || sent == bytes.size()) return;
  if (unsent_begin_ >= kCompactFrom && unsent_begin_ > unsent_.size() / 2) {
    unsent_.erase(0, unsent_begin_);
    unsent_begin_ = 0;
  }
  unsent_.append(bytes.substr(sent));
  await_unsent();
}

// Sends a long body without a copy: a copy would delay all other connections.
void Connection::send_body(std::string body) {
  const std::size_t sent = send_now(body);
  if (phase_ == Phase::kClosed || sent == body.size()) return;
  if (unsent_bytes() > 0) {
    unsent_.append(body);
  } else {
    unsent_ = std::move(body);
    unsent_begin_ = sent;
  }
  await_unsent();
}

// Sends as much as the socket takes at once; nothing while earlier bytes are unsent.
std::size_t Connection::send_now(std::string_view bytes) {
  if (phase_ == Phase::kClosed || unsent_bytes() > 0) return 0;
  const IoResult result = socket_.send(bytes);
  if (result.state == IoState::kClosed) {
    shut(CloseReason::kPeerGone, false);
    return 0;
  }
  count_sent(result.bytes);
  if (result.bytes < bytes.size() && phase_ == Phase::kAnswering) {
    socket_.set_deadline(server_.limits.write_timeout);
  }
  return result.bytes;
}

void Connection::await_unsent() {
  count_unsent();
  if (unsent_bytes() > kFairUnsent && server_.unsent > server_.limits.total_unsent_bytes) {
    log_warning(fmt::format(
        "{} leaves {} bytes unread, and all clients together leave {}; closing its connection",
        peer_, unsent_bytes(), server_.unsent));
    return shut(CloseReason::kWriteTimeout, true);
  }
  socket_.await_writable();
}

void Connection::on_writable() {
  if (phase_ == Phase::kClosed || unsent_bytes() == 0) return;
  const IoResult result = socket_.send(std::string_view(unsent_).substr(unsent_begin_));
  if (result.state == IoState::kClosed) return shut(CloseReason::kPeerGone, false);
  count_sent(result.bytes);
  unsent_begin_ += result.bytes;
  count_unsent();
  if (unsent_bytes() > 0) {
    if (phase_ == Phase::kAnswering && result.bytes > 0) {
      socket_.set_deadline(server_.limits.write_timeout);
    }
    return socket_.await_writable();
  }
  release(unsent_);
  unsent_begin_ = 0;
  if (phase_ != Phase::kAnswering) return;
  socket_.clear_deadline();
  finish_if_sent();
}

void Connection::count_sent(std::size_t bytes) {
  if (exchange_ != nullptr) exchange_->count_sent(bytes);
}

void Connection::count_unsent() {
  server_.unsent += unsent_bytes() - counted_unsent_;
  counted_unsent_ = unsent_bytes();
}

// ---------------------------------------------------------------- between requests, and the end

void Connection::finish_if_sent() {
  if (phase_ != Phase::kAnswering || !ended_ || unsent_bytes() > 0) return;
  ended_ = false;
  if (exchange_ != nullptr) std::exchange(exchange_, nullptr)->sent_whole();
  // Destroyed at the end of this call, because it may own the handler's state of the request.
  const auto task = std::exchange(on_close_, nullptr);
  if (keep_alive_ && !server_.draining) return become_idle();
  if (refused_ || !waiting().empty()) return linger();
  shut({}, false);
}

void Connection::become_idle() {
  enter(Phase::kIdle);
  had_blank_line_ = false;
  header_timer_runs_ = false;
  head_only_ = false;
  http_1_1_ = true;
  socket_.set_deadline(server_.limits.idle_timeout);
  if (waiting().empty()) {
    release(input_);
  } else {
    socket_.wake();  // a pipelined request; not from here, or many of them would nest
  }
  keep_reading();
}

void Connection::on_wake() {
  if (phase_ != Phase::kIdle) return;
  advance();
  keep_reading();
}

void Connection::linger() {
  enter(Phase::kLingering);
  release_buffers();
  socket_.shutdown_send();
  socket_.set_deadline(kLingerTime);
  keep_reading();
}

void Connection::on_deadline() {
  switch (phase_) {
    case Phase::kIdle:
      if (!header_timer_runs_) return shut({}, false);
      [[fallthrough]];
    case Phase::kHead: return refuse(408, "the request's headers took too long");
    case Phase::kBody: return refuse(408, "the request's body took too long");
    case Phase::kAnswering: return shut(CloseReason::kWriteTimeout, true);
    default: return shut({}, false);
  }
}

void Connection::release_buffers() {
  release(input_);
  input_begin_ = 0;
  release(unsent_);
  unsent_begin_ = 0;
  count_unsent();
}

// `reason`: for the handler; none if the handler knows already. `hard`: discards unsent bytes.
void Connection::shut(std::optional<CloseReason> reason, bool hard) {
  if (phase_ == Phase::kClosed) return;
  enter(Phase::kClosed);
  if (hard) {
    socket_.reset();
  } else {
    socket_.close();
  }
  release_buffers();
  parser_.reset();
  server_.budget->used -= std::exchange(charged_, 0);
  if (exchange_ != nullptr) {
    std::exchange(exchange_, nullptr)->connection_closed(reason.value_or(CloseReason::kPeerGone));
  }
  auto task = std::exchange(on_close_, nullptr);
  if (task && reason) {
    server_.loop.post([task = std::move(task), reason = *reason] { task(reason); });
  }
  server_.retire(*this);
}

}  // namespace sluice::http
