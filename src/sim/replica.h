// Replica: one simulated engine on virtual time. It runs the production scheduler, policy and KV
// bookkeeping in the engine's order (plan, submit, later commit), with an executor that only
// computes the time of a step. Owner: the simulation. Threads: one.
// Allocation: none per token; requests come from a pool that grows to the largest number of
// unfinished requests.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "kv/kv_manager.h"
#include "request/sequence.h"
#include "scheduler/scheduler.h"
#include "scheduler/time_budget.h"
#include "sim/simulated_executor.h"
#include "sim/step_cost.h"
#include "workload/serving_summary.h"
#include "workload/workload.h"

namespace sluice {

struct ReplicaOptions {
  std::string scheduler = "stall-free";
  std::int32_t token_budget = 512;
  std::int32_t max_num_seqs = 128;
  std::int32_t max_model_len = 8192;
  std::int32_t block_size = 16;
  std::int32_t num_blocks = 0;  // the null block included
  std::int32_t window = 0;      // of the model's attention; 0: all
  // Limits chunks by time, within token_budget. REQUIRES: Policy::plans_by_time().
  std::optional<TimeBudget> time_budget = std::nullopt;
  // The largest random relative deviation of a step's time from its cost.
  double step_jitter = 0;
  std::uint64_t seed = 0;  // of the jitter
  // Adapters that requests may name, and the cost of their loads.
  AdapterOptions adapters = {};
  TransferCost transfers = {};
  // The tier below: its pages, each for one block, and the cost of moving one. 0: there is none.
  std::int32_t tier_pages = 0;
  TierCost tier = {};
  TierEviction tier_eviction = TierEviction::kLeastRecent;
  // SchedulerOptions::meeting_tokens.
  std::int32_t meeting_tokens = 64;
  // The context at which attention costs as much as all else; 0: depth does not matter.
  double even_context = 0;
  // SchedulerOptions::turn_tokens, of the policy `fair`.
  std::int32_t turn_tokens = 32;
  // No step begins before.
  Duration ready{0};
};

struct ReplicaStats {
  std::int64_t steps = 0;
  std::int64_t tokens = 0;  // computed, in prompts and decodes
  std::int64_t preemptions = 0;
  std::int64_t cached_tokens = 0;  // of prompts, found in the prefix cache
  std::int64_t adapter_loads = 0;
  std::int64_t saved_blocks = 0;  // to the tier
  std::int64_t loaded_blocks = 0;
  // The most KV blocks that running sequences had or were promised at one time.
  std::int64_t peak_held_blocks = 0;
  // The most blocks for all that unfinished requests had computed, whether they ran or had been
  // displaced. Prefixes that requests share count for each.
  std::int64_t peak_started_blocks = 0;
  PipelineTimes pipeline;

  ReplicaStats& operator+=(const ReplicaStats& other);
};

class Replica {
 public:
  // REQUIRES: options are in range (check_replica_options); cost and recorder outlive it.
  Replica(const ReplicaOptions& options, StepCost& cost, ServingRecorder& recorder);
  ~Replica();
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  // Advances to the arrival, then queues the request. Arrivals are in order of time. A request that
  // can never run is recorded as failed.
  void add(const WorkloadRequest& request);
  // Advances to `limit`, without the events at `limit`.
  void run_until(Duration limit);
  // Advances until nothing is left to do.
  void finish();

  // The number of requests that wait or run.
  std::int32_t load() const { return load_; }
  // The time at which its last request ended.
  Duration last_end() const { return last_end_; }
  ReplicaStats stats() const;
  void check_integrity() const { scheduler_.check_integrity(); }

 private:
  struct LiveRequest;

  LiveRequest& take_request(const WorkloadRequest& request);
  Duration ready_at() const;
  bool may_plan() const;
  bool plan_step();
  void make_plan(BatchPlan& plan);
  void commit_step();
  void record(const RowCommit& commit);
  void record_started(LiveRequest& live, bool finished);
  void record_tokens(LiveRequest& live, std::int32_t count);
  void retire(LiveRequest& live, const std::string& error);
  std::optional<Duration> next_event() const;

  const Duration ready_;
  KvManager kv_;
  Scheduler scheduler_;
  SimulatedExecutor executor_;
  ServingRecorder& recorder_;

  Duration now_{0};
  Duration last_commit_{0};
  Duration previous_commit_{0};
  std::int64_t even_gaps_ =
      0;                  // tokens of this commit whose predecessors were in the previous commit
  bool blocked_ = false;  // the last plan was empty, and nothing has changed since
  Duration last_end_{0};
  std::int32_t load_ = 0;
  std::int64_t started_blocks_ = 0;
  ReplicaStats stats_;

  std::vector<BatchPlan> plans_;  // a ring, one per stage
  std::size_t next_plan_ = 0;
  StepResult result_;
  std::vector<RowCommit> commits_;
  std::vector<TransferResult> completed_;
  std::vector<std::unique_ptr<LiveRequest>> pool_;
  std::vector<LiveRequest*> free_;
  SequenceId next_id_ = 1;
};

// kInvalidArgument for an unknown policy or a number out of range, by the option's name.
Status check_replica_options(const ReplicaOptions& options);

// Tokens of the largest step under these options.
std::int32_t max_step_tokens(const ReplicaOptions& options);

// The KV bookkeeping of an engine with these options.
KvOptions replica_kv_options(const ReplicaOptions& options);

}  // namespace sluice
