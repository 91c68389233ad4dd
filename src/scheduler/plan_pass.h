// PlanPass: builds one BatchPlan. A policy reads the running set, the waiting queue and the token
// budget through it, and plans by calling its functions. The functions keep every invariant,
// whatever the policy does: a row has blocks before it is planned, a victim of preemption is never
// in flight, no row exceeds max_len, and a row's adapter is resident. Rows are final once planned.
// Owner: Scheduler::plan(), for one call. Threads: the engine's. Allocation: only the tokens of a
// sequence that gets its first slot.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>

#include "base/clock.h"
#include "scheduler/scheduler_state.h"

namespace sluice {

// How the prompt of an admitted sequence is split into rows.
enum class PromptRows : std::uint8_t {
  kChunks,  // chunks; the first one takes the rest of the token budget
  kWhole,   // one row; a prompt that does not fit is not admitted in this plan
};

// The blocks that admission promises to a sequence. A sequence that is promised more than its
// prompt never waits for a block later and is preempted only by a higher priority. A sequence that
// is alone is promised blocks for its prompt and max_tokens at most.
enum class Reservation : std::uint8_t {
  kPrompt,     // its known tokens; admission leaves headroom for decodes
  kMaxTokens,  // its prompt and max_tokens
  kTurn,       // its known tokens and Admission::growth more; admission leaves no headroom
  kContext,    // max_model_len tokens
};

struct Admission {
  PromptRows rows = PromptRows::kChunks;
  Reservation reservation = Reservation::kPrompt;
  std::int32_t growth = 0;  // with kTurn: tokens
  // Admits only sequences with a lower ticket.
  std::uint64_t before_ticket = std::numeric_limits<std::uint64_t>::max();
};

enum class RowOutcome : std::uint8_t {
  kPlanned,
  kWaits,  // no memory or no time now; the sequence keeps its blocks and its place
};

class PlanPass {
 public:
  PlanPass(SchedulerState& state, TimePoint now, const ResourceView& resources, BatchPlan& plan);

  TimePoint now() const { return now_; }

  // Waiting sequences in service order; an entry without a sequence is empty.
  std::span<const WaitingEntry> waiting() const { return state_.waiting.entries(); }
  // The ticket that the next sequence to arrive will get.
  std::uint64_t next_ticket() const { return state_.next_ticket; }
  // Slots of running sequences in service order (priority, arrival). Planning a row may preempt
  // sequences after it in this order, never before it, so callers iterate by index.
  std::span<const std::int32_t> running() const { return state_.running.order; }
  // Tokens left of the token budget. 0 when decodes exceed the budget or when the time budget has
  // no time for one more chunk.
  std::int32_t tokens_left() const {
    return std::max(0, token_limit_ - static_cast<std::int32_t>(plan_.token_ids.size()));
  }
  // Rows planned so far.
  std::span<const PlanRow> rows() const { return plan_.rows; }
  // Whether this plan preempted a sequence or left one waiting for blocks.
  bool short_of_memory() const { return short_of_memory_; }

  // Whether a sequence waits for the blocks of a sequence in flight (the victim). The victim gets
  // no row in this plan, so that the next plan can preempt it.
  bool holds_victim() const { return holds_victim_; }

  // Whether a part of the prompt is not planned yet and may be planned now. After a preemption the
  // outputs so far count as prompt.
  bool prefilling(std::int32_t slot) const {
    return set().next[at(slot)] < set().prefill_end[at(slot)] && set().held[at(slot)] == 0;
  }
  // Whether the next token can be planned: the whole prompt is planned, one more token does not
  // exceed max_len, and the next position is known. With several micro-batches, the id of the token
  // before it must be known too.
  bool decode_ready(std::int32_t slot) const {
    return set().next[at(slot)] >= set().prefill_end[at(slot)] &&
           set().next[at(slot)] < set().decode_end[at(slot)] && set().held[at(slot)] == 0 &&
           set().undecided[at(slot)] == 0 && (overlap_ || idle(slot));
  }
  // Whether a token after the prompt is planned or computed.
  bool decoding(std::int32_t slot) const {
    return set().next[at(slot)] > set().prefill_end[at(slot)];
  }
  // Whether no step in flight uses the slot: all its tokens are known, and it may be preempted.
  bool idle(std::int32_t slot) const { return set().in_flight[at(slot)] == 0; }
  const Sequence& sequence(std::int32_t slot) const { return *set().sequence[at(slot)]; }

