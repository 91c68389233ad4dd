// The part of PlanPass that displaces running sequences before the policy plans: for a waiting one
// of higher priority, and for an older prompt.
#include "scheduler/plan_pass.h"

#include <utility>

namespace sluice {

// The first waiting sequence that could run now, if a running one has a lower priority.
Sequence* PlanPass::most_urgent() const {
  if (set().order.empty()) return nullptr;
  const std::int32_t lowest = set().service_order[at(set().order.back())].priority;
  for (const WaitingEntry& entry : state_.waiting.entries()) {
    if (entry.order.priority >= lowest) return nullptr;
    if (!passes_over(entry)) return entry.sequence;
  }
  return nullptr;
}

// The blocks that the sequence lacks with those that are available or `coming`; 0: none.
std::int64_t PlanPass::shortage(const Sequence& sequence, const Admission& how,
                                std::int64_t coming) {
  if (state_.kv_sizer.can_grow()) return 0;
  decode_room_ = -1;
  const std::int64_t needed = blocks_to_admit(sequence, how) + headroom(how.reservation).blocks;
  return std::max<std::int64_t>(0, needed - available_blocks() - coming);
}

// Displaces from the back of the service order: the lowest priority first, there the newest. A
// sequence in flight gets no row in this plan, so that the next one can displace it. Sequences that
// would not make enough room stay.
void PlanPass::displace_for(Sequence& urgent, const Admission& how) {
  const std::vector<std::int32_t>& order = set().order;
  const std::int32_t priority = urgent.request->priority;
  const auto lower = [&](std::size_t i) {
    return set().service_order[at(order[i])].priority > priority;
  };
  std::int64_t most = 0;
  for (std::size_t i = order.size(); i > 0 && lower(i - 1); --i) {
    most += state_.kv.most_released(order[i - 1]);
  }
  if (shortage(urgent, how, most) > 0) return;

  std::int64_t coming = 0;
  std::int32_t slots = free_slots() + set().num_draining;
  for (std::size_t i = order.size(); i > 0 && lower(i - 1); --i) {
    if (slots > 0 && shortage(urgent, how, coming) == 0) return;
    const std::int32_t slot = order[i - 1];
    ++slots;
    state_.urgent = &urgent;
    if (idle(slot)) {
      state_.preempt(slot, plan_);
    } else {
      coming += state_.kv.most_released(slot);
      hold(slot);
      holds_victim_ = true;
    }
  }
}

// An urgent sequence that waits for its adapter, or for the choice that computes its prompt, holds
// up no other meanwhile. Loads of its blocks do hold up the lower ones: those would take its room.
void PlanPass::drop_urgency_of_waits() {
  if (state_.urgent == nullptr) return;
  const Paging paging = state_.urgent->paging;
  if (paging == Paging::kLoading || paging == Paging::kFollowing) return;
  if (passes_over(waiting()[find_waiting(*state_.urgent)])) state_.urgent = nullptr;
}

void PlanPass::make_room_for_priority(Reservation reservation) {
  drop_urgency_of_waits();
  Sequence* const next = most_urgent();
  const Sequence* const before = state_.urgent;
  if (next != nullptr &&
      (before == nullptr || next->request->priority <= before->request->priority)) {
    displace_for(*next, {.reservation = reservation});
  }
  if (state_.urgent == nullptr) return;
  if (state_.urgent != before) state_.urgent_since = now_;
  lowest_admitted_ = state_.urgent->request->priority;
  // The displaced blocks are saved before the urgent sequence takes them, unless that takes
  // long.
  if (now_ - state_.urgent_since < kMostSaving) save_unused();
}

// Decodes are planned before chunks, so a newer decode would keep its memory until it needs more.
void PlanPass::make_room_for_starved() {
  const StarvedPrompt starved = std::exchange(state_.starved, {});
  if (starved.id == 0 || state_.kv_sizer.can_grow()) return;
  if (set().state[at(starved.slot)] != SlotState::kRunning) return;
  if (set().id[at(starved.slot)] != starved.id || !prefilling(starved.slot)) return;
  const std::int32_t newest = set().order.back();
  if (available_blocks() >= starved.blocks || newest == starved.slot) return;
  short_of_memory_ = true;
  if (idle(newest)) {
    state_.preempt(newest, plan_);
  } else {
    hold_newest();
  }
}

}  // namespace sluice
