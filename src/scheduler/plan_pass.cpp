#include "scheduler/plan_pass.h"

#include "base/check.h"

namespace sluice {
namespace {

std::size_t share(std::size_t sequences, std::int32_t micro_batches) {
  const auto batches = static_cast<std::size_t>(micro_batches);
  return (sequences + batches - 1) / batches;
}

}  // namespace

PlanPass::PlanPass(SchedulerState& state, TimePoint now, const ResourceView& resources,
                   BatchPlan& plan)
    : state_(state),
      now_(now),
      resources_(resources),
      plan_(plan),
      changes_(plan.block_changes()),
      token_limit_(state.options.token_budget),
      time_(state.options.time_budget ? &*state.options.time_budget : nullptr),
      overlap_(state.options.micro_batches == 1),
      max_rows_(
          share(static_cast<std::size_t>(state.options.max_num_seqs), state.options.micro_batches)),
      max_running_rows_(overlap_ ? max_rows_
                                 : share(state.running.order.size(), state.options.micro_batches)) {
}

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
  const std::int32_t end = set().prefill_end[at(slot)];
  std::int32_t count = std::min(max_tokens, end - first);
  CHECK(count > 0);
  if (time_ != nullptr) {
    count = chunk_within_time(first, count, first + count == end);
    if (count == 0) return RowOutcome::kWaits;
  }
  if (!state_.kv.extend(slot, first, count, changes_)) {
    const RowOutcome outcome = make_room(slot, count);
    if (outcome != RowOutcome::kPlanned) return outcome;
  }
  append_chunk(slot, count);
  if (time_ != nullptr) {
    planned_.add_chunk(first, count, first + count == end, time_->predictor.window);
    ++num_chunks_;
  }
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
  if (r.order.back() != slot) {
    r.held[at(r.order.back())] = 1;
    holds_victim_ = true;
  }
  return RowOutcome::kWaits;
}

void PlanPass::decode_all() {
  const std::vector<std::int32_t>& order = set().order;
  for (std::size_t i = 0; i < order.size() && plan_.rows.size() < max_running_rows_; ++i) {
    if (decode_ready(order[i])) decode(order[i]);
  }
}

void PlanPass::prefill_all() {
  const std::vector<std::int32_t>& order = set().order;
  for (std::size_t i = 0; i < order.size() && tokens_left() > 0; ++i) {
    if (plan_.rows.size() >= max_running_rows_) return;
    if (prefilling(order[i])) prefill(order[i], tokens_left());
  }
}

void PlanPass::advance_all() {
  const std::vector<std::int32_t>& order = set().order;
  for (std::size_t i = 0; i < order.size() && tokens_left() > 0; ++i) {
    if (plan_.rows.size() >= max_running_rows_) return;
    if (decode_ready(order[i])) {
      decode(order[i]);
    } else if (prefilling(order[i])) {
      prefill(order[i], tokens_left());
    }
  }
}

bool PlanPass::waits_for_leader(const WaitingEntry& entry) const {
  const ChoiceGroup* const group = state_.group_of(*entry.sequence);
  if (group == nullptr || group->leader_slot < 0) return false;
  const Sequence& leader = *set().sequence[at(group->leader_slot)];
  return leader.computed < leader.prompt_len - 1;
}

// Not when the prefix cache has as much: then nothing needs to be copied.
bool PlanPass::may_fork(const Sequence& sequence, const ChoiceGroup* group) const {
  if (group == nullptr || group->leader_slot < 0) return false;
  const std::int32_t shared = sequence.prompt_len - 1;
  const std::int32_t num_tokens = sequence.length();
  return state_.kv.can_fork(group->leader_slot, shared) &&
         state_.kv.match(SchedulerState::known_hashes(sequence), num_tokens - 1) < shared;
}

// How long the row of a whole prompt would be. Looks into the prefix cache only when that decides.
std::int32_t PlanPass::tokens_to_compute(const Sequence& sequence) const {
  const std::int32_t num_tokens = sequence.length();
  return num_tokens <= tokens_left() ? num_tokens : tokens_missing(sequence);
}

