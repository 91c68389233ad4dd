#include "scheduler/plan_pass.h"

#include "base/check.h"

namespace sluice {

PlanPass::PlanPass(SchedulerState& state, TimePoint now, const ResourceView& resources,
                   BatchPlan& plan)
    : state_(state),
      now_(now),
      resources_(resources),
      plan_(plan),
      changes_(plan.block_changes()) {}

void PlanPass::append_chunk(std::int32_t slot, std::int32_t count) {
  RunningSet& r = set();
  const std::size_t s = at(slot);
  Sequence& sequence = *r.sequence[s];
  const std::int32_t first = r.next[s];
  const bool last = first + count == r.prefill_end[s];
  PlanRow row;
  row.sequence = r.id[s];
  row.slot = slot;
  row.context_len = first;
  row.query_len = count;
  row.first_token = static_cast<std::int32_t>(plan_.token_ids.size());
  row.first_logit = static_cast<std::int32_t>(plan_.logit_positions.size());
  row.num_logits = last ? 1 : 0;
  row.output_index = last ? first + count - r.prompt_len[s] : 0;
  plan_.rows.push_back(row);
  const auto tokens = sequence.tokens.begin() + first;
  plan_.token_ids.insert(plan_.token_ids.end(), tokens, tokens + count);
  if (last) plan_.logit_positions.push_back(count - 1);
  r.next[s] += count;
  ++r.in_flight[s];
  sequence.in_flight += count;
}

RowOutcome PlanPass::prefill(std::int32_t slot, std::int32_t max_tokens) {
  const std::int32_t first = set().next[at(slot)];
  const std::int32_t count = std::min(max_tokens, set().prefill_end[at(slot)] - first);
  CHECK(count > 0);
  if (!state_.kv.extend(slot, first, count, changes_)) {
    const RowOutcome outcome = make_room(slot, count);
    if (outcome != RowOutcome::kPlanned) return outcome;
  }
  append_chunk(slot, count);
  return RowOutcome::kPlanned;
}

// Preempts the newest sequences until `slot` has blocks for `count` more tokens (kPlanned). Only
// those behind it in the order and not in flight: a step in flight writes into its blocks, and a
// row of this plan is final. When all that could give way are in flight, the newest sits out this
// plan so that it can be preempted in the next one; otherwise pairs of steps that overlap for ever
// would starve the older sequence.
RowOutcome PlanPass::make_room(std::int32_t slot, std::int32_t count) {
  RunningSet& r = set();
  const std::int32_t first = r.next[at(slot)];
  short_of_memory_ = true;
  while (true) {
    std::int32_t victim = -1;
    for (std::size_t i = r.order.size(); i > 0 && r.order[i - 1] != slot; --i) {
      if (r.in_flight[at(r.order[i - 1])] > 0) continue;
      victim = r.order[i - 1];
      break;
    }
    if (victim < 0) break;
    state_.preempt(victim, plan_);
    if (state_.kv.extend(slot, first, count, changes_)) return RowOutcome::kPlanned;
  }
  if (r.order.back() != slot) {
    r.held[at(r.order.back())] = 1;
    return RowOutcome::kWaits;
  }
  // The newest itself: its blocks help those before it more. Alone it would have had room, unless
  // an ended sequence still holds blocks; those come back with the next commit.
  if (r.in_flight[at(slot)] > 0 || r.num_draining > 0 || r.order.size() == 1) {
    return RowOutcome::kWaits;
  }
  state_.preempt(slot, plan_);
  return RowOutcome::kPreempted;
}

bool PlanPass::waits_for_leader(const Sequence& sequence) const {
  const ChoiceGroup* const group = state_.group_of(sequence);
  if (group == nullptr || group->leader_slot < 0) return false;
  const Sequence& leader = *set().sequence[at(group->leader_slot)];
  return leader.computed < leader.prompt_len - 1;
}

std::optional<std::int32_t> PlanPass::take_blocks(std::int32_t slot, const Sequence& sequence,
                                                  ChoiceGroup* group, Watermark watermark) {
  const auto num_tokens = static_cast<std::int32_t>(sequence.tokens.size());
  const std::vector<Hash128>& hashes = SchedulerState::known_hashes(sequence);
  const std::int32_t shared = sequence.prompt_len - 1;
  if (group != nullptr && group->leader_slot >= 0 &&
      state_.kv.can_fork(group->leader_slot, shared) &&
      state_.kv.match(hashes, num_tokens - 1) < shared) {
    const bool forked = state_.kv.fork(group->leader_slot, slot, shared, num_tokens, watermark,
                                       changes_);
    return forked ? std::optional(shared) : std::nullopt;
  }
  const auto cached = state_.kv.admit(slot, hashes, num_tokens, watermark, changes_);
  if (cached && group != nullptr && group->leader_slot < 0) group->leader_slot = slot;
  return cached;
}

bool PlanPass::try_admit(Sequence& sequence, ServiceOrder place) {
  RunningSet& r = set();
  const std::int32_t slot = r.free_slots.back();
  // The watermark is for the growth of others; whoever is alone may use all there is.
  const bool alone = r.order.empty() && r.num_draining == 0;
  const Watermark watermark = alone ? Watermark::kIgnore : Watermark::kKeep;
  const auto cached = take_blocks(slot, sequence, state_.group_of(sequence), watermark);
  if (!cached) return false;
  state_.occupy(slot, sequence, place, *cached);
  if (sequence.num_preemptions == 0) {
    sequence.first_scheduled = now_;
    sequence.cached_prompt_tokens = *cached;
  }
  plan_.assignments.push_back({slot, &sequence});
  return true;
}

bool PlanPass::admit_next(std::int32_t max_tokens) {
  CHECK(max_tokens > 0);
  if (set().free_slots.empty()) return false;
  while (cursor_ < state_.waiting.size() &&
         waits_for_leader(*state_.waiting.at(cursor_).sequence)) {
    ++cursor_;
  }
  if (cursor_ == state_.waiting.size()) return false;
  const WaitingEntry entry = state_.waiting.at(cursor_);
  if (!try_admit(*entry.sequence, entry.order)) return false;
  state_.waiting.erase(cursor_);
  // Its blocks are promised, so the first chunk cannot fail.
  CHECK(prefill(entry.sequence->slot, max_tokens) == RowOutcome::kPlanned);
  return true;
}

}  // namespace sluice
