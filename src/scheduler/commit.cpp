// The second half of a step: turns the executor's result into tokens, ended sequences and free
// blocks.
#include <algorithm>

#include "base/check.h"
#include "scheduler/scheduler.h"
#include "scheduler/scheduler_state.h"
#include "scheduler/sequence_names.h"

namespace sluice {
namespace {

bool contains(const std::vector<TokenId>& ids, TokenId token) {
  return std::find(ids.begin(), ids.end(), token) != ids.end();
}

// Whether the sequence ends with its last token. Before min_tokens outputs the sampler masks stop
// ids; a stop id sampled nevertheless is an ordinary token.
FinishReason finish_after(const Sequence& sequence, const SchedulerOptions& options) {
  const SamplingParams& sampling = sequence.request->sampling;
  const TokenId token = sequence.tokens.back();
  if (sequence.output_len() > sampling.min_tokens) {
    if (!sampling.ignore_eos && contains(options.eos_ids, token)) return FinishReason::kStop;
    if (contains(sampling.stop_token_ids, token)) return FinishReason::kStop;
  }
  // max_len is the prompt with max_tokens, cut by the context. Tokens survive preemption, so this
  // counts the outputs of a sequence's whole life.
  const auto length = static_cast<std::int32_t>(sequence.tokens.size());
  return length >= sequence.max_len ? FinishReason::kLength : FinishReason::kNone;
}

class Commit {
 public:
  Commit(SchedulerState& state, const StepResult& result, TimePoint now,
         std::vector<RowCommit>& out)
      : state_(state), result_(result), now_(now), out_(out) {}

  void row(std::int32_t index, const PlanRow& row);

 private:
  void advance(std::int32_t slot, const PlanRow& row, const RowResult& result, RowCommit& commit);
  FinishReason append_tokens(std::int32_t slot, const RowResult& result, RowCommit& commit);
  void finish_cancelled(std::int32_t slot);

