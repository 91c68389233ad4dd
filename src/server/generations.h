// Generations: every call that generates, from its submission to the engine until its answer is
// sent. It hands the results of steps to their calls, and reports the end of each call to the
// access log and the live figures.
// Owner: the command. Threads: the event loop's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "server/access_log.h"
#include "server/engine_loop.h"
#include "server/generation.h"
#include "server/live_stats.h"
#include "server/retry_after.h"
#include "server/server_metrics.h"

namespace sluice {

class Generations {
 public:
  // Runs `work` on a worker and then `done` on the loop. The size says how long the work is.
  using RunOnWorker = std::function<void(std::size_t bytes, std::function<void()> work,
                                         std::function<void()> done)>;

  // `keep_alive`: the silence after which a stream gets a comment. REQUIRES: all outlive it.
  Generations(EngineLoop& engine, RunOnWorker run_on_worker, const Clock& clock, AccessLog& log,
              ServerMetrics& metrics, Duration keep_alive);
  ~Generations();
  Generations(const Generations&) = delete;
  Generations& operator=(const Generations&) = delete;

  // Where save_unfinished() puts answers; those that are complete leave it.
  void set_resume_store(std::shared_ptr<const ResumeStore> store) { resume_ = std::move(store); }

  // Submits a call, or answers why not. A client that has gone meanwhile costs nothing.
  void start(ExchangePtr exchange, PreparedGeneration prepared, AnswerHead head,
             const Tokenizer& tokenizer, AccessRecord record, KeyQuotas::Lease lease = {});

  // Takes what the engine has reported: after each of its wake-ups.
  void take_outputs();
  // Writes a comment into each stream that has been silent for `keep_alive`.
  void keep_streams_alive();
  // Ends the calls whose deadline is over.
  void end_late();
  bool any_deadline() const { return !deadlines_.empty(); }
  // Also on its own, so that gauges are right between wake-ups.
  void measure_engine();
  // Saves the answers that can go on in a later server. Returns their number.
  std::int32_t save_unfinished() const;
  // Ends every call.
  void fail_all(const ApiError& error);

  std::size_t active() const { return generations_.size(); }

  // For the page.
  const LiveStats& live() const { return live_; }
  const EngineGauges& gauges() const { return batch_.gauges; }
  // `task` runs with the progress of all unfinished requests, soon; at once when there are none.
  // REQUIRES: the task before it has run.
  using ProgressTask = std::function<void(std::span<const RequestProgress>)>;
  void ask_progress(ProgressTask task);
  // The answers to EngineLoop::ask_pins() that came with the outputs.
  std::vector<PinAnswer> take_pin_answers() { return std::exchange(batch_.pin_answers, {}); }
  // The call that an engine's request belongs to; nullptr: finished meanwhile.
  const Generation* find(RequestId id) const;

 private:
  std::optional<ApiError> refuse(const Generation& generation) const;
  void make_answer(RequestId first_id, WholeAnswer answer);
  void take_batch();
  void note_throughput(TimePoint now, std::int64_t later_tokens);
  void closed(RequestId first_id, http::CloseReason reason);
  void retire(RequestId first_id);
  void give_progress(std::span<const RequestProgress> progress);

  EngineLoop& engine_;
  const RunOnWorker run_on_worker_;
  const Clock& clock_;
  AccessLog& log_;
  ServerMetrics& metrics_;
  const Duration keep_alive_;
  std::shared_ptr<const ResumeStore> resume_;  // null: none. Shared with the service
  RetryAfter retry_after_;
  LiveStats live_;
  RequestId next_id_ = 1;
  std::size_t held_bytes_ = 0;  // that unfinished calls above kFairAnswerBytes may come to hold

  std::unordered_map<RequestId, std::unique_ptr<Generation>> generations_;  // by first id
  std::unordered_map<RequestId, Generation*> by_request_;
  std::set<std::pair<TimePoint, RequestId>> deadlines_;  // of unfinished calls, by first id
  OutputBatch batch_;
  std::vector<Generation*> touched_;  // in this batch
  ProgressTask progress_task_;        // empty: no task waits
};

}  // namespace sluice
