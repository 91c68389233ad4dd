// ServedEngine: the thread pool and device of a server's engine and the text side of its model,
// loaded together, and warmed up on a GPU. Owner: the command; it outlives the engine that load()
// returns. Threads: load() on the engine's; the rest from any once load() has succeeded.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "apps/warm_start.h"
#include "base/clock.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "chat_template/chat_context.h"
#include "device/device.h"
#include "engine/engine.h"
#include "engine/engine_options.h"
#include "engine/startup_timeline.h"
#include "engine/weight_stream.h"
#include "front/served_model.h"
#include "server/server_metrics.h"
#include "server/threaded_engine_loop.h"
#include "snapshot/snapshot.h"

namespace sluice {

// The names of the formats in which the model writes tool calls and reasoning.
struct AnswerParsers {
  std::string tool_calls = "auto";  // auto: found from the chat template
  std::string reasoning = "none";
};

enum class CanaryTime : std::uint8_t { kWhenIdle, kBeforeReady };

struct ServedEngineOptions {
  AnswerParsers parsers;
  WarmOptions warm;
  CanaryTime canary = CanaryTime::kWhenIdle;
  std::string chat_template = {};  // a file, instead of the checkpoint's templates; empty: none
  // Calendar time for templates that name the date; a test has its own.
  std::function<std::chrono::local_seconds()> local_time = local_time_now;
};

// Sets the formats of tool calls and reasoning. A client that sends tools to a model without a
// format gets calls as text; the log says so once.
void set_answer_formats(const AnswerParsers& parsers, ServedModel& model);

class ServedEngine {
 public:
  // `urgent`: the work that the engine's threads yield to; null = none. REQUIRES: it outlives this.
  explicit ServedEngine(const UrgentWork* urgent = nullptr) : urgent_(urgent) {}
  ~ServedEngine();
  ServedEngine(const ServedEngine&) = delete;
  ServedEngine& operator=(const ServedEngine&) = delete;

  // Call once. Errors name file, field or option.
  Result<std::unique_ptr<Engine>> load(const std::string& directory, const std::string& name,
                                       const EngineOptions& options, const Clock& clock,
                                       StartupTimeline& timeline,
                                       const ServedEngineOptions& served = {});
  // For ThreadedEngineLoop: the request that computes the next warm prompt. After the last one,
  // everything that the start made and the next one may use goes into the cache folder: the
  // engine's thread encodes it, and a thread of its own writes it. The destructor waits for it.
  // First of all the snapshot's canary is compared, unless load() did: an error if it differs.
  // On a new day the warm prompts are rendered again, and computed if their tokens changed.
  Result<ThreadedEngineLoop::IdleWork> when_idle();

  const ServedModel& model() const { return *model_; }
  const CacheConfig& cache_config() const { return cache_config_; }
  std::int64_t kv_block_bytes() const { return kv_block_bytes_; }

 private:
  Status compare_canary();
  void render_at_a_new_hour();
  void tell_warm() const;
  void keep_snapshot();
  std::vector<std::byte> warm_image();

  const UrgentWork* urgent_;
  const Clock* clock_ = nullptr;
  Engine* engine_ = nullptr;  // the one that load() returned
  Snapshot snapshot_;         // outlives everything that was restored from it
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<Device> device_;
  std::optional<ServedModel> model_;
  CacheConfig cache_config_;
  std::int64_t kv_block_bytes_ = 0;
  WarmFacts warm_facts_;
  WarmPrompts warm_;
  bool canary_checked_ = false;
  bool warm_restored_ = false;  // all of them, from the snapshot
  double warm_limit_ = 0;
  // The hour of the warm prompts' text. A template that names minutes is rendered at each hour
  // only.
  std::chrono::local_time<std::chrono::hours> rendered_;
  bool warm_complete_ = false;  // nothing was left to compute
  bool kept_ = false;
  RequestId next_own_ = kFirstOperatorId;
  WeightStream* stream_ = nullptr;  // of the engine
  LogitsTap* logits_ = nullptr;     // likewise
  std::thread keeper_;
};

}  // namespace sluice