// Tokens that no cached block and no sibling has.
std::int32_t PlanPass::tokens_missing(const Sequence& sequence) const {
  const std::int32_t num_tokens = sequence.length();
  if (may_fork(sequence, state_.group_of(sequence))) return num_tokens - sequence.prompt_len + 1;
  return num_tokens - state_.kv.match(SchedulerState::known_hashes(sequence), num_tokens - 1);
}

std::int32_t PlanPass::tokens_to_reserve(const Sequence& sequence, Reservation reservation) const {
  switch (reservation) {
    case Reservation::kPrompt: break;
    case Reservation::kContext:
      if (!is_alone()) return state_.options.max_model_len;
      [[fallthrough]];
    case Reservation::kMaxTokens: return sequence.max_len - 1;  // the last is never computed
  }
  return sequence.length();
}

std::optional<std::int32_t> PlanPass::take_blocks(std::int32_t slot, const Sequence& sequence,
                                                  Reservation reservation) {
  ChoiceGroup* const group = state_.group_of(sequence);
  // The watermark is for the growth of others; whoever is alone may use all there is.
  const bool grows = reservation == Reservation::kPrompt && !is_alone();
  const Watermark watermark = grows ? Watermark::kKeep : Watermark::kIgnore;
  const std::int32_t reserved = tokens_to_reserve(sequence, reservation);
  if (may_fork(sequence, group)) {
    const std::int32_t shared = sequence.prompt_len - 1;
    const bool forked =
        state_.kv.fork(group->leader_slot, slot, shared, reserved, watermark, changes_);
    return forked ? std::optional(shared) : std::nullopt;
  }
  const auto cached = state_.kv.admit(slot, SchedulerState::known_hashes(sequence),
                                      sequence.length(), watermark, changes_, reserved);
  if (cached && group != nullptr && group->leader_slot < 0) group->leader_slot = slot;
  return cached;
}

bool PlanPass::try_admit(const WaitingEntry& entry, Reservation reservation) {
  Sequence& sequence = *entry.sequence;
  const std::int32_t slot = set().free_slots.back();
  const auto cached = take_blocks(slot, sequence, reservation);
  if (!cached) return false;
  state_.occupy(slot, entry, *cached);
  if (sequence.num_preemptions == 0) {
    sequence.first_scheduled = now_;
    sequence.cached_prompt_tokens = *cached;
  }
  plan_.assignments.push_back({slot, &sequence});
  return true;
}

bool PlanPass::admit_at(std::size_t position, const Admission& how) {
  if (!can_admit()) return false;
  const WaitingEntry entry = state_.waiting.at(position);
  if (entry.order.ticket >= how.before_ticket) return false;
  if (how.rows == PromptRows::kWhole && tokens_to_compute(*entry.sequence) > tokens_left()) {
    return false;
  }
  if (time_ != nullptr && !time_for(entry)) return false;
  if (!try_admit(entry, how.reservation)) return false;
  state_.dequeue(position);
  // Its blocks are promised, so the first chunk cannot fail.
  CHECK(prefill(entry.sequence->slot, tokens_left()) == RowOutcome::kPlanned);
  return true;
}

bool PlanPass::admit_next(const Admission& how) {
  if (!can_admit()) return false;
  const auto passed_over = [&](const WaitingEntry& entry) {
    return entry.sequence == nullptr || waits_for_leader(entry);
  };
  while (cursor_ < waiting().size() && passed_over(waiting()[cursor_])) ++cursor_;
  return cursor_ < waiting().size() && admit_at(cursor_, how);
}

void PlanPass::admit_choices(const Admission& how) {
  if (state_.choices.empty() || !can_admit()) return;
  const auto ready = [&](const WaitingEntry& entry) {
    if (entry.sequence == nullptr) return false;
    const ChoiceGroup* const group = state_.group_of(*entry.sequence);
    return group != nullptr && group->leader_slot >= 0 && !waits_for_leader(entry);
  };
  for (std::size_t i = 0; i < waiting().size();) {
    if (!ready(waiting()[i])) {
      ++i;
    } else if (!admit_at(i, how)) {
      return;
    }
  }
}

}  // namespace sluice
