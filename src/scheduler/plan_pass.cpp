#include "scheduler/plan_pass.h"

#include <utility>

#include "base/check.h"
#include "scheduler/sequence_names.h"

namespace sluice {
namespace {

std::size_t share(std::size_t sequences, std::int32_t micro_batches) {
  const auto batches = static_cast<std::size_t>(micro_batches);
  return (sequences + batches - 1) / batches;
}

// Choice 0 scores the prompt for all choices of its request.
bool scores_prompt(const Sequence& sequence) {
  return sequence.request->sampling.prompt_logprobs >= 0 && sequence.choice == 0;
}

}  // namespace

PlanPass::PlanPass(SchedulerState& state, TimePoint now, const ResourceView& resources,
                   BatchPlan& plan)
    : state_(state),
      now_(now),
      plan_(plan),
      changes_(plan.block_changes()),
      tier_accepts_saves_(resources.tier_accepts_saves),
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
  append_scored(slot, count, row);
  row.loaded_len = std::exchange(set().loaded[s], 0);
  if (row.loaded_len > 0) {
    // Only now: an earlier plan that took them over may have been dropped, because it had no row.
    const std::int32_t size = state_.kv.block_size();
    const std::int32_t first = (row.context_len - row.loaded_len) / size;
    state_.kv.list_entries(slot, first, row.loaded_len / size, changes_);
    set().sequence[s]->in_flight += row.loaded_len;
  }
  if (set().next[s] < set().prefill_end[s]) return;
  row.num_logits = 1;
  row.output_index = row.context_len + count - set().prompt_len[s];
  plan_.logit_positions.push_back(count - 1);
}

// A position scores the token behind it. Tokens that were scored before a preemption are computed
// again and not scored again.
void PlanPass::append_scored(std::int32_t slot, std::int32_t count, PlanRow& row) {
  Sequence& owner = *set().sequence[at(slot)];
  if (!scores_prompt(owner)) return;
  row.first_scored = static_cast<std::int32_t>(plan_.scored.size());
  const std::int32_t end = std::min(row.context_len + count, owner.prompt_len - 1);
  for (std::int32_t i = std::max(row.context_len, owner.scored); i < end; ++i) {
    plan_.logit_positions.push_back(i - row.context_len);
    plan_.scored.push_back({owner.tokens[at(i + 1)], owner.request->sampling.prompt_logprobs});
    ++row.num_scored;
  }
  owner.scored = std::max(owner.scored, end);
  row.first_logit += row.num_scored;
}

// The tokens of a chunk of `count` whose positions the plan has room to score.
std::int32_t PlanPass::within_scored(std::int32_t slot, std::int32_t count) const {
  const Sequence& owner = *set().sequence[at(slot)];
  if (!scores_prompt(owner)) return count;
  const std::int32_t first = set().next[at(slot)];
  const std::int32_t unscored_end = std::max(first, owner.scored) + score_room();
  // The last token of the prompt has none behind it.
  if (unscored_end >= owner.prompt_len - 1) return count;
  return std::min(count, unscored_end - first);
}

