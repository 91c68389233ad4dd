// Engine: the step loop. Owns requests and their sequences, the scheduler, the KV bookkeeping and
// the executor; one step() is plan, submit, collect, commit. It handles tokens, not text: the owner
// of the detokenizer finds stop strings and calls end_choice().
//
// Errors: add_request() reports invalid requests. An executor's error is final: the engine has
// failed, its requests are dropped, and every call returns kUnavailable with the cause.
//
// Owner: the front (command line, server). Threads: one, the engine's thread. After warm-up a step
// allocates only a sequence's tokens when the sequence first gets a slot; add_request() allocates.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/function_ref.h"
#include "base/result.h"
#include "engine/device_counters.h"
#include "engine/kv_contents.h"
#include "engine/pin_table.h"
#include "kv/kv_manager.h"
#include "request/request.h"
#include "request/sequence.h"
#include "scheduler/batch_plan.h"
#include "scheduler/executor.h"
#include "scheduler/resource_view.h"
#include "scheduler/scheduler.h"

namespace sluice {

// The limits of a request.
struct EngineLimits {
  std::int32_t vocab_size = 0;
  std::int32_t max_model_len = 0;  // context: prompt and output
  std::int32_t num_adapters = 0;
  std::int32_t hidden_size = 0;  // of the vectors of Request::pooling
};

// The outputs of one choice of a request in a step.
struct ChoiceOutput {
  RequestId request = 0;
  std::int32_t choice = 0;
  std::span<const TokenId> tokens;  // new ones
  // Per new token 1 + SamplingParams::logprobs entries: the token, then the most likely ones.
  std::span<const TokenLogprob> logprobs;
  // Per prompt token scored in this step 1 + SamplingParams::prompt_logprobs entries. The second
  // token of the prompt is the first one scored. Choice 0 has them, at the latest with its first
  // output token.
  std::span<const PromptLogprob> prompt_logprobs;
  // The prompt's vector, with its only token (Request::pooling).
  std::span<const float> embedding;
  FinishReason finish_reason = FinishReason::kNone;
  std::int32_t cached_prompt_tokens = 0;  // found in the prefix cache
  TimePoint first_scheduled;              // zero: it never ran
};

// The progress of an unfinished request.
struct RequestProgress {
  RequestId request = 0;
  std::int32_t prompt_tokens = 0;
  std::int32_t computed_tokens = 0;  // of the first choice, in KV
  std::int32_t output_tokens = 0;    // of all choices
  std::int32_t running = 0;          // choices that hold a slot
  std::int32_t waiting = 0;
};

// Sums since the start.
struct EngineStats {
  std::int64_t steps = 0;
  std::int64_t computed_tokens = 0;
  std::int64_t preemptions = 0;
  std::int64_t adapter_loads = 0;  // started
  // KV blocks that a tier below has stored, and that came back from it. A block counts once its
  // transfer has ended well: on a disk, the death of the process loses no block that was counted.
  std::int64_t saved_blocks = 0;
  std::int64_t loaded_blocks = 0;
  double tier_saved_seconds = 0;      // of steps that need not compute those tokens
  std::int64_t tier_hit_tokens = 0;   // that sequences found after loads and not before
  std::int64_t failed_transfers = 0;  // of blocks and of adapters
  KvStream::Bytes streamed;           // of sequences that are larger than memory
  // Sums over committed steps, as all below. Zero without a DeviceMeter.
  DeviceTime device;
  ComputedWork computed;
  // Prefill: tokens of prompts, and tokens computed again after preemption. Decode: one token a
  // row, or more after forced tokens.
  std::int64_t prefill_tokens = 0;
  std::int64_t decode_tokens = 0;
  std::int64_t forced_tokens = 0;  // of outputs: no step sampled them

  bool operator==(const EngineStats&) const = default;
};

class Engine {
 public:
  // `meter` reads the executor's device and may be the executor itself. Null: not measured.
  // `contents` is the executor's KV memory; null: blocks can be neither read nor restored.
  // REQUIRES: clock, meter and contents outlive the engine, or the engine's executor owns them.
  Engine(const EngineLimits& limits, std::unique_ptr<Executor> executor,
         std::unique_ptr<KvManager> kv, std::unique_ptr<Scheduler> scheduler, const Clock& clock,
         const DeviceMeter* meter = nullptr, KvContents* contents = nullptr);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Queues a request, whose id must be new among the unfinished ones. max_tokens is clamped to the
  // room in the context; such a choice ends with kLength.
  Status add_request(Request request);

  // Ends a request, or one of its choices, at any moment. The outputs report the end once its last
  // step in flight is over. Unknown and finished requests are ignored.
  void cancel(RequestId id);
  void cancel_all();
  void end_choice(RequestId id, std::int32_t choice, FinishReason reason);

  // The most KV blocks that the engine may use from the next step on, the null block included; 0
  // lifts the limit. Sequences that do not fit into the limit end with FinishReason::kNoMemory;
  // add_request() refuses new ones.
  // While more blocks than that are backed, has_work() is true: steps then return memory. Memory
  // of a fixed size (KvOptions::chunk_blocks = 0) stays.
  void set_kv_limit(std::int32_t blocks);
  std::int32_t kv_limit() const { return kv_limit_; }
  // KV blocks that are backed now, the null block included.
  std::int32_t kv_backed_blocks() const { return executor_->kv_backed_blocks(); }
  // KV blocks whose memory the system does not have (Executor::kv_held_blocks()).
  std::int32_t kv_held_blocks() const { return executor_->kv_held_blocks(); }

  // See Scheduler::limit_step().
  void limit_step(Duration longest) { scheduler_->limit_step(longest); }

