// PlanPass: one plan in the making. Policies see the running set, the waiting queue and the token
// budget through it, and plan by its building blocks, which keep every invariant (blocks before
// rows, victims never in flight, no row beyond max_len, adapters resident) whatever the policy
// does. Rows are final once planned. Lives during one Scheduler::plan().
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>

#include "base/clock.h"
#include "scheduler/scheduler_state.h"

namespace sluice {

// How a prompt that is admitted becomes rows.
enum class PromptRows : std::uint8_t {
  kChunks,  // the first chunk is what the token budget has left
  kWhole,   // one row, or it is not admitted in this plan
};

// The blocks that admission promises a sequence. With more than its prompt it never waits for a
// block later and is never preempted. A sequence that is alone is promised no more than its own
// max_tokens.
enum class Reservation : std::uint8_t {
  kPrompt,     // what is known of it now; admission leaves headroom for decodes
  kMaxTokens,  // its prompt and max_tokens
  kContext,    // max_model_len, whatever it asks for
};

struct Admission {
  PromptRows rows = PromptRows::kChunks;
  Reservation reservation = Reservation::kPrompt;
  // Only sequences whose ticket is below it.
  std::uint64_t before_ticket = std::numeric_limits<std::uint64_t>::max();
};

enum class RowOutcome : std::uint8_t {
  kPlanned,
  kWaits,  // no memory or no time now; keeps its blocks and its place
};

class PlanPass {
 public:
  PlanPass(SchedulerState& state, TimePoint now, BatchPlan& plan);

  TimePoint now() const { return now_; }

  // Waiting sequences in service order; an entry without a sequence is empty.
  std::span<const WaitingEntry> waiting() const { return state_.waiting.entries(); }
  // The ticket that the next sequence to arrive will get.
  std::uint64_t next_ticket() const { return state_.next_ticket; }
  // Slots of running sequences in service order (priority, arrival). Planning a row may preempt
  // sequences behind it in this order, never in front of it: walk by index.
  std::span<const std::int32_t> running() const { return state_.running.order; }
  // Tokens of the budget that are left; 0 when decodes exceed it, or when the time budget
  // leaves no time for one more chunk.
  std::int32_t tokens_left() const {
    return std::max(0, token_limit_ - static_cast<std::int32_t>(plan_.token_ids.size()));
  }
  // Rows planned so far.
  std::span<const PlanRow> rows() const { return plan_.rows; }
  // A sequence was preempted or had to wait for blocks in this plan.
  bool short_of_memory() const { return short_of_memory_; }

  // A sequence waits for blocks of one in flight, which sits this plan out so that it can be
  // preempted in the next plan.
  bool holds_victim() const { return holds_victim_; }

  // A prompt (after preemption: with its outputs) is not fully planned yet and may go on.
  bool prefilling(std::int32_t slot) const {
    return set().next[at(slot)] < set().prefill_end[at(slot)] && set().held[at(slot)] == 0;
  }
  // The prompt is planned, one more token cannot exceed max_len, and where it stands is known; in
  // a pipeline of several micro-batches also that token itself.
  bool decode_ready(std::int32_t slot) const {
    return set().next[at(slot)] >= set().prefill_end[at(slot)] &&
           set().next[at(slot)] < set().decode_end[at(slot)] && set().held[at(slot)] == 0 &&
           set().undecided[at(slot)] == 0 && (overlap_ || idle(slot));
  }
  // A token behind the prompt is planned or computed.
  bool decoding(std::int32_t slot) const {
    return set().next[at(slot)] > set().prefill_end[at(slot)];
  }
  // No step in flight names the slot: its tokens are all known, and it may be preempted.
  bool idle(std::int32_t slot) const { return set().in_flight[at(slot)] == 0; }
  const Sequence& sequence(std::int32_t slot) const { return *set().sequence[at(slot)]; }

  // Plans the next token of a sequence. REQUIRES: decode_ready(slot).
  RowOutcome decode(std::int32_t slot) {
    const std::int32_t position = set().next[at(slot)];
    if (!state_.kv.extend(slot, position, 1, changes_)) [[unlikely]] {
      const RowOutcome outcome = make_room(slot, 1);
      if (outcome != RowOutcome::kPlanned) return outcome;
    }
    append_decode(slot, position);
    return RowOutcome::kPlanned;
  }

  // Plans the next token and behind it guesses, which the executor accepts or not: logits at every
  // position, 1 to guesses.size() + 1 tokens come back. As many guesses as max_len allows are used.
  // Nothing more is planned for the slot before the commit. REQUIRES: decode_ready, idle(slot).
  RowOutcome decode_guessed(std::int32_t slot, std::span<const TokenId> guesses);

  // Plans the next chunk, of at most max_tokens and, with a time budget, of what the time allows.
  // REQUIRES: prefilling(slot), max_tokens > 0.
  RowOutcome prefill(std::int32_t slot, std::int32_t max_tokens);

  // Plans a decode for each running sequence that is ready, in service order. The token budget does
  // not limit decodes.
  void decode_all();