  SchedulerState& state_;
  const StepResult& result_;
  TimePoint now_;
  std::vector<RowCommit>& out_;
};

void Commit::row(std::int32_t index, const PlanRow& row) {
  RunningSet& r = state_.running;
  const std::size_t s = RunningSet::index(row.slot);
  CHECK(r.id[s] == row.sequence && r.in_flight[s] > 0);
  --r.in_flight[s];
  RowCommit commit;
  commit.sequence = r.sequence[s];
  commit.row = index;
  if (commit.sequence == nullptr) {
    out_.push_back(commit);
    if (r.in_flight[s] == 0) state_.vacate(row.slot);
    return;
  }
  const std::int32_t advanced = row.loaded_len + row.query_len;
  commit.sequence->in_flight -= advanced;
  if (commit.sequence->cancel_requested) {
    commit.sequence->computed += advanced;
    const RowResult& result = result_.rows[static_cast<std::size_t>(index)];
    if (result.lost_kv) commit.sequence->cancel_reason = FinishReason::kLostKv;
    if (result.failed) commit.sequence->cancel_reason = FinishReason::kError;
    out_.push_back(commit);
    if (r.in_flight[s] == 0) finish_cancelled(row.slot);
    return;
  }
  advance(row.slot, row, result_.rows[static_cast<std::size_t>(index)], commit);
  out_.push_back(commit);
}

void Commit::advance(std::int32_t slot, const PlanRow& row, const RowResult& result,
                     RowCommit& commit) {
  RunningSet& r = state_.running;
  const std::size_t s = RunningSet::index(slot);
  Sequence& sequence = *commit.sequence;
  if (result.failed || result.lost_kv) {
    commit.finished = true;
    state_.finish_running(slot, result.lost_kv ? FinishReason::kLostKv : FinishReason::kError);
    return;
  }
  const std::int32_t sampled = result.num_tokens - result.num_forced;
  CHECK(sampled >= 0 && sampled <= row.query_len && result.num_forced >= 0);
  CHECK(row.num_logits > 0 || result.num_tokens == 0);
  CHECK(result.num_forced == 0 || (sampled > 0 && r.in_flight[s] == 0));
  const FinishReason reason = append_tokens(slot, result, commit);
  commit.num_forced = std::max(0, commit.num_tokens - sampled);

  // The row's tokens before the last known one count as computed. A row that guessed
  // (speculation) may have computed more than was accepted. After forced tokens it has computed
  // less than is known: the next row has them all.
  std::int32_t computed = row.context_len + row.query_len;
  if (row.num_logits > 0) computed = std::min(computed, r.known[s] - 1);
  const std::int32_t rejected = row.context_len + row.query_len - computed;
  // No row may have been planned after tokens that were rejected.
  CHECK(rejected == 0 || r.in_flight[s] == 0 || reason != FinishReason::kNone);
  r.next[s] -= rejected;
  r.undecided[s] = 0;
  sequence.computed = computed;
  if (row.context_len < r.prefill_end[s]) {
    state_.kv.publish(slot, known_hashes(sequence), computed, sequence.request->block_owner);
  }
  if (reason == FinishReason::kNone) return;
  commit.finished = true;
  state_.finish_running(slot, reason);
}

FinishReason Commit::append_tokens(std::int32_t slot, const RowResult& result, RowCommit& commit) {
  RunningSet& r = state_.running;
  const std::size_t s = RunningSet::index(slot);
  Sequence& sequence = *commit.sequence;
  FinishReason reason = FinishReason::kNone;
  for (std::int32_t i = 0; i < result.num_tokens && reason == FinishReason::kNone; ++i) {
    const TokenId token = result_.tokens[static_cast<std::size_t>(result.first_token + i)];
    CHECK(token >= 0);
    if (sequence.output_len() == 0) sequence.first_token = now_;
    sequence.tokens.push_back(token);
    ++commit.num_tokens;
    reason = finish_after(sequence, state_.options);
  }
  r.known[s] = static_cast<std::int32_t>(sequence.tokens.size());
  r.last_token[s] = sequence.tokens.back();
  return reason;
}

void Commit::finish_cancelled(std::int32_t slot) {
  Sequence& sequence = *state_.running.sequence[RunningSet::index(slot)];
  // The token of a discarded decode is unknown, so its block cannot be named.
  sequence.computed =
      std::min(sequence.computed, static_cast<std::int32_t>(sequence.tokens.size()));
  state_.finish_running(slot, sequence.cancel_reason);
  RowCommit commit;
  commit.sequence = &sequence;
  commit.row = -1;
  commit.finished = true;
  out_.push_back(commit);
}

// A step starts when it is planned or when the step before it ends, whichever is later. In a
// pipeline the time covers all stages, because the streams wait for all of them.
void learn_step_time(SchedulerState& state, const BatchPlan& plan, TimePoint now) {
  const bool alone = state.options.micro_batches == 1;
  const TimePoint start = alone ? std::max(plan.planned_at, state.last_end) : plan.planned_at;
  const std::int32_t window = state.options.time_budget->window();
  const auto took = static_cast<double>((now - start).count());
  state.step_time->observe(step_features(plan, window), decode_features(plan, window), took);
  state.last_end = now;
}

// Streamed steps are not like others. The others get as much time as this one took.
void end_streamed_step(SchedulerState& state, const BatchPlan& plan, TimePoint now) {
  state.last_end = now;
  state.last_commit = now;
  state.streams.due = now + (now - plan.planned_at);
  const PlanRow& row = plan.rows.front();
  const bool prompt = row.context_len < state.running.prompt_len[RunningSet::index(row.slot)];
  if (prompt && row.query_len > 1) {
    state.pager.stream().note_chunk(row.query_len, now - plan.planned_at);
  }
}

// The price of computing prompts, against that of loading them.
void learn_chunk_time(SchedulerState& state, const BatchPlan& plan, TimePoint now) {
  const TimePoint start = std::max(plan.planned_at, state.last_commit);
  state.last_commit = now;
  std::int64_t tokens = 0;
  for (const PlanRow& row : plan.rows) {
    const bool prompt = row.context_len < state.running.prompt_len[RunningSet::index(row.slot)];
    if (row.query_len == 1 || !prompt) return;
    tokens += row.query_len;
  }
  state.pager.note_chunks(tokens, now - start);
}

}  // namespace

void Scheduler::commit(const BatchPlan& plan, const StepResult& result, TimePoint now,
                       std::vector<RowCommit>& out) {
  CHECK(plan.step == state_->next_committed && plan.step < state_->next_step);
  CHECK(result.rows.size() == plan.rows.size());
  ++state_->next_committed;
  const bool streamed = plan.streamed_blocks > 0;
  if (streamed) end_streamed_step(*state_, plan, now);
  if (state_->step_time && !streamed) learn_step_time(*state_, plan, now);
  if (state_->pager.has_tier()) {
    state_->pager.note_step_end(now);
    if (state_->options.micro_batches == 1 && !streamed) learn_chunk_time(*state_, plan, now);
  }
  out.clear();
  out.reserve(2 * static_cast<std::size_t>(state_->options.max_num_seqs));
  Commit commit(*state_, result, now, out);
  for (std::size_t i = 0; i < plan.rows.size(); ++i) {
    commit.row(static_cast<std::int32_t>(i), plan.rows[i]);
  }
}

}  // namespace sluice