  // Blocks of warm prompts, by their names (KvManager::hold). restore_blocks() fills the needed
  // blocks that are not in memory with what `stored` gives; empty: it has none. KV memory grows for
  // them; blocks that find none are left out. Errors are the device's.
  // REQUIRES: nothing in flight. For contents: the engine has a KvContents.
  void hold_blocks(std::span<const Hash128> names) { kv_->hold(names); }
  // Ends the holds of hold_blocks(): the blocks are ordinary cached blocks until they are held
  // again.
  void release_blocks() { kv_->end_warm_holds(); }
  using StoredBlock = FunctionRef<std::span<const std::byte>(const BlockPlace&)>;
  Status restore_blocks(std::span<const Hash128> names, StoredBlock stored);
  Status read_block(BlockId id, std::span<std::byte> out);
  std::size_t kv_block_bytes() const;
  // Whether the tier below takes blocks now.
  bool tier_accepts_saves() const { return executor_->tier_accepts_saves(); }
  // The memory of this machine that its blocks take.
  // KvTier::levels().
  TierLevels tier_levels() const {
    return contents_ == nullptr ? TierLevels{} : contents_->tier_levels();
  }
  std::int64_t tier_memory_bytes() const {
    return contents_ == nullptr ? 0 : contents_->tier_memory_bytes();
  }

  // Requests with a PinOrder make pins; steps end those whose time is over.
  PinTable& pins() { return pins_; }
  const PinTable& pins() const { return pins_; }

  // Runs one step. The outputs stay valid until the next step.
  Result<std::span<const ChoiceOutput>> step();
  // The two halves of step(), for callers with work to do between them. compute() does everything
  // that takes long, up to the sampled tokens. It returns false if nothing was computed: there is
  // nothing to compute, or all sequences wait for transfers (then it has waited a few milliseconds
  // for one). commit() turns the tokens into outputs of each choice.
  Result<bool> compute();
  std::span<const ChoiceOutput> commit();

  // Checks that the files which the executor maps are unchanged up to now; step() notices changes
  // later. Returns the cause; the engine has failed then.
  Status check_files();

  // Whether step() has something to do or to report.
  bool has_work() const;
  // The latest time for the next step() call although there is no work: to return idle memory, or
  // to end pins. While the tier takes no blocks it is a second from now, because has_work() changes
  // by itself when the tier takes them again.
  std::optional<TimePoint> wake_at() const;

  // Tokens of the request's first choice that are in KV, which shows the progress of the prompt. 0
  // for an unknown request.
  std::int32_t computed_tokens(RequestId id) const;
  // Appends every unfinished request, in no order.
  void append_progress(std::vector<RequestProgress>& out) const;
  std::size_t num_requests() const { return active_.size(); }

  // Makes the blocks that the tier below has saved durable. Called before the engine ends, when it
  // has no work.
  Status flush_tier(Duration at_most) { return executor_->flush_tier(at_most); }
  const EngineLimits& limits() const { return limits_; }
  const EngineStats& stats() const { return stats_; }
  const Scheduler& scheduler() const { return *scheduler_; }
  const KvManager& kv() const { return *kv_; }
  // CHECKs the invariants of scheduler and KV.
  void check_integrity() const;

 private:
  static constexpr int kMaxInFlight = 2;

  struct ActiveRequest {
    Request request;
    std::vector<Sequence> choices;
    std::int32_t unfinished = 0;
  };

  Status check(const Request& request) const;
  Status check_resumed(const Request& request) const;
  void resume(Sequence& sequence) const;
  void cancel_choices(ActiveRequest& active);
  void end_sequence(Sequence& sequence, FinishReason reason);
  Status grow_kv(std::int32_t blocks);
  ResourceView resources() const;
  Status fill_pipeline(TimePoint now);
  Status plan_next(TimePoint now, BatchPlan& plan);
  void commit_oldest();
  void count_tokens(const BatchPlan& plan);
  void count_transfers(const BatchPlan& plan);
  void report();
  bool has_scored(const RowCommit& commit) const;
  void report_row(const RowCommit& commit);
  void retire(const Sequence& sequence);
  Error fail(const Error& cause);

  EngineLimits limits_;
  const Clock& clock_;
  BatchPlan plans_[kMaxInFlight];  // a ring: the oldest in flight first; outlive the executor
  std::unique_ptr<Executor> executor_;
  const DeviceMeter* meter_;
  KvContents* contents_;
  std::unique_ptr<KvManager> kv_;
  std::unique_ptr<Scheduler> scheduler_;
  PinTable pins_;
  std::optional<Error> failure_;
  EngineStats stats_;

  std::unordered_map<RequestId, std::unique_ptr<ActiveRequest>> active_;
  // Finished in the last step: its outputs point into them.
  std::vector<std::unique_ptr<ActiveRequest>> retired_;
  std::vector<const Sequence*> ended_;  // outside a step, not reported yet
  SequenceId next_sequence_ = 1;

  std::vector<TransferResult> completed_;  // reported by the executor, not yet to the scheduler
  std::vector<PagedBlock> lost_pages_;     // the same
  std::vector<PageLevel> page_levels_;     // the same
  std::int64_t transfers_ = 0;             // started and not yet reported to the scheduler
  std::int32_t kv_limit_ = 0;

  int first_plan_ = 0;
  int in_flight_ = 0;
  bool collected_ = false;  // the oldest in flight: its tokens are in result_
  StepResult result_;
  std::vector<RowCommit> commits_;
  std::vector<ChoiceOutput> outputs_;
};

}  // namespace sluice