  // Plans the next chunk of each running prompt, in service order, while the budget lasts.
  void prefill_all();

  // Both at once, in service order: a decode or the next chunk for each that has one, while the
  // budget lasts. Here it limits decodes too.
  void advance_all();

  // The entry is empty, its adapter may not be used now, or it is a choice of a request (n > 1)
  // whose leader has not computed the prompt: others go first, and it holds up none of them.
  bool passes_over(const WaitingEntry& entry) const {
    if (entry.sequence == nullptr) return true;
    if (entry.adapter >= 0 && !state_.adapters.ready(entry.adapter)) return true;
    return waits_for_leader(entry);
  }

  // Slot, budget and the micro-batch's share are there; memory is not checked.
  bool can_admit() const {
    return admits_ && tokens_left() > 0 && !set().free_slots.empty() &&
           plan_.rows.size() < max_rows_;
  }

  // Admits one waiting sequence and plans the first row of its prompt. False, and nothing changes,
  // when slot, budget, share of the micro-batch or memory are missing. A sequence that needs more
  // memory than there may ever be is ended: also false, and the entry is empty then.
  // REQUIRES: !passes_over(waiting()[position]).
  bool admit_at(std::size_t position, const Admission& how);

  // Admits the first waiting sequence that is not passed over. False when there is none or it
  // cannot be admitted: no sequence behind it overtakes it.
  bool admit_next(const Admission& how);
  void admit_all(const Admission& how) {
    while (admit_next(how)) {
    }
  }

  // Admits choices whose leader runs and has computed their prompt, and no other sequence.
  void admit_choices(const Admission& how);

  // The clients' counters, for policies that admit by them.
  ClientLedger& clients() { return state_.clients; }
  std::int64_t served(std::int32_t client) const { return state_.clients.served(client); }
  std::int32_t client_of(std::int32_t slot) const { return set().client[at(slot)]; }

  // Before the policy: preempts the newest while more blocks are held than the KV limit allows, and
  // ends a sequence that cannot run within it even alone.
  void keep_kv_limit();
  // After the policy: asks for KV memory or returns it; ends a sequence that can never go on; notes
  // when the step should end.
  void finish();

 private:
  static std::size_t at(std::int32_t slot) { return RunningSet::index(slot); }
  RunningSet& set() { return state_.running; }
  const RunningSet& set() const { return state_.running; }

  bool waits_for_leader(const WaitingEntry& entry) const;
  std::int32_t newest_idle(std::int32_t before_slot) const;
  void hold_newest();
  std::int32_t growth_reserve() const;
  void end_stuck();
  void note_end();
  void append_decode(std::int32_t slot, std::int32_t position);
  void append_chunk(std::int32_t slot, std::int32_t count);
  TimePoint step_start() const;
  void sum_up_decodes();
  void begin_chunks();
  std::int32_t chunk_within_time(std::int32_t context, std::int32_t wanted, bool ends_prompt);
  bool time_for(const WaitingEntry& entry);
  PlanRow& append_row(std::int32_t slot, std::int32_t count);
  RowOutcome make_room(std::int32_t slot, std::int32_t count);
  bool may_fork(const Sequence& sequence, const ChoiceGroup* group) const;
  std::int32_t tokens_to_compute(const Sequence& sequence) const;
  std::int32_t tokens_missing(const Sequence& sequence) const;
  bool try_admit(std::size_t position, Reservation reservation);
  Headroom headroom(Reservation reservation);
  std::int32_t decode_room();
  std::int32_t room_of(std::int32_t slot) const;
  bool never_fits(const Sequence& sequence, Reservation reservation) const;
  std::int32_t tokens_to_reserve(const Sequence& sequence, Reservation reservation) const;
  std::optional<std::int32_t> take_blocks(std::int32_t slot, const Sequence& sequence,
                                          Reservation reservation);
  // No other sequence runs or holds blocks.
  bool is_alone() const { return set().order.empty() && set().num_draining == 0; }

  SchedulerState& state_;
  TimePoint now_;
  BatchPlan& plan_;
  BlockChanges changes_;
  std::size_t cursor_ = 0;  // in the waiting queue: those before it wait for their leaders
  bool short_of_memory_ = false;
  bool holds_victim_ = false;
  bool admits_ = true;
  // Waits for blocks that neither growth nor preemption can give in this plan; null: none does.
  const Sequence* lacks_memory_ = nullptr;
  std::int32_t decode_room_ = -1;  // -1: not computed yet
  std::int32_t token_limit_;       // of the step; 0 once its time is spent

  // With a time budget, from the first chunk on: what is planned, and what it may take.
  const TimeBudget* time_ = nullptr;
  bool chunks_begun_ = false;
  std::int32_t num_chunks_ = 0;
  StepFeatures planned_;
  double limit_ns_ = 0;

  // The limits of one of several micro-batches; with one there are none.
  bool overlap_;  // a decode may be planned behind a step in flight
  std::size_t max_rows_;
  std::size_t max_running_rows_;  // of sequences that ran before
};

// A row of `count` tokens behind what is planned already; its tokens and logits are the caller's.
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
