// ServerMetrics: all metrics of /metrics, with our prefix and, if there is one, vLLM's name;
// docs/metrics.md explains each. Callers record plain structs; the class depends on neither sockets
// nor engine.
// Owner: the command. Threads: one, the event loop's. Recording allocates only when a label value
// is new.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/startup_timeline.h"
#include "metrics/counter.h"
#include "metrics/histogram.h"
#include "metrics/prometheus.h"
#include "request/finish_reason.h"
#include "server/engine_loop.h"
#include "server/tier_shares.h"

namespace sluice {

// A request that the engine's inbox has accepted.
struct AdmittedRequest {
  std::int32_t n = 1;
  std::int32_t max_tokens = 0;
  Duration dispatch{0};  // from the request's last byte to the inbox
};

// The first token of a request, of any of its choices.
struct FirstToken {
  std::int32_t prompt_tokens = 0;
  TimePoint arrival;
  TimePoint time;
  std::string_view key = {};  // the name of the API key; empty: none was needed
};

// The times of an ended choice. A time is zero if the choice did not reach that point.
struct RequestTimes {
  FinishReason reason = FinishReason::kNone;
  std::int32_t prompt_tokens = 0;
  std::int32_t output_tokens = 0;
  TimePoint arrival;
  TimePoint first_scheduled;
  TimePoint first_token;
  TimePoint last_token;
  TimePoint end;
  std::string_view adapter = {};  // its name; empty: the base model
  std::string_view key = {};      // the name of the API key; empty: none was needed
};

// The KV cache's configuration at the load of the model.
struct CacheConfig {
  std::int32_t block_size = 0;  // tokens
  std::int32_t num_blocks = 0;
  std::string cache_dtype;
  bool prefix_caching = true;
};

// The turns that function processes had at the device, since the start.
struct FunctionTurns {
  struct Use {
    std::string key;  // the name of the API key; empty: calls need none
    Duration time{0};
  };
  std::vector<Use> uses;
  std::int64_t suspensions = 0;
  std::int64_t kills = 0;
  std::int32_t warm = 0;  // function processes that are ready and no tenant's yet
};

// KV memory that is shared with other processes (docs/elastic-memory.md).
struct LendingGauges {
  std::int64_t limit_bytes = 0;     // what the engine may use now
  std::int64_t borrowed_bytes = 0;  // the part of it that is borrowed
  bool joined = false;              // a coordinator answers
  std::uint64_t recalls = 0;        // since the start
  // Leases of pages.
  std::int64_t pages_lent_bytes = 0;
  std::int64_t pages_overdue_bytes = 0;
  std::uint64_t pages_revoked = 0;  // times, since the start
  std::int64_t pages_borrowed_bytes = 0;
  bool pressed = false;  // the system is short of memory, so the limit is lower
};

class ServerMetrics {
 public:
  struct Options {
    std::string prefix = "sluice:";
    std::string model_name;
    std::string version;
    std::int32_t max_requests = 0;  // EngineLoop::Options
  };
  explicit ServerMetrics(Options options);

  // Generation.
  void request_admitted(const AdmittedRequest& request);
  // `reason`: a fixed word, "queue_full", "draining", ...
  void request_refused(std::string_view reason);
  void key_refused(std::string_view key);  // by the key's limits
  void first_token(const FirstToken& first);
  // Output tokens of one choice from one step; `gap`: since that choice's previous tokens.
  void tokens(std::int64_t count, std::optional<Duration> gap);
  // From the commit of the step that gave a chunk until the chunk was given to the socket.
  void tokens_delivered(Duration delay) { token_delivery_.record(to_seconds(delay)); }
  void choice_finished(const RequestTimes& times);

  // The engine.
  void steps(std::span<const StepRecord> steps);
  void engine(EngineState state, const EngineGauges& gauges, std::int32_t unfinished_requests);
  void function_turns(FunctionTurns turns) { turns_ = std::move(turns); }
  void lending(const LendingGauges& gauges) { lending_ = gauges; }
  void cache_config(CacheConfig config) { cache_config_ = std::move(config); }
  void startup(std::span<const StartupSpan> spans, Duration total);

  // HTTP. `path`: the route, never the client's path, which could be anything.
  void http_request(std::string_view path, int status);
  void open_connections(std::int64_t count) { open_connections_.set(static_cast<double>(count)); }

  // Appends the exposition.
  void write(std::string& out) const;

 private:
  // Counters of one family, by two label values. There are few, so the search is linear.
  struct Labelled {
    std::string first;
    std::string second;
    Counter counter;
  };

  // The calls of one adapter or key.
  struct Use {
    std::string name;
    Counter requests;
    Counter prompt_tokens;
    Counter tokens;
    Counter refused;
  };
  // Names beyond these are counted together, so that they cannot fill the exposition.
  static constexpr std::size_t kMaxUseLabels = 64;

  static Use& use_of(std::vector<Use>& uses, std::string_view name);
  void write_adapters(PrometheusWriter& writer) const;
  void write_keys(PrometheusWriter& writer) const;
  void write_turns(PrometheusWriter& writer) const;
  void write_lending(PrometheusWriter& writer) const;
  static void count(std::vector<Labelled>& family, std::string_view first, std::string_view second);
  void write_engine(PrometheusWriter& writer) const;
  void write_padding(PrometheusWriter& writer) const;
  void write_prefix_cache(PrometheusWriter& writer) const;
  void write_tier(PrometheusWriter& writer) const;
  void write_tier_levels(PrometheusWriter& writer) const;
  void write_tokens(PrometheusWriter& writer) const;
  void write_latencies(PrometheusWriter& writer) const;
  void write_parameters(PrometheusWriter& writer) const;
  void write_server(PrometheusWriter& writer) const;
  void write_info(PrometheusWriter& writer) const;
  void write_histogram(PrometheusWriter& writer, std::string_view name, std::string_view help,
                       const Histogram& histogram) const;
  void write_number(PrometheusWriter& writer, double value) const;

  Options options_;

  EngineState state_ = EngineState::kLoading;
  EngineGauges gauges_;
  TierShares tier_shares_;
  std::int32_t unfinished_requests_ = 0;
  std::optional<FunctionTurns> turns_;
  std::optional<LendingGauges> lending_;
  std::optional<CacheConfig> cache_config_;
  std::vector<StartupSpan> startup_;
  Duration startup_total_{0};

  Counter prompt_tokens_;
  Counter generation_tokens_;
  Counter finished_[kNumFinishReasons];
  std::vector<Labelled> refused_;
  std::vector<Use> adapters_;
  std::vector<Use> keys_;
  std::vector<Labelled> http_requests_;
  Gauge open_connections_;

  Histogram time_to_first_token_;
  Histogram inter_token_latency_;
  Histogram time_per_output_token_;
  Histogram e2e_latency_;
  Histogram queue_time_;
  Histogram prefill_time_;
  Histogram decode_time_;
  Histogram inference_time_;
  Histogram dispatch_;
  Histogram token_delivery_;
  Histogram step_duration_;
  Histogram iteration_tokens_;
  Histogram request_prompt_tokens_;
  Histogram request_generation_tokens_;
  Histogram params_n_;
  Histogram params_max_tokens_;
};

}  // namespace sluice