RowOutcome PlanPass::decode_guessed(std::int32_t slot, std::span<const TokenId> guesses) {
  RunningSet& r = set();
  const std::size_t s = at(slot);
  CHECK(decode_ready(slot) && idle(slot));
  const std::int32_t position = r.next[s];
  if (r.known[s] > position + 1) {
    const RowOutcome outcome = decode_known(slot);
    if (outcome == RowOutcome::kPlanned) r.undecided[s] = 1;  // no other row before the commit
    return outcome;
  }
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

// A row without the last known token samples nothing. A turn still ends at its border.
RowOutcome PlanPass::decode_known(std::int32_t slot) {
  RunningSet& r = set();
  const std::size_t s = at(slot);
  const std::int32_t position = r.next[s];
  const auto promised = static_cast<std::int32_t>(r.order.size());
  std::int32_t count = std::min(r.known[s] - position, 1 + std::max(0, tokens_left() - promised));
  const Turn& turn = r.sequence[s]->turn;
  if (turn.begin >= 0 && turn.end > position) count = std::min(count, turn.end - position);
  if (!state_.kv.extend(slot, position, count, changes_)) {
    const RowOutcome outcome = make_room(slot, count);
    if (outcome != RowOutcome::kPlanned) return outcome;
  }
  PlanRow& row = append_row(slot, count);
  const auto tokens = r.sequence[s]->tokens.begin() + position;
  plan_.token_ids.insert(plan_.token_ids.end(), tokens, tokens + count);
  row.output_index = position + count - r.prompt_len[s];
  if (position + count < r.known[s]) return RowOutcome::kPlanned;
  row.num_logits = 1;
  plan_.logit_positions.push_back(count - 1);
  return RowOutcome::kPlanned;
}

// Goes on behind blocks that loads have brought. Returns the most tokens of the next chunk.
std::int32_t PlanPass::meet_loads(std::int32_t slot) {
  const std::size_t s = at(slot);
  const std::int32_t before = set().next[s];
  const std::int32_t next = state_.pager.take_loaded(slot, before);
  set().next[s] = next;
  set().loaded[s] += next - before;
  Sequence& owner = *set().sequence[s];
  if (owner.num_preemptions == 0) {
    owner.cached_prompt_tokens +=
        std::min(next, owner.prompt_len) - std::min(before, owner.prompt_len);
  }
  return state_.pager.back().chunk_limit(slot, next);
}

// Blocks for a chunk of a prompt whose end is being loaded. Loads under way will bring blocks or
// give some back, so others are displaced only if that takes long.
RowOutcome PlanPass::make_room_beside_loads(std::int32_t slot, std::int32_t count) {
  BackLoads& loads = state_.pager.back();
  if (loads.wait_for_memory(slot)) return RowOutcome::kWaits;
  loads.end(slot);
  const bool fits = state_.kv.extend(slot, set().next[at(slot)], count, changes_);
  return fits ? RowOutcome::kPlanned : make_room(slot, count);
}

RowOutcome PlanPass::prefill(std::int32_t slot, std::int32_t max_tokens) {
  const bool meets = !state_.pager.back().empty() && state_.pager.back().active(slot);
  if (meets) max_tokens = std::min(max_tokens, meet_loads(slot));
  const std::int32_t first = set().next[at(slot)];
  const std::int32_t end = set().prefill_end[at(slot)];
  CHECK(max_tokens > 0 && first < end);
  std::int32_t count = within_scored(slot, std::min(max_tokens, end - first));
  if (count == 0) return RowOutcome::kWaits;
  if (time_ != nullptr) {
    count = chunk_within_time(first, count, first + count == end);
    if (count == 0) return RowOutcome::kWaits;
  }
  if (!state_.kv.extend(slot, first, count, changes_)) {
    const RowOutcome outcome = meets ? make_room_beside_loads(slot, count) : make_room(slot, count);
    if (outcome != RowOutcome::kPlanned) return outcome;
  }
  append_chunk(slot, count);
  if (time_ != nullptr) {
    planned_.add_chunk(first, count, first + count == end, time_->predictor.window);
    ++num_chunks_;
  }
  return RowOutcome::kPlanned;
}

// The last sequence in service order that comes after `before_slot` (-1: any) and that no step in
// flight names; -1 when there is none.
std::int32_t PlanPass::newest_idle(std::int32_t before_slot) const {
  const std::vector<std::int32_t>& order = set().order;
  for (std::size_t i = order.size(); i > 0 && order[i - 1] != before_slot; --i) {
    if (idle(order[i - 1])) return order[i - 1];
  }
  return -1;
}

// The newest sequence gets no row in this plan, so that a later plan can preempt it.
void PlanPass::hold_newest() {
  set().held[at(set().order.back())] = 1;
  holds_victim_ = true;
}

// Finds blocks for `count` more tokens of `slot`: by ending an idle release, by growth (the row
// waits for it), else by preempting the newest sequences, and for the only sequence by ending the
// holds of warm prompts. Returns kPlanned when the blocks are there.
// A victim comes after the slot in service order and is not in flight, because a step in flight
// writes into its blocks and a row of this plan is final. Without a victim, the sequence waits and
// keeps its blocks until another sequence preempts it.
// The oldest sequence never waits long. When all possible victims are in flight, the newest of them
// gets no row in this plan, so that the next plan can preempt it. Without this rule, steps that
// always overlap would make the oldest wait until the victims need a block themselves.
RowOutcome PlanPass::make_room(std::int32_t slot, std::int32_t count) {
  const std::int32_t first = set().next[at(slot)];
  if (state_.kv_sizer.stop_release() && state_.kv.extend(slot, first, count, changes_)) {
    return RowOutcome::kPlanned;
  }
  short_of_memory_ = true;
  if (state_.kv_sizer.can_grow()) {
    state_.kv_sizer.want(state_.kv.last_shortage());
    return RowOutcome::kWaits;
  }
  while (true) {
    const std::int32_t victim = newest_idle(slot);
    if (victim < 0) break;
    state_.preempt(victim, plan_);
    if (state_.kv.extend(slot, first, count, changes_)) return RowOutcome::kPlanned;
  }
  const bool last = set().order.size() == 1 && set().num_draining == 0;
  if (last && state_.yield_stream(plan_) && state_.kv.extend(slot, first, count, changes_)) {
    return RowOutcome::kPlanned;
  }
  if (last && state_.kv.release_holds() && state_.kv.extend(slot, first, count, changes_)) {
    return RowOutcome::kPlanned;
  }
  lacks_memory_ = &sequence(slot);
  if (prefilling(slot)) {
    const std::int32_t blocks = state_.kv.num_available_blocks() + state_.kv.last_shortage();
    state_.starved = {set().id[at(slot)], slot, blocks};
  }
  if (set().order.back() != slot) hold_newest();
  return RowOutcome::kWaits;
}

void PlanPass::keep_kv_limit() {
  KvSizer& size = state_.kv_sizer;
  if (state_.kv.num_usable_blocks() <= size.most_usable_blocks()) return;
  while (size.over_limit()) {
    if (state_.kv.release_holds() || state_.yield_stream(plan_)) continue;
    short_of_memory_ = true;
    admits_ = false;
    const std::int32_t victim = newest_idle(-1);
    if (victim < 0) {
      if (!set().order.empty()) hold_newest();
      return;
    }
    const bool alone = set().order.size() == 1 && set().num_draining == 0;
    if (alone && never_fits(sequence(victim), Reservation::kMaxTokens)) {
      state_.end_running(victim, FinishReason::kNoMemory, plan_);
    } else {
      state_.preempt(victim, plan_);
    }
  }
  size.apply_limit();
}

// Blocks for one more step of all decodes, and for a step of prompts if any wait.
std::int32_t PlanPass::growth_reserve() const {
  const std::int32_t groups = state_.kv.num_groups();
  const std::int32_t block = state_.kv.block_size();
  const auto running = static_cast<std::int32_t>(set().order.size());
  const bool waits = !state_.waiting.empty();
  return groups * (running + (waits ? (state_.options.token_budget + block - 1) / block : 0));
}

void PlanPass::finish() {
  state_.kv_sizer.finish(now_, growth_reserve(), plan_);
  end_stuck();
  if (plan_.has_rows()) note_end();
}

// If nothing is in flight, nothing can run or move, and a sequence lacks memory, then it already
// has all the memory and can never run again.
void PlanPass::end_stuck() {
  if (lacks_memory_ == nullptr || state_.next_committed < state_.next_step) return;
  if (!plan_.empty() || !plan_.preempted.empty() || !plan_.ended.empty()) return;
  if (state_.pager.busy()) return;  // its transfers will give blocks back
  if (lacks_memory_->state == SequenceState::kRunning) {
    state_.end_running(lacks_memory_->slot, FinishReason::kNoMemory, plan_);
    return;
  }
  const std::size_t position = state_.waiting.find(SchedulerState::place_of(*lacks_memory_));
  state_.end_waiting(position, FinishReason::kNoMemory, plan_);
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
  if (leader.computed < leader.prompt_len - 1) return true;
  // The plan that readmits the leader may copy its tail, and a fork would copy that copy.
  if (leader.tail_end == 0) return false;
  const auto& begun = plan_.assignments;
  return std::any_of(begun.begin(), begun.end(), [&](const SlotAssignment& assignment) {
    return assignment.slot == group->leader_slot;
  });
}

// Not if the prefix cache holds as many tokens, because sharing those needs no copy.
bool PlanPass::may_fork(const Sequence& sequence, const ChoiceGroup* group) const {
  if (group == nullptr || group->leader_slot < 0) return false;
  const std::int32_t shared = sequence.prompt_len - 1;
  const std::int32_t num_tokens = sequence.length();
  return state_.kv.can_fork(group->leader_slot, shared) &&
         state_.kv.match(names_of(sequence), num_tokens - 1) < shared;
}

// The length of a row with the whole prompt. Reads the prefix cache only when its answer can
// matter.
std::int32_t PlanPass::tokens_to_compute(const Sequence& sequence) const {
  const std::int32_t num_tokens = sequence.length();
  return num_tokens <= tokens_left() ? num_tokens : tokens_missing(sequence);
}

// Tokens that neither cached blocks nor a sibling choice can supply.
std::int32_t PlanPass::tokens_missing(const Sequence& sequence) const {
  const std::int32_t num_tokens = sequence.length();
  if (may_fork(sequence, state_.group_of(sequence))) return num_tokens - sequence.prompt_len + 1;
  return num_tokens - state_.kv.match(names_of(sequence), num_tokens - 1);
}

std::int32_t PlanPass::tokens_to_reserve(const Sequence& sequence, const Admission& how) const {
  switch (how.reservation) {
    case Reservation::kPrompt: break;
    case Reservation::kTurn:
      // The last token is never computed.
      return std::max(sequence.length(),
                      std::min(sequence.length() + how.growth, sequence.max_len - 1));
    case Reservation::kContext:
      if (!is_alone()) return state_.options.max_model_len;
      [[fallthrough]];
    case Reservation::kMaxTokens: return sequence.max_len - 1;  // the last is never computed
  }
  return sequence.length();
}

// Blocks that running sequences need for their next SchedulerOptions::decode_headroom tokens each.
// Computed once for a plan; each admission adds its own need.
std::int32_t PlanPass::decode_room() {
  if (decode_room_ >= 0) return decode_room_;
  decode_room_ = 0;
  for (const std::int32_t slot : set().order) decode_room_ += room_of(slot);
  return decode_room_;
}

std::int32_t PlanPass::room_of(std::int32_t slot) const {
  const std::int32_t from = std::max(set().next[at(slot)], set().prefill_end[at(slot)]);
  const std::int32_t to =
      std::min(from + state_.options.decode_headroom, set().decode_end[at(slot)]);
  return state_.kv.blocks_to_reach(slot, to);
}

// A sequence that is alone may use all blocks, because no other sequence decodes.
Headroom PlanPass::headroom(Reservation reservation) {
  Headroom room;
  room.spare_cached = state_.kv_sizer.can_grow();
  if (reservation == Reservation::kPrompt && !is_alone()) {
    room.blocks = std::max(state_.kv.watermark_blocks(), decode_room());
  }
  if (spares_unsaved_ && (reservation == Reservation::kTurn || state_.urgent != nullptr)) {
    const std::int32_t unsaved =
        std::min(state_.kv.num_unsaved(), state_.kv.num_free_cached_blocks());
    room.blocks = std::max(room.blocks, unsaved);
  }
  return room;
}

std::optional<std::int32_t> PlanPass::take_blocks(std::int32_t slot, const Sequence& sequence,
                                                  const Admission& how) {
  ChoiceGroup* const group = state_.group_of(sequence);
  const Headroom room = headroom(how.reservation);
  const std::int32_t reserved = tokens_to_reserve(sequence, how);
  if (may_fork(sequence, group)) {
    const std::int32_t shared = sequence.prompt_len - 1;
    const bool forked = state_.kv.fork(group->leader_slot, slot, shared, reserved, room, changes_);
    return forked ? std::optional(shared) : std::nullopt;
  }
  const auto cached =
      state_.kv.admit(slot, names_of(sequence), sequence.length(), room, changes_, reserved);
  if (cached && group != nullptr && group->leader_slot < 0) group->leader_slot = slot;
  return cached;
}

// Whether the sequence does not fit even alone in the maximum of KV memory.
bool PlanPass::never_fits(const Sequence& sequence, Reservation reservation) const {
  const bool known = reservation == Reservation::kPrompt || reservation == Reservation::kTurn;
  const std::int32_t tokens = known ? sequence.length() : sequence.max_len - 1;
  return state_.kv.blocks_needed(tokens) > state_.kv_sizer.most_usable_blocks();
}

bool PlanPass::try_admit(std::size_t position, const Admission& how) {
  const WaitingEntry entry = state_.waiting.at(position);
  Sequence& sequence = *entry.sequence;
  const std::int32_t slot = set().free_slots.back();
  auto cached = take_blocks(slot, sequence, how);
  if (!cached && state_.kv_sizer.stop_release()) cached = take_blocks(slot, sequence, how);
  const bool may_end_holds = is_alone() && !state_.kv_sizer.can_grow();
  if (!cached && may_end_holds && state_.kv.release_holds()) {
    cached = take_blocks(slot, sequence, how);
  }
  if (!cached) {
    if (state_.kv_sizer.can_grow()) state_.kv_sizer.want(state_.kv.last_shortage());
    lacks_memory_ = &sequence;
    if (never_fits(sequence, how.reservation)) {
      state_.end_waiting(position, FinishReason::kNoMemory, plan_);
    }
    return false;
  }
  state_.dequeue(position);
  state_.occupy(slot, entry, *cached);
  if (!sequence.request->block_owner.memory_only) state_.kv.allow_saves(slot);
  if (decode_room_ >= 0) decode_room_ += room_of(slot);
  if (sequence.num_preemptions == 0) {
    sequence.first_scheduled = now_;
    sequence.cached_prompt_tokens = std::min(*cached, sequence.prompt_len);
  }
  state_.pager.note_admitted(sequence, slot, *cached, state_.next_transfer, plan_);
  assign(entry);
  return true;
}

void PlanPass::assign(const WaitingEntry& entry) {
  const std::int32_t adapter_slot =
      entry.adapter >= 0 ? state_.adapters.acquire(entry.adapter) : -1;
  plan_.assignments.push_back({entry.sequence->slot, entry.sequence, adapter_slot});
}

// Whether blocks of the sequence come from the tier below first. A sibling choice has them all.
bool PlanPass::waits_for_blocks(Sequence& sequence, const Admission& how) {
  if (!state_.pager.has_tier() || sequence.paging != Paging::kNone) return false;
  if (may_fork(sequence, state_.group_of(sequence))) return false;
  return state_.pager.load_for(sequence, names_of(sequence), headroom(how.reservation),
                               how.rows == PromptRows::kChunks, state_.next_transfer, plan_);
}

bool PlanPass::admit_at(std::size_t position, const Admission& how) {
  if (!can_admit()) return false;
  const WaitingEntry& entry = state_.waiting.at(position);
  if (entry.order.ticket >= how.before_ticket) return false;
  if (entry.order.priority > lowest_admitted_) return false;
  Sequence& sequence = *entry.sequence;
  if (waits_for_blocks(sequence, how)) return false;
  if (how.rows == PromptRows::kWhole && tokens_to_compute(sequence) > tokens_left()) return false;
  if (scores_prompt(sequence) && score_room() == 0) return false;
  if (time_ != nullptr && !time_for(entry)) return false;
  // Loads from the back may shorten its first chunk. Only the step's first chunk fits at any
  // length.
  if (time_ != nullptr && num_chunks_ > 0 && meets_loads(sequence.paging)) return false;
  if (!try_admit(position, how)) return false;
  plan_first_row(sequence.slot);
  return true;
}

// Its blocks are promised, so the row cannot fail.
void PlanPass::plan_first_row(std::int32_t slot) {
  if (prefilling(slot)) {
    CHECK(prefill(slot, tokens_left()) == RowOutcome::kPlanned);
    return;
  }
  const std::int32_t position = set().next[at(slot)];
  CHECK(decode(slot) == RowOutcome::kPlanned);
  if (!chunks_begun_) return;
  // The chunks before it were planned without it, so it takes from their time.
  planned_.add_chunk(position, 1, true, time_->window());
  ++num_chunks_;
}

bool PlanPass::admit_next(const Admission& how) {
  while (can_admit()) {
    while (cursor_ < waiting().size() && passes_over(waiting()[cursor_])) ++cursor_;
    if (cursor_ == waiting().size()) return false;
    if (admit_at(cursor_, how)) return true;
    if (!passes_over(waiting()[cursor_])) return false;
  }
  return false;
}

void PlanPass::admit_choices(const Admission& how) {
  if (state_.choices.empty() || !can_admit()) return;
  const auto ready = [&](const WaitingEntry& entry) {
    if (passes_over(entry)) return false;
    const ChoiceGroup* const group = state_.group_of(*entry.sequence);
    return group != nullptr && group->leader_slot >= 0;
  };
  for (std::size_t i = 0; i < waiting().size();) {
    if (!ready(waiting()[i])) {
      ++i;
    } else if (!admit_at(i, how) && !passes_over(waiting()[i])) {
      return;
    }
  }
}

}  // namespace sluice
