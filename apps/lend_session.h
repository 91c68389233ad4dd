// LendSession: `serve --kv-cache-memory MIN-MAX`: sets the limit of the server's KV memory. With
// --lend a LendingAgent talks to the coordinator over HTTP and says how much there is; with
// --lend-pages the limit also has the part of that memory that is not lent. While the system is
// short of memory the limit is lower (PressurePolicy). The session looks at the engine kTick apart,
// and logs when it joins, when no coordinator answers, when another process takes its name, and
// when memory is short. Owner: the command. Threads: the event loop's; leave() after the loop has
// ended.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "apps/lend_settings.h"
#include "apps/limited_kv.h"
#include "apps/page_session.h"
#include "apps/party_link.h"
#include "base/clock.h"
#include "base/result.h"
#include "http/base_url.h"
#include "http/event_loop.h"
#include "lending/lending_agent.h"
#include "lending/pressure_policy.h"
#include "membership/bearer_token.h"
#include "server/server_metrics.h"

namespace sluice {

// Absent unless `kv_cache_memory` is "MIN-MAX", which becomes MAX. Errors name the
// option.
Result<std::optional<LendSettings>> read_lend_settings(const LendArguments& arguments,
                                                       std::string& kv_cache_memory);

class LendSession final {
 public:
  static constexpr Duration kTick = std::chrono::milliseconds(20);
  static constexpr Duration kPressureTick = std::chrono::milliseconds(100);
  // Between two warnings with different causes.
  static constexpr Duration kTellPause = std::chrono::seconds(10);

  using Show = std::function<void(const LendingGauges&)>;

  // `show` gets the state after each look. Errors: the coordinator's host is unknown. REQUIRES: all
  // outlive the session, and the loop does not run once the session has ended.
  static Result<std::unique_ptr<LendSession>> open(const LendSettings& settings,
                                                   http::EventLoop& loop, const Clock& clock,
                                                   Show show);

  // The engines are ready. Call once.
  void start(std::unique_ptr<LimitedKv> kv);
  // Tells the coordinator that the process ends. Blocks for at most two seconds.
  void leave();

 private:
  LendSession(const LendSettings& settings, http::EventLoop& loop, const Clock& clock, Show show);

  void tick();
  void watch_pressure(std::int64_t backed);
  void look();  // at the KV memory: updates agent, limit and metrics
  void send();
  void take(const LendAnswer& answer);
  void fail(const std::string& cause);
  void tell();

  const std::string url_;
  const std::int64_t least_;
  const std::int64_t most_;
  http::EventLoop& loop_;
  const Clock& clock_;
  const Show show_;
  LendingAgent agent_;
  std::unique_ptr<PartyLink> link_;
  std::unique_ptr<PageLendSession> lent_;        // null without --lend-pages
  std::unique_ptr<PageBorrowSession> borrowed_;  // null without --borrow-pages
  std::unique_ptr<LimitedKv> kv_;                // null until start()
  std::int64_t set_ = 0;                         // its limit, as it was told
  std::string cause_;                            // why no coordinator answers
  std::optional<LendingState> told_;
  std::string told_cause_;
  TimePoint told_at_{};
  const bool shared_;  // there is a coordinator
  PressurePolicy pressure_;
  TimePoint next_pressure_{};
  bool pressure_known_ = true;  // the system says how much memory is left
};

}  // namespace sluice
