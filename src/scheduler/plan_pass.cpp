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
  const std::size_t s = at(slot);
  PlanRow& row = append_row(slot, count);
  const auto tokens = set().sequence[s]->tokens.begin() + row.context_len;
  plan_.token_ids.insert(plan_.token_ids.end(), tokens, tokens + count);
  if (set().next[s] < set().prefill_end[s]) return;
  row.num_logits = 1;
  row.output_index = row.context_len + count - set().prompt_len[s];
  plan_.logit_positions.push_back(count - 1);
}

RowOutcome PlanPass::decode_guessed(std::int32_t slot, std::span<const TokenId> guesses) {
  RunningSet& r = set();
  const std::size_t s = at(slot);
  CHECK(decode_ready(slot) && idle(slot));
  const std::int32_t position = r.next[s];
  const auto room = static_cast<std::size_t>(r.decode_end[s] - position - 1);
  const auto used = guesses.first(std::min(guesses.size(), room));
  const auto count = static_cast<std::int32_t>(used.size()) + 1;
  if (!state_.kv.extend(slot, position, count, changes_)) {
    const RowOutcome outcome = make_room(slot, count);
    if (outcome != RowOutcome::kPlanned) return outcome;
  }
  PlanRow& row = append_row(slot, count);
  row.num_logits = count;
  row.output_index = position + 1 - r.prompt_len[s];
  plan_.token_ids.push_back(r.last_token[s]);
  plan_.token_ids.insert(plan_.token_ids.end(), used.begin(), used.end());
  for (std::int32_t i = 0; i < count; ++i) plan_.logit_positions.push_back(i);
  r.undecided[s] = 1;
  return RowOutcome::kPlanned;
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
// row of this plan is final. Otherwise the sequence waits, blocks in hand; it may yet be somebody
// else's victim, but gives nothing up before anybody needs it. The oldest never waits for long:
// when all that could give way are in flight, the newest of them sits out this plan and so can be
// preempted in the next one. (Else, with steps that always overlap, the oldest would wait until
// they come to need a block themselves.)
RowOutcome PlanPass::make_room(std::int32_t slot, std::int32_t count) {
  RunningSet& r = set();
  const std::int32_t first = r.next[at(slot)];
  short_of_memory_ = true;
  while (true) {
    std::int32_t victim = -1;
    for (std::size_t i = r.order.size(); i > 0 && r.order[i - 1] != slot; --i) {
      if (!idle(r.order[i - 1])) continue;
      victim = r.order[i - 1];
      break;
    }
    if (victim < 0) break;
    state_.preempt(victim, plan_);
    if (state_.kv.extend(slot, first, count, changes_)) return RowOutcome::kPlanned;
  }
  if (r.order.back() != slot) r.held[at(r.order.back())] = 1;
  return RowOutcome::kWaits;
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
    const bool forked =
        state_.kv.fork(group->leader_slot, slot, shared, num_tokens, watermark, changes_);
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
