// LendSession: `serve --lend`: a LendingAgent that talks to the coordinator over HTTP and sets the
// KV limit of the server's engine. It looks at the engine kTick apart and logs when it joins, when
// no coordinator answers, and when another process takes its name.
// Owner: the server. Threads: the event loop's; leave() after the loop has ended.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "http/event_loop.h"
#include "http/http_client.h"
#include "lending/lending_agent.h"
#include "membership/bearer_token.h"
#include "server/server_metrics.h"
#include "server/threaded_engine_loop.h"

namespace sluice {

// As given; empty = not given.
struct LendArguments {
  std::string url;
  std::string token_file;
  std::string device;
};

struct LendSettings {
  http::BaseUrl url;
  std::string url_text;
  BearerToken token;
  std::string device;
  std::int64_t least = 0;  // MIN and MAX of --kv-cache-memory
  std::int64_t most = 0;
};

// Absent without --lend. `kv_cache_memory` is "MIN-MAX" then, and becomes MAX. Errors name the
// option.
Result<std::optional<LendSettings>> read_lend_settings(const LendArguments& arguments,
                                                       std::string& kv_cache_memory);

class LendSession final : private http::ResponseSink {
 public:
  static constexpr Duration kTick = std::chrono::milliseconds(20);

  // Errors: the coordinator's host is unknown. REQUIRES: all outlive the session, and the loop does
  // not run once the session has ended.
  static Result<std::unique_ptr<LendSession>> open(const LendSettings& settings,
                                                   http::EventLoop& loop, const Clock& clock,
                                                   ThreadedEngineLoop& engine,
                                                   ServerMetrics& metrics);

  // The engine is ready. `block_bytes`: of a KV block.
  void start(std::int64_t block_bytes, std::int32_t max_num_seqs);
  // Tells the coordinator that the process ends. Blocks for at most two seconds.
  void leave();

 private:
  LendSession(const LendSettings& settings, http::HttpClientOptions client, http::EventLoop& loop,
              const Clock& clock, ThreadedEngineLoop& engine, ServerMetrics& metrics);

  void on_head(const http::ResponseHead& head) override;
  void on_body(std::string_view piece) override;
  void on_end(Status status) override;

  void tick();
  void look();  // at the engine: updates agent, limit and metrics
  void send();
  void fail(const std::string& cause);
  void tell();

  const http::HttpClientOptions options_;
  const std::string url_;
  const std::int64_t least_;
  const std::int64_t most_;
  http::EventLoop& loop_;
  const Clock& clock_;
  ThreadedEngineLoop& engine_;
  ServerMetrics& metrics_;
  LendingAgent agent_;
  std::unique_ptr<http::HttpClient> client_;
  std::string body_;
  std::int64_t block_bytes_ = 0;
  std::int32_t max_num_seqs_ = 0;
  std::int64_t set_ = 0;  // the engine's limit, as it was told
  std::string cause_;     // why no coordinator answers
  std::optional<LendingState> told_;
};

}  // namespace sluice
