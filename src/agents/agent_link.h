// AgentLink: the agent's end of its gateway: it joins, keeps the stream of commands open, and sends
// numbered messages, one at a time and in order. A message without an answer is sent again with its
// number, so that it counts once.
//
// The session is over when the stream ends, when the gateway says so, and when no message was
// answered for two thirds of the expiry, counted from their sending. All functions end then, before
// the gateway may start them elsewhere, and the agent joins again.
//
// Owner: the command. Threads: the event loop's only. REQUIRES: the loop does not run once it has
// ended; functions and clock outlive it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agents/agent_functions.h"
#include "agents/agent_message.h"
#include "base/clock.h"
#include "base/result.h"
#include "http/event_loop.h"
#include "http/http_client.h"

namespace sluice {

class AgentLink final {
 public:
  struct Options {
    http::HttpClientOptions client;  // with the token
    AgentJoin join;                  // all but the keys
    std::string key_prefix;          // of join keys; differs from those of other processes
  };
  struct Calls {
    std::function<void()> joined;
    std::function<void(Error)> failed;  // it cannot go on
    std::function<void()> left;
  };

  static Result<std::unique_ptr<AgentLink>> open(Options options, http::EventLoop& loop,
                                                 const Clock& clock, AgentHost& host,
                                                 AgentFunctions& functions, Calls calls);
  ~AgentLink();
  AgentLink(const AgentLink&) = delete;
  AgentLink& operator=(const AgentLink&) = delete;

  // Joins; called once.
  void start();
  // Takes no more functions, waits until the running calls have ended, at most for `patience`, then
  // ends all and leaves.
  void drain(Duration patience);

 private:
  enum class Phase : std::uint8_t { kJoining, kOpening, kJoined, kEnding, kLeft };
  class Sink;

  AgentLink(Options options, http::EventLoop& loop, const Clock& clock, AgentHost& host,
            AgentFunctions& functions, Calls calls);

  void tick();
  void join();
  void join_answered(TimePoint sent, const Status& status, const std::string& body);
  void open_stream();
  void stream_opened();
  void send_next();
  void message_answered(TimePoint sent, const Status& status, const std::string& body);
  void fetch_adapter(const std::string& digest);
  void take_command(std::string_view bytes);
  void lose(const std::string& cause);
  void break_session(const std::string& reason);
  void fail(Error error);
  void leave();
  std::string next_message();

  const Options options_;
  http::EventLoop& loop_;
  const Clock& clock_;
  AgentHost& host_;
  AgentFunctions& functions_;
  const Calls calls_;
  std::unique_ptr<http::HttpClient> client_;
  std::unique_ptr<Sink> control_;
  std::unique_ptr<Sink> stream_;
  std::map<std::string, std::unique_ptr<Sink>> fetches_;  // by digest

  Phase phase_ = Phase::kJoining;
  std::uint64_t session_ = 0;  // counts sessions, for tasks that come late
  std::uint64_t joins_ = 0;
  JoinKeys earlier_joins_;
  std::string key_;
  std::uint64_t epoch_ = 0;
  Duration expiry_{0};
  TimePoint answered_;      // when the last answered message was sent
  TimePoint stream_heard_;  // the last byte of the stream
  TimePoint reported_;
  std::uint64_t reported_loads_ = 0;
  bool report_now_ = false;
  std::uint64_t sequence_ = 0;       // of the message under way, or the last one
  http::ClientRequest under_way_;    // its path is empty: there is none
  std::deque<std::string> outputs_;  // that were not sent yet, encoded
  std::unique_ptr<AgentCommandReader> reader_;
  std::optional<TimePoint> leave_by_;
  bool broken_ = false;  // an output was left out, so that the session ends
  bool failed_ = false;
  std::string cause_;  // why it has not joined, as it was logged
};

}  // namespace sluice
