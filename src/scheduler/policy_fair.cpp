#include "scheduler/policy_fair.h"

#include <algorithm>
#include <tuple>

#include "scheduler/plan_pass.h"

namespace sluice {
namespace {

// A return may take this share of the turn that follows it.
constexpr int kPagingShare = 10;

// Newcomers that begin between two returners, while both wait.
constexpr std::int32_t kNewcomersPerReturner = 3;

std::int32_t to_border(std::int32_t position, std::int32_t block) {
  return (position + block - 1) / block * block;
}

template <class T, class One>
bool contains(const std::vector<T>& all, const One& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

bool is_newcomer(const Sequence& sequence) { return sequence.output_len() == 0; }

// The tokens that a sequence was served in contention, those of its turn included.
std::int64_t service_until(const Turn& turn, std::int32_t position) {
  return turn.served + (turn.begin >= 0 ? std::max(0, position - turn.begin) : 0);
}

std::int64_t service_of(const PlanPass& pass, std::int32_t slot) {
  return service_until(pass.sequence(slot).turn, pass.next(slot));
}

// A sequence that was preempted in its turn keeps the turn's fields until it is chosen again.
std::int64_t service_of(const Sequence& waiting) {
  return service_until(waiting.turn, waiting.length() - 1);
}

// The position of the first decode. The last token of a returner is not computed yet.
std::int32_t first_decode(const Sequence& sequence) {
  return sequence.length() - (is_newcomer(sequence) ? 0 : 1);
}

std::int32_t turn_end(const PlanPass& pass, const Sequence& sequence) {
  return to_border(first_decode(sequence) + pass.turn_tokens(), pass.block_size());
}

Admission turn_admission(const PlanPass& pass, const Sequence& sequence) {
  const std::int32_t growth = turn_end(pass, sequence) - sequence.length();
  return {.reservation = Reservation::kTurn, .growth = std::max(0, growth)};
}

}  // namespace

void FairPolicy::plan(PlanPass& pass) {
  const auto waits = [](const WaitingEntry& entry) { return entry.sequence != nullptr; };
  const auto waiting = pass.waiting();
  contended_ = contended_ && std::any_of(waiting.begin(), waiting.end(), waits);
  if (contended_) {
    plan_turns(pass);
  } else {
    pass.decode_all();
    pass.prefill_all();
    if (!pass.short_of_memory()) pass.admit_all({});
    if (pass.lacks_room()) begin_contention(pass);
  }
  charge(pass);
}

// The turns of streams are over at the next border: what they have had, no other sequence lacked. A
// sequence with less than a turn behind it has a whole one, if there is memory for it.
void FairPolicy::begin_contention(PlanPass& pass) {
  contended_ = true;
  newcomers_in_row_ = 0;
  for (const std::int32_t slot : pass.running()) {
    const std::int32_t prompt_end = pass.prefill_end(slot);
    const std::int32_t from = std::max(pass.next(slot), prompt_end);
    Turn& turn = pass.turn(slot);
    turn = {.begin = from, .end = to_border(from, pass.block_size())};
    const std::int32_t whole = to_border(prompt_end + pass.turn_tokens(), pass.block_size());
    if (whole <= turn.end) continue;
    if (pass.promise(slot, std::min(whole, pass.decode_end(slot)), 0)) turn.end = whole;
  }
  for (const WaitingEntry& entry : pass.waiting()) {
    if (entry.sequence != nullptr) entry.sequence->turn = {};
  }
}

void FairPolicy::plan_turns(PlanPass& pass) {
  find_due(pass);
  choose(pass);
  renew(pass);
  pass.save_unused();
  pass.decode_all();
  prefill_least_first(pass);
  admit_chosen(pass);
}

// Finds the turns that are over. A sequence whose prompt is being computed keeps its turn.
void FairPolicy::find_due(PlanPass& pass) {
  due_.clear();
  for (const std::int32_t slot : pass.running()) {
    Turn& turn = pass.turn(slot);
    if (turn.begin < 0 || pass.next(slot) < pass.prefill_end(slot)) continue;
    if (!turn.back) turn.back = pass.now();
    if (pass.next(slot) < turn.end || pass.next(slot) >= pass.decode_end(slot)) continue;
    const Duration returned = *turn.back - turn.chosen.value_or(*turn.back);
    const bool paid = pass.now() - *turn.back >= (kPagingShare - 1) * returned;
    due_.push_back({slot, paid, false});
  }
}

// Chooses the waiting sequences whose turn begins, and displaces what stands in their way.
void FairPolicy::choose(PlanPass& pass) {
  chosen_.clear();
  displaced_.clear();
  std::int64_t taken = 0;
  for (const WaitingEntry& entry : pass.waiting()) {
    if (entry.sequence == nullptr || entry.sequence->paging != Paging::kLoading) continue;
    const Admission how = turn_admission(pass, *entry.sequence);
    taken += std::max<std::int64_t>(0, pass.blocks_after_loads(*entry.sequence, how));
  }
  reserved_ = static_cast<std::int32_t>(taken);
  // Room was made for a running prompt. The sequence that yielded would take it back.
  if (pass.short_of_memory()) return;
  // Spares a step with nothing to hand out the look at all that wait.
  const bool full = pass.free_slots() == 0 || pass.available_blocks() <= taken;
  if (full && due_.empty() && !pass.running().empty()) return;
  std::int32_t prompt_tokens =
      pass.tokens_left() - static_cast<std::int32_t>(pass.running().size());
  while (Sequence* const next = next_choice(pass)) {
    if (is_newcomer(*next) && prompt_tokens <= 0) break;
    const WaitingEntry entry = pass.waiting()[pass.find_waiting(*next)];
    const std::int64_t needed = pass.blocks_to_admit(*next, turn_admission(pass, *next));
    const auto slots = static_cast<std::int32_t>(chosen_.size()) + 1;
    if (!make_room(pass, entry, taken + needed, slots)) {
      // With nothing running, only admission can tell whether it will ever fit.
      if (pass.running().empty() && chosen_.empty()) chosen_.push_back(next);
      break;
    }
    taken += needed;
    chosen_.push_back(next);
    if (!next->turn.chosen) next->turn.chosen = pass.now();
    if (is_newcomer(*next)) prompt_tokens -= next->length();
  }
  reserved_ = static_cast<std::int32_t>(taken);
}

// The next one that is not chosen yet. Null: none waits.
Sequence* FairPolicy::next_choice(PlanPass& pass) {
  const Best best = best_waiting(pass);
  Sequence* const newcomer = best.newcomer == nullptr ? nullptr : best.newcomer->sequence;
  Sequence* const returner = best.returner == nullptr ? nullptr : best.returner->sequence;
  if (newcomer == nullptr || returner == nullptr) return newcomer ? newcomer : returner;
  if (awaits_slot_loaded(returner->paging)) return returner;
  const std::int32_t priorities[] = {newcomer->request->priority, returner->request->priority};
  if (priorities[0] != priorities[1]) return priorities[0] < priorities[1] ? newcomer : returner;
  std::int32_t in_row = newcomers_in_row_;
  for (const Sequence* const each : chosen_) in_row = is_newcomer(*each) ? in_row + 1 : 0;
  return in_row < kNewcomersPerReturner ? newcomer : returner;
}

FairPolicy::Best FairPolicy::best_waiting(PlanPass& pass) const {
  Best best;
  for (const WaitingEntry& entry : pass.waiting()) {
    if (pass.passes_over(entry)) continue;
    const WaitingEntry*& first = is_newcomer(*entry.sequence) ? best.newcomer : best.returner;
    if (first != nullptr && !goes_before(pass, entry, *first)) continue;
    if (contains(chosen_, entry.sequence) || contains(displaced_, entry.sequence)) continue;
    first = &entry;
  }
  return best;
}

// Both are newcomers, or neither is.
bool FairPolicy::goes_before(PlanPass& pass, const WaitingEntry& a, const WaitingEntry& b) const {
  const auto place = [&](const WaitingEntry& entry) {
    const bool loaded = awaits_slot_loaded(entry.sequence->paging);
    const std::int64_t service = is_newcomer(*entry.sequence) ? 0 : service_of(*entry.sequence);
    return std::tuple(!loaded, entry.order.priority, pass.served(entry.client), service,
                      entry.order.ticket);
  };
  return place(a) < place(b);
}

// Displaces turns that are over until `blocks` are available and `slots` are free. False: there are
// too few that the claim is better than; what was displaced stays so.
bool FairPolicy::make_room(PlanPass& pass, const WaitingEntry& claim, std::int64_t blocks,
                           std::int32_t slots) {
  while (pass.available_blocks() < blocks || pass.free_slots() < slots) {
    Due* const due = weakest_due(pass, &claim);
    if (due == nullptr || !displace(pass, *due)) return false;
  }
  return true;
}

// The turn that is over with the weakest claim to go on, among those that the claim is better than.
FairPolicy::Due* FairPolicy::weakest_due(PlanPass& pass, const WaitingEntry* claim) {
  Due* weakest = nullptr;
  for (Due& due : due_) {
    if (due.over) continue;
    if (claim != nullptr && (!due.displaceable || !has_claim(pass, *claim, due.slot))) continue;
    if (weakest == nullptr || weaker(pass, due.slot, weakest->slot)) weakest = &due;
  }
  return weakest;
}

bool FairPolicy::weaker(PlanPass& pass, std::int32_t a, std::int32_t b) const {
  const auto place = [&](std::int32_t slot) {
    const Sequence& sequence = pass.sequence(slot);
    return std::tuple(sequence.request->priority, pass.served(pass.client_of(slot)),
                      service_of(pass, slot), sequence.ticket);
  };
  return place(a) > place(b);
}

// Whether a waiting sequence comes before one whose turn is over. Among nearly equal ones the
// running one goes on. A newcomer waits behind its own client's streams only until their turns end.
bool FairPolicy::has_claim(PlanPass& pass, const WaitingEntry& waiting, std::int32_t slot) const {
  const Sequence& running = pass.sequence(slot);
  const Sequence& other = *waiting.sequence;
  if (other.request->priority != running.request->priority) {
    return other.request->priority < running.request->priority;
  }
  const std::int32_t client = pass.client_of(slot);
  if (waiting.client == client) {
    return is_newcomer(other) || service_of(other) < service_of(pass, slot);
  }
  const std::int64_t turn = is_newcomer(other) ? weights_.output * pass.turn_tokens() : 0;
  return pass.served(waiting.client) < pass.served(client) + static_cast<double>(turn);
}

// Prolongs the turns that go on, the strongest first, by a block each.
void FairPolicy::renew(PlanPass& pass) {
  std::sort(due_.begin(), due_.end(), [&](const Due& a, const Due& b) {
    return !a.over && (b.over || weaker(pass, b.slot, a.slot));
  });
  for (std::size_t i = 0; i < due_.size() && !due_[i].over; ++i) {
    const std::int32_t slot = due_[i].slot;
    const std::int32_t end = pass.turn(slot).end + pass.block_size();
    while (!due_[i].over) {
      if (pass.promise(slot, std::min(end, pass.decode_end(slot)), reserved_)) {
        pass.turn(slot).end = end;
        due_[i].over = true;
      } else if (pass.running().size() == 1) {
        return;  // it is alone: decode() makes room, or ends it
      } else if (!displace(pass, *weakest_due(pass, nullptr)) && !due_[i].over) {
        pass.hold(slot);  // the next plan has the blocks
        due_[i].over = true;
      }
    }
  }
}

// False: it is in flight and gets no row in this plan, so that the next one can displace it.
bool FairPolicy::displace(PlanPass& pass, Due& due) {
  due.over = true;
  if (!pass.idle(due.slot)) {
    pass.hold(due.slot);
    return false;
  }
  Sequence& sequence = pass.displace(due.slot);
  displaced_.push_back(&sequence);
  sequence.turn = {.served = service_of(sequence)};
  return true;
}

// Newcomers and returners that begin now may have half of the tokens: neither long prompts nor a
// stream of short ones keep the other kind waiting.
void FairPolicy::prefill_least_first(PlanPass& pass) {
  std::int32_t begin_tokens = 0;
  for (const Sequence* const sequence : chosen_) begin_tokens += pass.tokens_to_compute(*sequence);
  const std::int32_t kept = std::min(begin_tokens, pass.tokens_left() / 2);
  tried_.clear();
  while (pass.tokens_left() > kept && pass.row_left()) {
    std::int32_t least = -1;
    for (const std::int32_t slot : pass.running()) {
      if (!pass.prefilling(slot) || contains(tried_, slot)) continue;
      if (least < 0 || pass.next(slot) < pass.next(least)) least = slot;
    }
    if (least < 0) return;
    // A prompt may wait for a block, because blocks of a window are shared. Then the others are
    // tried: the oldest one makes room.
    pass.prefill(least, pass.tokens_left() - kept);
    tried_.push_back(least);
  }
}

// One that starts loads, or that waits for saves, keeps its choice: the next plan finds the same
// order.
void FairPolicy::admit_chosen(PlanPass& pass) {
  for (Sequence* const sequence : chosen_) {
    const std::size_t position = pass.find_waiting(*sequence);
    if (pass.passes_over(pass.waiting()[position])) continue;  // another one's loads bring blocks
    const bool newcomer = is_newcomer(*sequence);
    const bool loaded = awaits_slot_loaded(sequence->paging);
    const bool admitted = pass.admit_at(position, turn_admission(pass, *sequence));
    const bool waits = sequence->state == SequenceState::kWaiting;
    if (waits && !pass.passes_over(pass.waiting()[position])) return;
    // It counts when it begins or when its loads do.
    if (!loaded) newcomers_in_row_ = newcomer ? newcomers_in_row_ + 1 : 0;
    if (admitted) start_turn(pass, sequence->slot);
  }
}

void FairPolicy::start_turn(PlanPass& pass, std::int32_t slot) {
  Turn& turn = pass.turn(slot);
  const Sequence& sequence = pass.sequence(slot);
  if (is_newcomer(sequence)) {
    turn = {.served = least_served(pass)};
  } else {
    turn.served = service_of(sequence);
  }
  turn.begin = first_decode(sequence);
  turn.end = turn_end(pass, sequence);
  turn.back.reset();
}

// The service of the least served sequence that has outputs.
std::int64_t FairPolicy::least_served(PlanPass& pass) const {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const std::int32_t slot : pass.running()) {
    if (!is_newcomer(pass.sequence(slot))) least = std::min(least, service_of(pass, slot));
  }
  for (const WaitingEntry& entry : pass.waiting()) {
    if (entry.sequence == nullptr || is_newcomer(*entry.sequence)) continue;
    least = std::min(least, service_of(*entry.sequence));
  }
  return least == std::numeric_limits<std::int64_t>::max() ? 0 : least;
}

// Charges clients as `vtc` does, by rows; a token that is computed again is free.
void FairPolicy::charge(PlanPass& pass) const {
  for (const PlanRow& row : pass.rows()) {
    const Sequence& sequence = pass.sequence(row.slot);
    std::int64_t cost = weights_.output * row.num_logits;
    if (row.context_len < pass.prefill_end(row.slot) && sequence.num_preemptions == 0) {
      cost += weights_.input * row.query_len;
    }
    pass.clients().charge(pass.client_of(row.slot), cost);
  }
}

void FairPolicy::charge_streamed(PlanPass& pass) const {
  const std::int32_t client = pass.client_of(pass.rows().front().slot);
  pass.clients().charge(client, weights_.of_streamed(pass));
}

}  // namespace sluice
