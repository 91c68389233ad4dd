#include "scheduler/simple_policies.h"

#include <algorithm>

#include "scheduler/scheduler.h"

namespace sluice {

// ---------------------------------------------------------------- stall-free

// Decodes count in the budget and are never limited by it, so that streams do not stall. A step
// that was short of memory admits no sequence: the victim would return at once and be preempted
// again.
void StallFreePolicy::plan(PlanPass& pass) {
  pass.decode_all();
  pass.prefill_all();
  if (!pass.short_of_memory()) pass.admit_all({});
}

// ---------------------------------------------------------------- chunked-only

// If one phase has nothing to run, the other one runs. If a decode waits for a victim that was in
// flight, the next step has decodes again: a chunk in between would put the victim in flight again.
void ChunkedOnlyPolicy::plan(PlanPass& pass) {
  if (chunks_first_ && plan_chunks(pass)) {
    chunks_first_ = false;
    return;
  }
  const bool decodes = plan_decodes(pass);
  if (!decodes && !chunks_first_) plan_chunks(pass);
  chunks_first_ = (chunks_first_ || decodes) && !pass.holds_victim();
}

bool ChunkedOnlyPolicy::plan_chunks(PlanPass& pass) {
  pass.prefill_all();
  if (!pass.short_of_memory()) pass.admit_all({});
  return !pass.rows().empty();
}

bool ChunkedOnlyPolicy::plan_decodes(PlanPass& pass) {
  pass.decode_all();
  return !pass.rows().empty();
}

// ---------------------------------------------------------------- hybrid

std::string_view HybridPolicy::name() const {
  switch (reservation_) {
    case Reservation::kPrompt: return "hybrid-only";
    case Reservation::kContext: return "hybrid";
    case Reservation::kMaxTokens: return "hybrid:max-tokens";
    case Reservation::kTurn: break;  // of `fair`
  }
  return "";
}

std::int32_t HybridPolicy::token_budget(const SchedulerOptions& options) const {
  return budget_beside_decodes(options);
}

void HybridPolicy::plan(PlanPass& pass) {
  pass.decode_all();
  if (pass.short_of_memory()) return;
  pass.admit_all({.rows = PromptRows::kWhole, .reservation = reservation_});
}

// ---------------------------------------------------------------- prefill-first

// Any prompt fits in one step.
std::int32_t PrefillFirstPolicy::token_budget(const SchedulerOptions& options) const {
  return std::max(options.token_budget, options.max_model_len);
}

void PrefillFirstPolicy::plan(PlanPass& pass) {
  pass.admit_all({.rows = PromptRows::kWhole});
  if (pass.rows().empty()) pass.decode_all();
}

// ---------------------------------------------------------------- request-level

// A step has room for a whole prompt beside decodes: a choice may compute its prompt while the
// batch decodes.
std::int32_t RequestLevelPolicy::token_budget(const SchedulerOptions& options) const {
  return budget_beside_decodes(options);
}

// The prompts of a batch may take several steps; the batch is open until the first decode. Choices
// that waited for their leader belong to the leader's batch and join it late.
void RequestLevelPolicy::plan(PlanPass& pass) {
  const auto running = pass.running();
  if (running.empty()) batch_end_ = pass.next_ticket();
  const bool open = std::none_of(running.begin(), running.end(),
                                 [&](std::int32_t slot) { return pass.decoding(slot); });
  Admission how{.rows = PromptRows::kWhole, .reservation = Reservation::kContext};
  if (open) {
    how.before_ticket = batch_end_;
    pass.admit_all(how);
    if (!pass.rows().empty()) return;
  }
  pass.decode_all();
  if (!pass.short_of_memory()) pass.admit_choices(how);
}

// ---------------------------------------------------------------- unified

void UnifiedPolicy::plan(PlanPass& pass) {
  pass.advance_all();
  if (!pass.short_of_memory()) pass.admit_all({});
}

}  // namespace sluice
