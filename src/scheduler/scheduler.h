// Scheduler: decides which sequences run in the next step, and how many tokens of each. It computes
// a BatchPlan from its state, a time and a ResourceView; it has no clock, threads, device or
// metrics. The server and the simulator run the same code.
//
// All policies share the state (queues, running set, KV bookkeeping); Policy (policy.h) is the part
// that differs. Order of calls: plan(), then commit() of the same plan with its result. A second
// plan() may precede the first commit() (two steps in flight).
// Owner: the engine. Threads: the engine's thread only. Steady state allocates nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "kv/stream_shape.h"
#include "request/sequence.h"
#include "scheduler/adapter_slots.h"
#include "scheduler/batch_plan.h"
#include "scheduler/executor.h"
#include "scheduler/resource_view.h"
#include "scheduler/time_budget.h"

namespace sluice {

class KvManager;
class Policy;
struct PagingStats;
struct SchedulerState;

struct SchedulerOptions {
  // Tokens per step, decodes included. A policy that never splits a prompt uses more
  // (Policy::token_budget); KV and executor must be made for that number.
  std::int32_t token_budget = 512;
  std::int32_t max_num_seqs = 64;  // running sequences, and slots
  std::int32_t max_model_len = 0;  // context: prompt + output of one sequence
  std::vector<TokenId> eos_ids;    // end-of-sequence ids of the model
  // Positions of prompts whose log-probabilities one step computes. 0: requests for them are
  // refused.
  std::int32_t max_scored = 0;
  // The number of micro-batches in flight in a pipeline with that many stages. With more than one,
  // no sequence decodes in two micro-batches at once. Each has at most ceil(running /
  // micro_batches) rows of running sequences, and at most ceil(max_num_seqs / micro_batches) rows
  // with those that it admits. REQUIRES, if more than 1: the caller plans until the pipeline is
  // full before it commits again.
  std::int32_t micro_batches = 1;
  // Limits chunks by time, within token_budget. REQUIRES: Policy::plans_by_time().
  std::optional<TimeBudget> time_budget = std::nullopt;
  // Admission leaves blocks free for this many more tokens of each running sequence, and at least
  // KvOptions::watermark. Without this headroom, a preempted sequence returns as soon as another
  // one ends and is preempted again.
  std::int32_t decode_headroom = 32;
  // Tokens of a turn under the policy `fair`, at least; a turn ends at a border of blocks.
  std::int32_t turn_tokens = 32;
  // The least tokens that are worth a step, or loads beside it, where loads from the back meet the
  // chunks of a prompt (back_loads.h). 0: they never do.
  std::int32_t meeting_tokens = 64;
  // They do where neither side is this many times as fast as the other; infinite: always.
  double meeting_factor = 4;
  // Adapters that requests may name, and the slots that they are loaded into.
  AdapterOptions adapters = {};
  // The key of names that one sequence alone uses. Random in every process that has a tier: a tier
  // may outlive the process, and sequences of another process have the same ids.
  Hash128 private_root = {};
  // Sequences that do not fit into KV memory are streamed so (stream_lane.h). max_blocks 0: they
  // are refused. REQUIRES, if not 0: one micro-batch, one step in flight.
  StreamShape stream = {};
  // KV memory is returned when no request has arrived and no sequence has ended for this long
  // (kv_sizer.h). 0: never.
  Duration kv_idle_release{0};
};

// The effect of commit on one row. The new tokens are the last `num_tokens` of sequence->tokens.
struct RowCommit {
  // Null when an earlier commit finished the sequence while this row was in flight. The row's
  // tokens are discarded, and the sequence may no longer exist.
  Sequence* sequence = nullptr;
  std::int32_t row = 0;         // of the plan
  std::int32_t num_tokens = 0;  // appended; 0 for a chunk or a sequence that was cancelled
  std::int32_t num_forced = 0;  // of these, tokens that no step computed
  // finish_reason says why. Blocks and slot are free again as soon as no step in flight uses them.
  bool finished = false;
};

class Scheduler {
 public:
  // REQUIRES: kv outlives the scheduler.
  Scheduler(const SchedulerOptions& options, KvManager& kv, std::unique_ptr<Policy> policy);
  ~Scheduler();

  // Queues a new sequence, which must not move in memory until it is finished. Sets its max_len
  // from max_tokens and the context. Errors: kInvalidArgument when the prompt is empty or leaves no
  // room in the context; kUnsupported when prompt_logprobs are wanted and the policy never splits
  // prompts; kNotFound when there is no such adapter. A sequence that could not run even alone, in
  // KV memory or streamed: kContextLength when it never can, kResourceExhausted when only the
  // present limit of KV memory is too small. The message says how much it needs.
  Status add(Sequence& sequence);

  // Ends a sequence: before return when it is not in flight, else when its last step in flight is
  // committed. `reason` becomes its finish_reason: kStop when a stop string was found in its text.
  // Has no effect on a finished sequence.
  void cancel(Sequence& sequence, FinishReason reason = FinishReason::kCancelled);

  // Puts KV memory that is backed since the last plan into service, for blocks that are filled
  // without a plan. REQUIRES: `resources` reports no completed transfer.
  void take_memory(TimePoint now, const ResourceView& resources);

  // Fills `plan` (cleared first). A plan that is not empty must be submitted before the next call.
  // The plan has no rows when no sequence can run now; it is empty when there is nothing to move
  // either. Sequences that can never run again end here (BatchPlan::ended): one that does not fit
  // into the remaining KV memory even alone, and those that wait for an adapter whose load failed.
  void plan(TimePoint now, const ResourceView& resources, BatchPlan& plan);

  // Applies the result of the oldest plan not yet committed. Writes to `out` (cleared first) one
  // entry per row, and one with row = -1 for each sequence that a pending cancel ended now.
  void commit(const BatchPlan& plan, const StepResult& result, TimePoint now,
              std::vector<RowCommit>& out);

  // Limits the predicted time of later steps with chunks, beside the time budget; Duration::max()
  // lifts the limit. The first chunk of a step has TimeBudget::min_chunk tokens all the same.
  // Limits nothing without a time budget, and before any step time is known.
  void limit_step(Duration longest);

  std::int32_t num_waiting() const;
  // Sequences that hold a slot, including sequences that ended while a step in flight uses the
  // slot.
  std::int32_t num_running() const;
  bool has_work() const { return num_waiting() + num_running() > 0; }
  // The latest time for the next plan() call, even without work: to return idle memory.
  std::optional<TimePoint> wake_at() const;

  const PagingStats& paging_stats() const;

  // Whether the file of a streamed sequence that has ended is still read for the prefix cache.
  bool keeps_stream() const;
  bool keeps_stream(SequenceId sequence) const;
  // The sequence whose file has just become useless, once.
  std::optional<SequenceId> take_ended_stream();

  // CHECKs every invariant of queues, slots and blocks. For tests, fuzzers and idle time.
  void check_integrity() const;

 private:
  std::unique_ptr<SchedulerState> state_;
  std::unique_ptr<Policy> policy_;
};

}  // namespace sluice