  // Plans the next token of a sequence. If tokens that were forced wait to be computed, the row has
  // them all, as far as the budget goes: it leaves one token for each running sequence.
  // REQUIRES: decode_ready(slot).
  RowOutcome decode(std::int32_t slot) {
    const std::int32_t position = set().next[at(slot)];
    if (set().known[at(slot)] > position + 1) [[unlikely]]
      return decode_known(slot);
    if (!state_.kv.extend(slot, position, 1, changes_)) [[unlikely]] {
      const RowOutcome outcome = make_room(slot, 1);
      if (outcome != RowOutcome::kPlanned) return outcome;
    }
    append_decode(slot, position);
    return RowOutcome::kPlanned;
  }

  // Plans the next token followed by guessed tokens, which the executor accepts or rejects. Logits
  // are wanted at every position, and the commit returns 1 to guesses.size() + 1 tokens. Guesses
  // beyond max_len are not used, and none are while forced tokens wait to be computed. The slot
  // gets no other row before the commit. REQUIRES: decode_ready(slot), idle(slot).
  RowOutcome decode_guessed(std::int32_t slot, std::span<const TokenId> guesses);

  // Plans the next chunk of at most max_tokens tokens, fewer when the time budget allows fewer.
  // REQUIRES: prefilling(slot), max_tokens > 0.
  RowOutcome prefill(std::int32_t slot, std::int32_t max_tokens);

  // Plans a decode for each running sequence that is ready, in service order. The token budget does
  // not limit decodes.
  void decode_all();

  // Plans the next chunk of each running prompt, in service order, until the token budget is used
  // up.
  void prefill_all();

  // Plans a decode or the next chunk for each running sequence that has one, in service order,
  // until the token budget is used up. Here the budget limits decodes too.
  void advance_all();

  // Whether admission skips the entry: it is empty, a streamed sequence waits that comes before it,
  // its adapter may not be used now, its blocks are being loaded from the tier below, or it is a
  // choice of a request (n > 1) whose leader has not computed the prompt. Later entries may be
  // admitted before it.
  bool passes_over(const WaitingEntry& entry) const {
    if (entry.sequence == nullptr) return true;
    if (waiting_stream_ && *waiting_stream_ < entry.order) return true;
    if (entry.adapter >= 0 && !state_.adapters.ready(entry.adapter)) return true;
    const Paging paging = entry.sequence->paging;
    if (paging == Paging::kLoading || paging == Paging::kFollowing) return true;
    return waits_for_leader(entry);
  }

  // Whether a slot, tokens of the budget and a place in the micro-batch are free. Memory is not
  // checked.
  bool can_admit() const {
    return admits_ && tokens_left() > 0 && !set().free_slots.empty() &&
           plan_.rows.size() < max_rows_;
  }

  // Admits one waiting sequence and plans its first row: a chunk of its prompt, or a decode if it
  // returns and lacks one token. Returns false without a
  // change when there is no slot, budget, place in the micro-batch or memory. If the tier below has
  // blocks of it, starts their loads and returns false; the entry is passed over from then on. Also
  // returns false when the sequence needs more memory than there can ever be; then the sequence is
  // ended and its entry empty. REQUIRES: !passes_over(waiting()[position]).
  bool admit_at(std::size_t position, const Admission& how);

  // Admits the first waiting sequence that is not passed over. Returns false when there is none or
  // when it cannot be admitted; no later sequence overtakes it.
  bool admit_next(const Admission& how);
  void admit_all(const Admission& how) {
    while (admit_next(how)) {
    }
  }

  // Admits only choices whose leader is running and has computed their prompt.
  void admit_choices(const Admission& how);

