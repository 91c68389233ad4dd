// Executor: runs planned steps in order and moves bytes beside them. Implementations: the engine's
// ModelRunner, the simulator's, and scripted ones in tests.
// Threads: called from the engine's thread only. submit() may return before the step has run; up
// to max_in_flight() steps may be submitted and not collected.
//
// poll() to kv_growth_failed() have default bodies for an executor with fixed KV memory and no
// transfers. A scheduler that plans for such an executor is made without growth and adapter slots.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/token_id.h"
#include "scheduler/batch_plan.h"

namespace sluice {

struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0.0F;
};

// `rank`: 1 = the likeliest token of the vocabulary.
struct PromptLogprob {
  TokenId token = 0;
  float logprob = 0.0F;
  std::int32_t rank = 0;
};

// The result of one row, in the plan's order.
struct RowResult {
  std::int32_t first_token = 0;  // index in StepResult::tokens
  // Tokens to commit: 0 (chunk) to query_len, and then the forced ones.
  std::int32_t num_tokens = 0;
  // The last of these, which had to follow whatever the logits are. No step has computed them.
  // REQUIRES: no log-probabilities, and no other step in flight has a row of the sequence.
  std::int32_t num_forced = 0;
  // Per committed token: the chosen one, then the alternatives, most likely first.
  std::int32_t first_logprob = 0;
  std::int32_t num_logprobs = 0;
  // In StepResult::prompt_logprobs: per scored position the prompt's token, then the alternatives.
  std::int32_t first_prompt_logprob = 0;
  std::int32_t num_prompt_logprobs = 0;
  // In StepResult::embeddings: the prompt's vector, in the row that ends it (Request::pooling).
  std::int32_t first_embedding = 0;
  std::int32_t num_embedding = 0;
  bool failed = false;  // logits were not finite; the sequence ends with FinishReason::kError
  // KV that is streamed could not be moved: the sequence ends with FinishReason::kLostKv.
  bool lost_kv = false;
};

struct StepResult {
  std::vector<RowResult> rows;
  std::vector<TokenId> tokens;
  std::vector<TokenLogprob> logprobs;
  std::vector<PromptLogprob> prompt_logprobs;
  std::vector<float> embeddings;

  void clear() {
    rows.clear();
    tokens.clear();
    logprobs.clear();
    prompt_logprobs.clear();
    embeddings.clear();
  }
};

class Executor {
 public:
  virtual ~Executor() = default;

  // The number of submitted steps that may wait for collect(): 1, or 2 to plan ahead of the device.
  virtual int max_in_flight() const = 0;

  // Starts a step. REQUIRES: plan is not empty; fewer than max_in_flight() steps wait; a plan with
  // rows stays unchanged until collected. The work of a plan without rows is done or started on
  // return: the plan is not in flight and has no result to collect. An error is final: the engine
  // has failed.
  virtual Status submit(const BatchPlan& plan) = 0;

  // Waits for the oldest submitted step and writes its result, `out` cleared first.
  // REQUIRES: one waits. An error is final: the engine has failed.
  virtual Status collect(StepResult& out) = 0;

  // Appends the transfers that ended since the last call, in order of completion. Never blocks: an
  // executor without threads of its own moves at most one bounded slice. An error is final.
  virtual Status poll(std::vector<TransferResult>& completed) {
    static_cast<void>(completed);
    return {};
  }
  // Returns when a transfer has ended or the time is over. Called only when no step is in flight
  // and transfers are not yet reported. An error is final.
  virtual Status wait_for_transfer(Duration at_most) {
    static_cast<void>(at_most);
    return {};
  }

  // Checks that the files which the executor maps are unchanged. Cheap; called between steps, and
  // at next_check() while nothing runs. An error is final.
  virtual Status check(TimePoint now) {
    static_cast<void>(now);
    return {};
  }
  // The same, and notices every change before the call. An error is final.
  virtual Status check_now(TimePoint now) { return check(now); }
  // When check() should be called next if no step runs before then.
  virtual std::optional<TimePoint> next_check() const { return std::nullopt; }

  // Appends the pages whose blocks the tier has dropped since the last call. Called after poll().
  virtual void take_lost_pages(std::vector<PagedBlock>& /*lost*/) {}
  // Appends where the tier has blocks from now on, in the order of the changes since the last call.
  virtual void take_page_levels(std::vector<PageLevel>& /*changes*/) {}

  // The ResourceView fields of the same names.
  virtual std::int32_t kv_backed_blocks() const { return 0; }
  virtual bool kv_growth_failed() const { return false; }
  // KV blocks whose memory the system does not have. More than kv_backed_blocks() from a plan that
  // shrinks KV memory until the steps before it have run.
  virtual std::int32_t kv_held_blocks() const { return kv_backed_blocks(); }
  virtual bool tier_accepts_saves() const { return false; }

  // A sequence that was streamed has ended: nothing of it is needed any more.
  virtual void end_stream(SequenceId /*sequence*/) {}

  // Makes what the tier below has saved durable, with its times of use; takes at most `at_most`.
  virtual Status flush_tier(Duration /*at_most*/) { return {}; }
};

}  // namespace sluice
