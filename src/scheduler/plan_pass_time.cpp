// The time budget of a plan: the time that the decodes leave, and the length of chunks within it.
#include <algorithm>

#include "scheduler/plan_pass.h"

namespace sluice {
namespace {

constexpr double kLeastChunkOnly = -1;  // a limit that no step meets

}  // namespace

// Steps run one after another: this one begins when the steps in flight have ended.
TimePoint PlanPass::step_start() const {
  const bool in_flight = state_.next_committed < state_.next_step;
  return in_flight ? std::max(now_, state_.busy_until) : now_;
}

// Rows planned before the first chunk: decodes, and those with guesses.
void PlanPass::sum_up_decodes() { planned_ = step_features(plan_, time_->window()); }

// Sums up the time of the decodes, and sets the limit of the step.
void PlanPass::begin_chunks() {
  chunks_begun_ = true;
  limit_ns_ = std::numeric_limits<double>::infinity();
  if (time_->decode_steps > 0) {
    limit_by_decodes();
  } else {
    limit_by_slack();
  }
  if (state_.step_limit == Duration::max()) return;
  const StepTimeCorrection& times = *state_.step_time;
  const auto limit = static_cast<double>(state_.step_limit.count());
  limit_ns_ = times.known() ? std::min(limit_ns_, limit / times.margin()) : kLeastChunkOnly;
}

// The slack of the stream that is due first. A stream whose first token is not known yet (its step
// is in flight) is due one TBT from now.
void PlanPass::limit_by_slack() {
  const TimePoint start = step_start();
  for (const PlanRow& row : plan_.rows) {
    const Sequence& stream = *set().sequence[at(row.slot)];
    const TimePoint due = stream.output_len() > 0
                              ? stream.first_token + time_->tbt * row.output_index
                              : start + time_->tbt;
    limit_ns_ = std::min(limit_ns_, time_->limit_ns(due - start) / state_.step_time->margin());
  }
  sum_up_decodes();
}

// Without a goal, chunks may make the decodes' step longer by a factor. Before anything was
// measured, the least chunk alone fits; so it is with limit_step().
void PlanPass::limit_by_decodes() {
  sum_up_decodes();
  if (planned_.rows == 0) return;
  const StepTimeCorrection& times = *state_.step_time;
  limit_ns_ = times.known() ? times.decode_limit_ns(planned_) / times.margin() : kLeastChunkOnly;
}

// The length of the next chunk: at most `wanted` tokens, 0 for no chunk. A chunk shorter than
// `wanted` is the step's last. The first chunk has at least min_chunk tokens whatever its time. A
// further chunk below min_chunk is not worth a split.
std::int32_t PlanPass::chunk_within_time(std::int32_t context, std::int32_t wanted,
                                         bool ends_prompt) {
  if (!chunks_begun_) begin_chunks();
  const std::int32_t least = std::min(time_->min_chunk, wanted);
  const std::int32_t fits =
      state_.step_time->best_chunk(planned_, {context, least, wanted, ends_prompt}, limit_ns_);
  if (fits == wanted) return wanted;
  token_limit_ = 0;
  return fits == 0 && num_chunks_ == 0 ? least : fits;
}

// Whether the step has time for the first row of a waiting sequence. Checked before its admission.
bool PlanPass::time_for(const WaitingEntry& entry) {
  if (num_chunks_ == 0) return true;
  const std::int32_t num_tokens = entry.sequence->length();
  const std::int32_t missing = tokens_missing(*entry.sequence);
  const std::int32_t most = std::min(missing, tokens_left());
  const std::int32_t least = std::min(time_->min_chunk, most);
  const bool fits =
      state_.step_time->best_chunk(planned_, {num_tokens - missing, least, most, most == missing},
                                   limit_ns_) > 0;
  if (!fits) token_limit_ = 0;
  return fits;
}

// With a time budget: records when the step of this plan should end.
void PlanPass::note_end() {
  if (time_ == nullptr) return;
  if (!chunks_begun_) sum_up_decodes();
  const double ns = state_.step_time->time_ns(planned_) * state_.step_time->margin();
  state_.busy_until = step_start() + Duration(static_cast<Duration::rep>(ns));
}

}  // namespace sluice
