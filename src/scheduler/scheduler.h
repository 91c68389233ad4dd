// Scheduler: decides who runs how many tokens in the next step. Pure: its state, a time and a
// ResourceView go in, a BatchPlan comes out; no clock, no threads, no device, no metrics. The
// server and the simulator run this very code.
//
// State (queues, running set, KV bookkeeping) is common; what differs between policies is behind
// Policy (policy.h). Order of calls: plan, then later commit of the same plan with its result; a
// second plan may come before the first commit (two steps in flight).
// Owner: the engine. Threads: the engine's thread only. Steady state allocates nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "request/sequence.h"
#include "scheduler/adapter_slots.h"
#include "scheduler/batch_plan.h"
#include "scheduler/executor.h"
#include "scheduler/resource_view.h"
#include "scheduler/time_budget.h"

namespace sluice {

class KvManager;
class Policy;
struct SchedulerState;

struct SchedulerOptions {
  // Tokens per step, decodes included. A policy that never splits a prompt needs more and takes it
  // (Policy::token_budget); KV and executor must be made for that.
  std::int32_t token_budget = 512;
  std::int32_t max_num_seqs = 64;  // running sequences, and slots
  std::int32_t max_model_len = 0;  // context: prompt + output of one sequence
  std::vector<TokenId> eos_ids;    // end-of-sequence ids of the model
  // Micro-batches that a pipeline of as many stages keeps in flight. With more than one, no
  // sequence decodes in two of them at once, and each takes at most its share of the running ones:
  // ceil(running / micro_batches), and with those it admits ceil(max_num_seqs / micro_batches).
  // REQUIRES then: the caller keeps planning until the pipeline is full before it commits again.
  std::int32_t micro_batches = 1;
  // Chunks are planned by time, within token_budget. REQUIRES: Policy::plans_by_time().
  std::optional<TimeBudget> time_budget = std::nullopt;
  // Admission leaves room for this many more tokens of each running sequence, and at least
  // KvOptions::watermark. Without it a preempted sequence comes back as soon as another one ends,
  // and is preempted again.
  std::int32_t decode_headroom = 32;
  // Adapters that requests may name, and the slots that they are loaded into.
  AdapterOptions adapters = {};
  // Memory is returned after so long without a new request or the end of a sequence (kv_sizer.h).
  // 0: never.
  Duration kv_idle_release{0};
};

// The effect of commit on one row. The new tokens are the last `num_tokens` of sequence->tokens.
struct RowCommit {
  // Null for a row of a sequence that an earlier commit finished while the row was in flight: its
  // tokens are discarded, and the sequence may be gone.
  Sequence* sequence = nullptr;
  std::int32_t row = 0;         // of the plan
  std::int32_t num_tokens = 0;  // appended; 0 for a chunk or a sequence that was cancelled
  // finish_reason says why. Blocks and slot are free again as soon as no step in flight uses them.
  bool finished = false;
};

class Scheduler {
 public:
  // REQUIRES: kv outlives the scheduler.
  Scheduler(const SchedulerOptions& options, KvManager& kv, std::unique_ptr<Policy> policy);
  ~Scheduler();

  // Queues a new sequence, which must stay where it is until it is finished; sets its max_len from
  // max_tokens and the context. kInvalidArgument when its prompt is empty
  // or leaves no room in the context; kNotFound when there is no such adapter; kResourceExhausted
  // when it could not run even alone in the most KV memory that there may be (the message says how
  // much would be needed).
  Status add(Sequence& sequence);

  // Ends a sequence: at once when it is not in flight (then it is finished on return), else when
  // its last step in flight is committed. `reason` becomes its finish_reason: kStop when a stop
  // string was found in its text. Nothing happens to one that is finished already.
  void cancel(Sequence& sequence, FinishReason reason = FinishReason::kCancelled);

  // Fills `plan` (cleared first). A plan that is not empty must be submitted before the next call.
  // Without rows when no sequence can run now; empty when there is nothing to move either.
  // Sequences that can never go on end here (BatchPlan::ended): one that has no room in the KV
  // memory that is left even alone, and those that wait for an adapter whose load failed.
  void plan(TimePoint now, const ResourceView& resources, BatchPlan& plan);

  // Takes the result of the oldest plan not yet committed. `out` is cleared first; one entry per
  // row, and one for each sequence that a pending cancel ended now (row = -1).
  void commit(const BatchPlan& plan, const StepResult& result, TimePoint now,
              std::vector<RowCommit>& out);

  std::int32_t num_waiting() const;
  // Sequences that hold a slot, those included that ended while a step in flight uses it.
  std::int32_t num_running() const;
  bool has_work() const { return num_waiting() + num_running() > 0; }
  // When plan() should be called at the latest, even without work: to return idle memory.
  std::optional<TimePoint> wake_at() const;

  // CHECKs every invariant of queues, slots and blocks. For tests, fuzzers and idle time.
  void check_integrity() const;

 private:
  std::unique_ptr<SchedulerState> state_;
  std::unique_ptr<Policy> policy_;
};

}  // namespace sluice