  // For a policy that hands out turns (policy_fair.h).
  //
  // Whether a sequence waits for blocks or for a slot, and memory cannot grow.
  bool lacks_room() const;
  // Whether the plan has room for one more row of a sequence that ran before it.
  bool row_left() const { return plan_.rows.size() < max_running_rows_; }
  std::int32_t turn_tokens() const { return state_.options.turn_tokens; }
  std::int32_t block_size() const { return state_.kv.block_size(); }
  std::int32_t available_blocks() const { return state_.kv.num_available_blocks(); }
  std::int32_t free_slots() const { return static_cast<std::int32_t>(set().free_slots.size()); }
  std::int32_t next(std::int32_t slot) const { return set().next[at(slot)]; }
  std::int32_t prefill_end(std::int32_t slot) const { return set().prefill_end[at(slot)]; }
  std::int32_t decode_end(std::int32_t slot) const { return set().decode_end[at(slot)]; }
  Turn& turn(std::int32_t slot) { return set().sequence[at(slot)]->turn; }
  // The length of a row with the whole prompt of a waiting sequence, at most. It reads the prefix
  // cache only if the prompt is longer than tokens_left().
  std::int32_t tokens_to_compute(const Sequence& sequence) const;
  // Available blocks that the admission of a waiting sequence takes or promises, at most.
  std::int64_t blocks_to_admit(const Sequence& sequence, const Admission& how) const;
  // Available blocks that it will yet take when its loads have ended. REQUIRES: Paging::kLoading.
  std::int64_t blocks_after_loads(const Sequence& sequence, const Admission& how) const;
  // Promises blocks so that the slot's first `tokens` tokens never wait for one, and leaves `spare`
  // blocks. False without a change when memory is short.
  bool promise(std::int32_t slot, std::int32_t tokens, std::int32_t spare);
  // The slot gets no row in this plan.
  void hold(std::int32_t slot) { set().held[at(slot)] = 1; }
  // Preempts a sequence, which waits then. REQUIRES: idle(slot), no row in this plan.
  Sequence& displace(std::int32_t slot) {
    Sequence& sequence = *set().sequence[at(slot)];
    state_.preempt(slot, plan_);
    return sequence;
  }
  // Starts saves of unused blocks before anything can take them. While saves are under way,
  // admissions with kTurn, or after room was made for a priority, take no block that the tier below
  // has not.
  void save_unused();
  // The position of a waiting sequence, or waiting().size().
  std::size_t find_waiting(const Sequence& sequence) const {
    return state_.waiting.find(SchedulerState::place_of(sequence));
  }

  // The service counters of clients, for policies that admit by them.
  ClientLedger& clients() { return state_.clients; }
  double served(std::int32_t client) const { return state_.clients.served(client); }
  std::int32_t client_of(std::int32_t slot) const { return set().client[at(slot)]; }

  // Called before the policy. If a waiting sequence lacks a slot or blocks, which sequences of
  // lower priority have, preempts as many of those as it needs, or none. Until it is admitted no
  // sequence of lower priority is, and for at most kMostSaving the blocks of those preempted are
  // saved to the tier before it takes them.
  static constexpr Duration kMostSaving = std::chrono::seconds(1);
  void make_room_for_priority(Reservation reservation);
  // Called before the policy. Preempts the newest sequence if the older prompt that the last plan
  // left without a chunk still lacks memory. If it is in flight, it gets no row in this plan.
  void make_room_for_starved();
  // Called before the policy. Preempts the newest sequences while more blocks are held than the KV
  // limit allows. Ends a sequence that cannot run within the limit even alone.
  void keep_kv_limit();
  // Called before the policy. Moves blocks of a streamed sequence to the prefix cache.
  void keep_streamed();
  // Called before the policy. Gives the first sequence of the lane (stream_lane.h) its slot and
  // blocks, if they are there. Takes them from one that keeps other adapters waiting.
  void admit_stream();
  // Whether this step is the streamed sequence's: then the policy plans nothing.
  bool stream_is_due() const;
  // Plans the streamed sequence's row, if there is one that runs. REQUIRES: the plan has no row.
  void plan_stream();
  // The tokens of its prompt that this row computes and no earlier one did.
  std::int32_t new_streamed_tokens() const { return new_streamed_tokens_; }
  // Called after the policy. Asks for KV memory or returns it, ends a sequence that can never run
  // again, and records when the step should end.
  void finish();

 private:
  static std::size_t at(std::int32_t slot) { return RunningSet::index(slot); }
  RunningSet& set() { return state_.running; }
  const RunningSet& set() const { return state_.running; }

