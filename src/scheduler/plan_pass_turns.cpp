// The part of PlanPass for policies that hand out turns of memory (policy_fair.h).
#include "scheduler/plan_pass.h"
#include "scheduler/sequence_names.h"

namespace sluice {

bool PlanPass::lacks_room() const {
  if (state_.waiting.empty() || state_.kv_sizer.can_grow()) return false;
  return lacks_memory_ != nullptr || short_of_memory_ || set().free_slots.empty();
}

std::int64_t PlanPass::blocks_to_admit(const Sequence& sequence, const Admission& how) const {
  return state_.kv.blocks_to_admit(names_of(sequence), sequence.length(),
                                   tokens_to_reserve(sequence, how));
}

std::int64_t PlanPass::blocks_after_loads(const Sequence& sequence, const Admission& how) const {
  const std::int32_t loaded = state_.pager.loading_until(sequence);
  return state_.kv.blocks_needed(tokens_to_reserve(sequence, how)) -
         state_.kv.blocks_needed(loaded);
}

bool PlanPass::promise(std::int32_t slot, std::int32_t tokens, std::int32_t spare) {
  return state_.kv.promise(slot, tokens, {.blocks = spare});
}

void PlanPass::save_unused() {
  if (!state_.pager.has_tier()) return;
  state_.pager.plan_saves(tier_accepts_saves_, SavesBesideLoads::kYes, SaveHaste::kAwaited,
                          state_.next_transfer, plan_);
  spares_unsaved_ = state_.pager.num_saves() > 0;
}

}  // namespace sluice
