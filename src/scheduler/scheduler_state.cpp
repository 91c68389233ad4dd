#include "scheduler/scheduler_state.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "scheduler/sequence_names.h"

namespace sluice {

RunningSet::RunningSet(std::size_t slots)
    : state(slots, SlotState::kFree),
      sequence(slots, nullptr),
      id(slots, 0),
      service_order(slots),
      next(slots, 0),
      known(slots, 0),
      last_token(slots, 0),
      prefill_end(slots, 0),
      decode_end(slots, 0),
      prompt_len(slots, 0),
      client(slots, 0),
      adapter(slots, -1),
      in_flight(slots, 0),
      held(slots, 0),
      undecided(slots, 0),
      loaded(slots, 0) {
  order.reserve(slots);
  free_slots.reserve(slots);
  for (std::size_t slot = slots; slot > 0; --slot) {
    free_slots.push_back(static_cast<std::int32_t>(slot - 1));
  }
}

SchedulerState::SchedulerState(const SchedulerOptions& scheduler_options, KvManager& kv_manager)
    : options(scheduler_options),
      kv(kv_manager),
      running(static_cast<std::size_t>(scheduler_options.max_num_seqs)),
      kv_sizer(kv_manager, scheduler_options.kv_idle_release),
      adapters(scheduler_options.adapters),
      pager(kv_manager, options.meeting_tokens, options.meeting_factor),
      hasher(Hash128{}, kv_manager.block_size()) {
  CHECK(options.token_budget > 0 && options.max_num_seqs > 0 && options.max_model_len > 1);
  CHECK(kv.options().max_num_seqs >= options.max_num_seqs);
  CHECK(kv.options().max_model_len >= options.max_model_len);
  CHECK(options.micro_batches > 0);
  if (options.time_budget) {
    const TimeBudget& time = *options.time_budget;
    CHECK(time.predictor.num_knots >= 2 || (time.costs && time.learn));
    CHECK(time.predictor.tile > 0 && time.min_chunk > 0 && time.margin >= 1);
    CHECK(time.decode_steps >= 1 ||
          (time.tbt.count() > 0 && time.shortest_step <= time.longest_step));
    step_time.emplace(time, options.token_budget);
  }
  CHECK(kv.options().max_query_len >= std::min(options.token_budget, options.max_model_len));
  streams.shape = options.stream;
  CHECK(streams.shape.max_blocks == 0 ||
        (options.micro_batches == 1 && streams.shape.block_size == kv.block_size()));
  hashes.reserve(static_cast<std::size_t>(kv.max_blocks_per_seq()));
}

ChoiceGroup* SchedulerState::group_of(const Sequence& sequence) {
  if (sequence.request->sampling.n <= 1) return nullptr;
  const auto found = choices.find(sequence.request);
  return found == choices.end() ? nullptr : &found->second;
}

Status SchedulerState::check_room(const Sequence& sequence, std::int32_t max_len) const {
  const std::int32_t most_blocks = kv_sizer.most_blocks_of_a_sequence();
  if (check_fit(sequence, max_len, most_blocks)) return {};
  RETURN_IF_ERROR(check_fit(sequence, max_len, kv_sizer.most_blocks_ever()));
  return resource_exhausted(fmt::format(
      "prompt and max_tokens need {} KV blocks for {} tokens; the KV memory is limited to {} of {} "
      "for now, because others use the memory; try again later or lower max_tokens",
      kv.blocks_needed(max_len - 1), max_len - 1, most_blocks, kv_sizer.most_blocks_ever()));
}

Status SchedulerState::check_fit(const Sequence& sequence, std::int32_t max_len,
                                 std::int32_t most_blocks) const {
  // The last token is never computed: nothing follows it.
  const std::int64_t blocks = kv.blocks_needed(max_len - 1);
  if (blocks <= most_blocks) return {};
  if (streams.shape.max_blocks > 0) return check_stream(sequence, max_len, most_blocks);
  return context_length_exceeded(fmt::format(
      "prompt and max_tokens need {} KV blocks for {} tokens, the KV memory has {}{}; lower "
      "max_tokens, raise --kv-cache-memory or, on a CPU, give --kv-disk DIR:SIZE,stream=SIZE",
      blocks, max_len - 1, most_blocks,
      kv.options().least_blocks > 0 ? " that it never lends" : ""));
}

void SchedulerState::enqueue(const WaitingEntry& entry) {
  waiting.insert(entry);
  if (entry.adapter >= 0) adapters.add_waiting(entry.adapter);
}

WaitingEntry SchedulerState::dequeue(std::size_t position) {
  const WaitingEntry entry = waiting.at(position);
  waiting.erase(position);
  clients.dequeue(entry.client);
  if (entry.adapter >= 0) adapters.remove_waiting(entry.adapter);
  return entry;
}

void SchedulerState::end_running(std::int32_t slot, FinishReason reason, BatchPlan& plan) {
  const std::size_t s = RunningSet::index(slot);
  CHECK(running.in_flight[s] == 0);
  Sequence* const sequence = running.sequence[s];
  finish_running(slot, reason);
  plan.ended.push_back(sequence);
}

void SchedulerState::end_waiting(std::size_t position, FinishReason reason, BatchPlan& plan) {
  const WaitingEntry entry = dequeue(position);
  finish(*entry.sequence, entry.client, reason);
  plan.ended.push_back(entry.sequence);
}

void SchedulerState::take_completions(TimePoint now, const ResourceView& resources,
                                      BatchPlan& plan) {
  for (const TransferResult& result : resources.completed) {
    if (pager.complete(result, now)) continue;
    const std::int32_t adapter = adapters.complete(result, now);
    if (!result.failed) continue;
    for (std::size_t i = 0; i < waiting.entries().size(); ++i) {
      const WaitingEntry& entry = waiting.at(i);
      if (entry.sequence == nullptr || entry.adapter != adapter) continue;
      end_waiting(i, FinishReason::kNoAdapter, plan);
    }
    const auto lost = [&](const WaitingEntry& entry) { return entry.adapter == adapter; };
    while (true) {
      const auto found = std::ranges::find_if(streams.waiting, lost);
      if (found == streams.waiting.end()) break;
      plan.ended.push_back(found->sequence);
      end_waiting_stream(*found->sequence, FinishReason::kNoAdapter);
    }
  }
  for (const PagedBlock& lost : resources.lost_pages) kv.lose_page(lost);
  for (const PageLevel& now_at : resources.page_levels) kv.set_level(now_at);
  pager.note_time(now);
  kv.take_wrong_pages(plan.wrong_pages);
  if (!pager.take_loads_ended()) return;
  for (const WaitingEntry& entry : waiting.entries()) {
    if (entry.sequence == nullptr || entry.sequence->paging != Paging::kFollowing) continue;
    entry.sequence->paging = Paging::kNone;
  }
}

void SchedulerState::plan_loads(TimePoint now, BatchPlan& plan) {
  if (options.adapters.num_slots == 0) return;
  const WaitingEntry* next = waiting.empty() ? nullptr : &waiting.at(0);
  if (streams.slot < 0 && !streams.waiting.empty()) {
    const WaitingEntry& streamed = streams.waiting.front();
    // One that has had its adapter queues for it again like everybody else.
    const bool begins = streamed.sequence->num_preemptions == 0;
    if (begins && (next == nullptr || streamed.order < next->order)) next = &streamed;
  }
  const std::int32_t first = next == nullptr ? -1 : next->adapter;
  adapters.plan_loads(now, first, next_transfer, plan.transfers);
}

void SchedulerState::occupy(std::int32_t slot, const WaitingEntry& entry, std::int32_t cached) {
  Sequence& sequence = *entry.sequence;
  const ServiceOrder place = entry.order;
  const std::size_t s = RunningSet::index(slot);
  CHECK(running.state[s] == SlotState::kFree && running.free_slots.back() == slot);
  running.free_slots.pop_back();
  if (urgent == &sequence) urgent = nullptr;
  running.state[s] = SlotState::kRunning;
  running.sequence[s] = &sequence;
  running.id[s] = sequence.id;
  running.service_order[s] = place;
  sequence.tokens.reserve(static_cast<std::size_t>(sequence.max_len));
  if (sequence.tokens.empty()) {
    const std::vector<TokenId>& prompt = sequence.request->prompt;
    sequence.tokens.assign(prompt.begin(), prompt.end());
  }
  running.next[s] = cached;
  running.known[s] = static_cast<std::int32_t>(sequence.tokens.size());
  running.last_token[s] = sequence.tokens.back();
  // A sequence that returns and lacks one token decodes.
  const bool decodes = sequence.output_len() > 0 && cached + 1 == running.known[s];
  running.prefill_end[s] = decodes ? cached : running.known[s];
  running.decode_end[s] = sequence.max_len - 1;
  running.prompt_len[s] = sequence.prompt_len;
  running.client[s] = entry.client;
  running.adapter[s] = entry.adapter;
  running.held[s] = 0;
  running.undecided[s] = 0;
  running.loaded[s] = 0;
  sequence.state = SequenceState::kRunning;
  sequence.slot = slot;
  sequence.computed = cached;
  sequence.in_flight = 0;
  if (sequence.streamed_blocks > 0) {
    CHECK(streams.slot < 0);
    running.state[s] = SlotState::kStreamed;
    streams.slot = slot;
    return;
  }
  const auto after = std::upper_bound(running.order.begin(), running.order.end(), place,
                                      [&](ServiceOrder a, std::int32_t b) {
                                        return a < running.service_order[RunningSet::index(b)];
                                      });
  running.order.insert(after, slot);
}

void SchedulerState::leave_order(std::int32_t slot) {
  if (streams.slot == slot) {
    streams.slot = -1;
  } else {
    const auto place = std::find(running.order.begin(), running.order.end(), slot);
    CHECK(place != running.order.end());
    running.order.erase(place);
  }
  if (!pager.back().empty()) pager.back().end(slot);
  running.state[RunningSet::index(slot)] = SlotState::kDraining;
  ++running.num_draining;
  ChoiceGroup* const group = group_of(*running.sequence[RunningSet::index(slot)]);
  if (group != nullptr && group->leader_slot == slot) group->leader_slot = -1;
}

void SchedulerState::vacate(std::int32_t slot) {
  const std::size_t s = RunningSet::index(slot);
  CHECK(running.state[s] == SlotState::kDraining && running.in_flight[s] == 0);
  kv.release(slot);
  if (running.adapter[s] >= 0) adapters.release(running.adapter[s]);
  running.adapter[s] = -1;
  running.state[s] = SlotState::kFree;
  running.sequence[s] = nullptr;
  running.free_slots.push_back(slot);
  --running.num_draining;
}

// Output blocks are named only when the sequence leaves its slot, so a decode-only step hashes
// nothing.
void SchedulerState::publish_outputs(std::int32_t slot, Sequence& sequence, Hash128 root) {
  hasher.set_root(root);
  hashes = known_hashes(sequence);
  hasher.extend(std::span(sequence.tokens).first(static_cast<std::size_t>(sequence.computed)),
                hashes);
  kv.publish(slot, hashes, sequence.computed, sequence.request->block_owner);
}

// Gives names to all that the sequence has computed, so that its return finds it. Blocks without a
// name by content, and the partial block, get names that no other sequence uses.
void SchedulerState::name_displaced(std::int32_t slot, Sequence& sequence) {
  const Request& request = *sequence.request;
  // Tokens whose KV is found have no hidden states, and the mean needs them all.
  if (request.pooling == Pooling::kMean) return;
  if (kv.options().prefix_caching == PrefixCaching::kOff) return;
  const Hash128 own_root = private_root(sequence);
  publish_outputs(slot, sequence, request.block_hash_root.value_or(own_root));
  if (hashes.size() > request.block_hashes.size()) sequence.block_hashes = hashes;

  const std::int32_t full = sequence.computed / kv.block_size();
  const std::int32_t rest = sequence.computed % kv.block_size();
  Hash128 tail;
  bool named = false;
  if (rest > 0) {
    hasher.set_root(own_root);
    const Hash128 parent = full == 0 ? Hash128{} : hashes[RunningSet::index(full - 1)];
    const auto first = RunningSet::index(sequence.computed - rest);
    tail = hasher.hash_partial(parent,
                               std::span(sequence.tokens).subspan(first, RunningSet::index(rest)));
    named = kv.publish_tail(slot, tail, sequence.computed, request.block_owner);
  }
  // An unchanged tail keeps its name, and so its copy below.
  if (sequence.tail_end > 0 && !(named && tail == sequence.tail_name)) {
    kv.forget_names({&sequence.tail_name, 1});
  }
  sequence.tail_name = tail;
  sequence.tail_end = named ? sequence.computed : 0;
}

// No other sequence can find these blocks, so neither memory nor a tier keeps them.
void SchedulerState::forget_private_names(Sequence& sequence) {
  const Request& request = *sequence.request;
  if (sequence.tail_end > 0) kv.forget_names({&sequence.tail_name, 1});
  sequence.tail_end = 0;
  const std::size_t by_content = request.block_hashes.size();
  if (request.block_hash_root || sequence.block_hashes.size() <= by_content) return;
  kv.forget_names(std::span(sequence.block_hashes).subspan(by_content));
}

void SchedulerState::preempt(std::int32_t slot, BatchPlan& plan) {
  const std::size_t s = RunningSet::index(slot);
  Sequence& sequence = *running.sequence[s];
  CHECK(running.in_flight[s] == 0);
  name_displaced(slot, sequence);
  const std::int32_t adapter = running.adapter[s];
  leave_order(slot);
  vacate(slot);
  sequence.state = SequenceState::kWaiting;
  sequence.slot = -1;
  sequence.computed = 0;
  sequence.paging = Paging::kNone;
  ++sequence.num_preemptions;
  enqueue({place_of(sequence), &sequence, running.client[s], adapter});
  clients.requeue(running.client[s]);
  plan.preempted.push_back(sequence.id);
}

void SchedulerState::finish_running(std::int32_t slot, FinishReason reason) {
  const std::size_t s = RunningSet::index(slot);
  Sequence& sequence = *running.sequence[s];
  const std::optional<Hash128>& root = sequence.request->block_hash_root;
  if (reason == FinishReason::kError) {
    kv.forget(slot);
  } else if (root && sequence.streamed_blocks == 0 &&
             kv.options().prefix_caching == PrefixCaching::kOn) {
    publish_outputs(slot, sequence, *root);
  }
  if (running.state[s] != SlotState::kDraining) leave_order(slot);
  finish(sequence, running.client[s], reason);
  running.sequence[s] = nullptr;
  if (running.in_flight[s] == 0) vacate(slot);
}

void SchedulerState::finish(Sequence& sequence, std::int32_t client, FinishReason reason) {
  if (sequence.paging == Paging::kLoading) pager.forget(sequence);
  forget_private_names(sequence);
  if (sequence.streamed_blocks > 0) keep_streamed_names(sequence, reason);
  if (urgent == &sequence) urgent = nullptr;
  sequence.state = SequenceState::kFinished;
  sequence.finish_reason = reason;
  sequence.slot = -1;
  sequence.in_flight = 0;
  clients.finish(client);
  kv_sizer.note_activity();
  if (ChoiceGroup* const group = group_of(sequence); group != nullptr) {
    if (--group->alive == 0) choices.erase(sequence.request);
  }
}

void SchedulerState::check_slot(std::int32_t slot) const {
  const std::size_t s = RunningSet::index(slot);
  const Sequence* const sequence = running.sequence[s];
  if (running.state[s] == SlotState::kFree) {
    CHECK(sequence == nullptr && running.in_flight[s] == 0 && running.adapter[s] == -1);
    for (std::int32_t g = 0; g < kv.num_groups(); ++g) CHECK(kv.table(slot, g).empty());
    return;
  }
  if (running.state[s] == SlotState::kDraining) CHECK(running.in_flight[s] > 0);
  if (sequence == nullptr) {
    CHECK(running.state[s] == SlotState::kDraining);
    return;
  }
  CHECK(sequence->slot == slot && sequence->id == running.id[s]);
  CHECK(sequence->state == SequenceState::kRunning);
  CHECK(sequence->computed >= 0 && sequence->in_flight >= 0);
  CHECK(sequence->computed + sequence->in_flight + running.loaded[s] == running.next[s]);
  CHECK((sequence->in_flight > 0) == (running.in_flight[s] > 0));
  CHECK(static_cast<std::int32_t>(sequence->tokens.size()) == running.known[s]);
  CHECK(sequence->tokens.back() == running.last_token[s]);
  CHECK(running.known[s] < sequence->max_len && sequence->max_len <= options.max_model_len);
  CHECK(running.next[s] <= running.decode_end[s]);
  if (sequence->streamed_blocks > 0) return;
  const auto covered = static_cast<std::int64_t>(kv.table(slot, 0).size()) * kv.block_size();
  CHECK(covered >= running.next[s]);
}

void SchedulerState::check_integrity() const {
  kv.check_integrity();
  kv_sizer.check_integrity();
  pager.check_integrity();
  CHECK(urgent == nullptr || urgent->state == SequenceState::kWaiting);
  std::int64_t running_adapters = 0;
  std::int64_t waiting_adapters = 0;
  std::size_t free = 0;
  std::int32_t draining = 0;
  std::size_t alive = waiting.size() + streams.waiting.size();
  for (std::size_t s = 0; s < running.state.size(); ++s) {
    alive += running.sequence[s] != nullptr ? 1 : 0;
    free += running.state[s] == SlotState::kFree ? 1 : 0;
    draining += running.state[s] == SlotState::kDraining ? 1 : 0;
    running_adapters += running.adapter[s] >= 0 ? 1 : 0;
    check_slot(static_cast<std::int32_t>(s));
  }
  CHECK(free == running.free_slots.size() && draining == running.num_draining);
  const std::size_t streamed = streams.slot < 0 ? 0 : 1;
  CHECK(free + static_cast<std::size_t>(draining) + running.order.size() + streamed ==
        running.state.size());
  CHECK(streamed == 0 || running.state[RunningSet::index(streams.slot)] == SlotState::kStreamed);
  for (const WaitingEntry& entry : streams.waiting) {
    CHECK(entry.sequence->state == SequenceState::kWaiting && entry.sequence->streamed_blocks > 0);
    CHECK(entry.sequence->request->adapter == entry.adapter);
    waiting_adapters += entry.adapter >= 0 ? 1 : 0;
  }
  for (std::size_t i = 0; i < running.order.size(); ++i) {
    const std::size_t s = RunningSet::index(running.order[i]);
    CHECK(running.state[s] == SlotState::kRunning);
    if (i == 0) continue;
    CHECK(running.service_order[RunningSet::index(running.order[i - 1])] <
          running.service_order[s]);
  }
  const auto entries = waiting.entries();
  std::size_t waits = 0;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    CHECK(i == 0 || entries[i - 1].order < entries[i].order);
    if (entries[i].sequence == nullptr) continue;
    ++waits;
    const Sequence& sequence = *entries[i].sequence;
    CHECK(place_of(sequence) == entries[i].order);
    CHECK(sequence.request->adapter == entries[i].adapter);
    waiting_adapters += entries[i].adapter >= 0 ? 1 : 0;
    CHECK(sequence.state == SequenceState::kWaiting && sequence.slot == -1);
    CHECK(sequence.computed == 0 && sequence.in_flight == 0);
  }
  CHECK(waits == waiting.size());
  clients.check_integrity(waiting.size() + streams.waiting.size(), alive);
  adapters.check_integrity(waiting_adapters, running_adapters);
  for (const auto& [request, group] : choices) {
    CHECK(group.alive > 0);
    if (group.leader_slot < 0) continue;
    const std::size_t s = RunningSet::index(group.leader_slot);
    CHECK(running.state[s] == SlotState::kRunning && running.sequence[s]->request == request);
  }
}

}  // namespace sluice