  bool waits_for_leader(const WaitingEntry& entry) const;
  std::int32_t newest_idle(std::int32_t before_slot) const;
  Sequence* most_urgent() const;
  void drop_urgency_of_waits();
  std::int64_t shortage(const Sequence& sequence, const Admission& how, std::int64_t coming);
  void displace_for(Sequence& urgent, const Admission& how);
  void hold_newest();
  bool owes_its_adapter(std::int32_t slot) const;
  bool take_window(const Sequence& sequence);
  Headroom window_headroom();
  bool has_file(const Sequence& sequence);
  bool has_fetched(Sequence& sequence);
  void begin_stream(const WaitingEntry& entry);
  std::int32_t growth_reserve() const;
  void end_stuck();
  void note_end();
  void append_decode(std::int32_t slot, std::int32_t position);
  RowOutcome decode_known(std::int32_t slot);
  std::int32_t meet_loads(std::int32_t slot);
  RowOutcome make_room_beside_loads(std::int32_t slot, std::int32_t count);
  void append_chunk(std::int32_t slot, std::int32_t count);
  void append_scored(std::int32_t slot, std::int32_t count, PlanRow& row);
  std::int32_t within_scored(std::int32_t slot, std::int32_t count) const;
  // Positions of prompts that the plan may yet score.
  std::int32_t score_room() const {
    return state_.options.max_scored - static_cast<std::int32_t>(plan_.scored.size());
  }
  TimePoint step_start() const;
  void sum_up_decodes();
  void begin_chunks();
  void limit_by_decodes();
  void limit_by_slack();
  std::int32_t chunk_within_time(std::int32_t context, std::int32_t wanted, bool ends_prompt);
  bool time_for(const WaitingEntry& entry);
  PlanRow& append_row(std::int32_t slot, std::int32_t count);
  RowOutcome make_room(std::int32_t slot, std::int32_t count);
  bool may_fork(const Sequence& sequence, const ChoiceGroup* group) const;
  std::int32_t tokens_missing(const Sequence& sequence) const;
  bool waits_for_blocks(Sequence& sequence, const Admission& how);
  bool try_admit(std::size_t position, const Admission& how);
  // Tells the executor of a sequence that has got its slot.
  void assign(const WaitingEntry& entry);
  void plan_first_row(std::int32_t slot);
  Headroom headroom(Reservation reservation);
  std::int32_t decode_room();
  std::int32_t room_of(std::int32_t slot) const;
  bool never_fits(const Sequence& sequence, Reservation reservation) const;
  std::int32_t tokens_to_reserve(const Sequence& sequence, const Admission& how) const;
  std::optional<std::int32_t> take_blocks(std::int32_t slot, const Sequence& sequence,
                                          const Admission& how);
  // Whether no other sequence runs or holds blocks.
  bool is_alone() const { return set().order.empty() && set().num_draining == 0; }

  SchedulerState& state_;
  TimePoint now_;
  BatchPlan& plan_;
  BlockChanges changes_;
  std::size_t cursor_ = 0;  // in the waiting queue: all entries before it wait for their leaders
  bool short_of_memory_ = false;
  bool holds_victim_ = false;
  bool admits_ = true;
  bool tier_accepts_saves_;
  bool spares_unsaved_ = false;  // see save_unused()
  // Sequences with a higher number are not admitted: room was made for this priority.
  std::int32_t lowest_admitted_ = std::numeric_limits<std::int32_t>::max();
  // The place of the streamed sequence that waits to be admitted next; later ones are passed over.
  std::optional<ServiceOrder> waiting_stream_;
  std::int32_t new_streamed_tokens_ = 0;
  // The sequence that waits for blocks which neither growth nor preemption can supply in this plan;
  // null: there is none.
  const Sequence* lacks_memory_ = nullptr;
  std::int32_t decode_room_ = -1;  // -1: not computed yet
  std::int32_t token_limit_;       // of the step; 0 once its time is spent

  // With a time budget, from the first chunk on: the planned rows and their time limit.
  const TimeBudget* time_ = nullptr;
  bool chunks_begun_ = false;
  std::int32_t num_chunks_ = 0;
  StepFeatures planned_;
  double limit_ns_ = 0;

  // Limits of a micro-batch; a single micro-batch has none.
  bool overlap_;  // a decode may be planned while a step with its sequence is in flight
  std::size_t max_rows_;
  std::size_t max_running_rows_;  // of sequences that were running before this plan
};

// Appends a row for the slot's next `count` tokens. The caller adds its tokens and logits.
inline PlanRow& PlanPass::append_row(std::int32_t slot, std::int32_t count) {
  RunningSet& r = set();
  const std::size_t s = at(slot);
  PlanRow row;
  row.sequence = r.id[s];
  row.slot = slot;
  row.context_len = r.next[s];
  row.query_len = count;
  row.first_token = static_cast<std::int32_t>(plan_.token_ids.size());
  row.first_logit = static_cast<std::int32_t>(plan_.logit_positions.size());
  r.next[s] += count;
  ++r.in_flight[s];
  r.sequence[s]->in_flight += count;
  return plan_.rows.emplace_back(row);
}

inline void PlanPass::append_decode(std::int32_t slot, std::int32_t position) {
  const std::size_t s = at(slot);
  PlanRow& row = append_row(slot, 1);
  row.num_logits = 1;
  row.output_index = position + 1 - set().prompt_len[s];
  plan_.token_ids.push_back(position < set().known[s] ? set().last_token[s] : kTokenFromLastStep);
  plan_.logit_positions.push_back(0);
}

}  // namespace sluice
