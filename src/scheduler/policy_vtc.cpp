#include "scheduler/policy_vtc.h"

#include "scheduler/plan_pass.h"

namespace sluice {

void VtcPolicy::plan(PlanPass& pass) {
  pass.decode_all();
  charge_decodes(pass);
  pass.prefill_all();
  // As in `stall-free`; and when the client whose turn it is does not fit, nobody overtakes it.
  if (pass.short_of_memory()) return;
  while (pass.can_admit()) {
    const auto next = least_served(pass);
    if (!next || !pass.admit_at(*next, {})) return;
    charge_prompt(pass, pass.rows().back().slot);
  }
}

void VtcPolicy::charge_decodes(PlanPass& pass) const {
  for (const PlanRow& row : pass.rows()) {
    pass.clients().charge(pass.client_of(row.slot), weights_.output * row.num_logits);
  }
}

// At once for all chunks, so that the next choice knows of it. Nobody pays again because he was
// preempted, nor for tokens that came from the prefix cache or from a sibling.
void VtcPolicy::charge_prompt(PlanPass& pass, std::int32_t slot) const {
  const Sequence& sequence = pass.sequence(slot);
  if (sequence.num_preemptions > 0) return;
  const std::int64_t computed = sequence.prompt_len - sequence.cached_prompt_tokens;
  pass.clients().charge(pass.client_of(slot), weights_.input * computed);
}

// The first in service order of the client with the least counter, among the best priority class
// that has somebody to admit.
std::optional<std::size_t> VtcPolicy::least_served(const PlanPass& pass) {
  const auto waiting = pass.waiting();
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    const WaitingEntry& entry = waiting[i];
    if (entry.sequence == nullptr) continue;
    if (best) {
      if (entry.order.priority != waiting[*best].order.priority) break;
      if (pass.served(entry.client) >= pass.served(waiting[*best].client)) continue;
    }
    if (!pass.waits_for_leader(entry)) best = i;
  }
  return best;
}

}  // namespace sluice
