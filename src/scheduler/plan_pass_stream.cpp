// The part of the scheduler for sequences whose KV is streamed (stream_lane.h).
#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "scheduler/plan_pass.h"
#include "scheduler/sequence_names.h"

namespace sluice {

Status SchedulerState::check_stream(const Sequence& sequence, std::int32_t max_len,
                                    std::int32_t most_blocks) const {
  const StreamShape& shape = streams.shape;
  const Request& request = *sequence.request;
  const auto needs = [&](std::string_view reason) {
    return fmt::format("prompt and max_tokens need more KV memory than there is, and {}", reason);
  };
  if (request.sampling.n > 1 || request.pooling != Pooling::kNone || request.pin) {
    return context_length_exceeded(
        needs("requests with n above 1, an embedding or a pin are not streamed from --kv-disk; "
              "lower max_tokens or raise --kv-cache-memory"));
  }
  const std::int32_t blocks = (max_len - 1 + shape.block_size - 1) / shape.block_size;
  if (blocks > shape.max_blocks) {
    return context_length_exceeded(
        needs(fmt::format("the {} tokens exceed the {} that stream=SIZE of --kv-disk holds; lower "
                          "max_tokens, or raise it",
                          max_len - 1, std::int64_t{shape.max_blocks} * shape.block_size)));
  }
  const std::int64_t pool = shape.pool_blocks(blocks);
  const std::int32_t most = std::min(most_blocks, kv.max_blocks_per_seq());
  if (pool <= most) return {};
  return context_length_exceeded(needs(
      fmt::format("to stream {} tokens takes {} KV blocks, there are {}; lower max_tokens or raise "
                  "--kv-cache-memory",
                  max_len - 1, pool, most)));
}

void SchedulerState::enqueue_stream(const WaitingEntry& entry) {
  // One that gave its memory back comes before those that have not begun.
  if (entry.sequence->num_preemptions > 0) {
    streams.waiting.push_front(entry);
  } else {
    streams.waiting.push_back(entry);
  }
  if (entry.adapter >= 0) adapters.add_waiting(entry.adapter);
}

WaitingEntry SchedulerState::dequeue_stream(const Sequence& sequence) {
  const auto found = std::ranges::find(streams.waiting, &sequence, &WaitingEntry::sequence);
  CHECK(found != streams.waiting.end());
  const WaitingEntry entry = *found;
  streams.waiting.erase(found);
  clients.dequeue(entry.client);
  if (entry.adapter >= 0) adapters.remove_waiting(entry.adapter);
  return entry;
}

// Its last piece is not in the file.
void SchedulerState::keep_streamed_names(const Sequence& sequence, FinishReason reason) {
  StreamPages& pages = pager.stream();
  if (reason == FinishReason::kError || reason == FinishReason::kLostKv) {
    pages.forget(sequence, reason == FinishReason::kError);
    return;
  }
  const std::int32_t most = std::max(sequence.computed, sequence.streamed_kept);
  const std::int32_t end = std::min(most, static_cast<std::int32_t>(sequence.tokens.size())) /
                           streams.shape.piece_tokens() * streams.shape.piece_tokens();
  hashes = known_hashes(sequence);
  if (sequence.request->block_hash_root && pages.file() == sequence.id) {
    hasher.set_root(*sequence.request->block_hash_root);
    hasher.extend(std::span(sequence.tokens).first(RunningSet::index(end)), hashes);
  }
  const auto blocks = std::min(hashes.size(), RunningSet::index(end / kv.block_size()));
  pages.end(sequence, std::span(hashes).first(blocks));
}

void SchedulerState::end_waiting_stream(Sequence& sequence, FinishReason reason) {
  finish(sequence, dequeue_stream(sequence).client, reason);
}

bool SchedulerState::yield_stream(BatchPlan& plan) {
  if (streams.slot < 0) return false;
  const std::int32_t slot = streams.slot;
  const std::size_t s = RunningSet::index(slot);
  CHECK(running.in_flight[s] == 0);
  Sequence& sequence = *running.sequence[s];
  const std::int32_t piece = streams.shape.piece_tokens();
  sequence.streamed_kept = sequence.computed / piece * piece;
  const WaitingEntry entry{place_of(sequence), &sequence, running.client[s], running.adapter[s]};
  leave_order(slot);
  vacate(slot);
  sequence.state = SequenceState::kWaiting;
  sequence.slot = -1;
  sequence.computed = 0;
  ++sequence.num_preemptions;
  enqueue_stream(entry);
  clients.requeue(entry.client);
  plan.preempted.push_back(sequence.id);
  return true;
}

// Other adapters wait for the slot of the sequence's own. Whole pieces are not computed again, so
// each turn with the adapter gets it further.
bool PlanPass::owes_its_adapter(std::int32_t slot) const {
  const std::int32_t adapter = set().adapter[at(slot)];
  if (adapter < 0 || state_.adapters.ready(adapter) || !idle(slot)) return false;
  const Sequence& owner = *set().sequence[at(slot)];
  const std::int32_t piece = state_.streams.shape.piece_tokens();
  return owner.computed / piece > owner.streamed_kept / piece;
}

void PlanPass::keep_streamed() {
  StreamPages& pages = state_.pager.stream();
  // Others get their next blocks first.
  const std::int32_t spare = is_alone() ? 0 : growth_reserve();
  const auto keep = [&] {
    pages.keep(state_.streams.shape, tier_accepts_saves_, spare, now_, state_.next_transfer, plan_);
  };
  keep();
  if (!pages.keeps_file() || state_.streams.waiting.empty()) return;
  // The next sequence waits for these saves.
  state_.pager.plan_saves(tier_accepts_saves_, SavesBesideLoads::kNo, SaveHaste::kAwaited,
                          state_.next_transfer, plan_);
  if (!state_.pager.busy()) keep();  // no block was left to be saved
}

// Whether the sequence has the file, or can have it. The blocks of the one before are kept first.
bool PlanPass::has_file(const Sequence& sequence) {
  StreamPages& pages = state_.pager.stream();
  if (pages.file() == sequence.id || !pages.keeps_file()) return true;
  if (state_.pager.busy() || !is_alone()) return false;
  pages.drop_kept();
  return true;
}

// Whether the sequence has the blocks that memory and the tier have, as far as they are worth it.
bool PlanPass::has_fetched(Sequence& sequence) {
  const auto fetch = [&] {
    return state_.pager.fetch_stream(sequence, state_.streams.shape, window_headroom(),
                                     state_.next_transfer, plan_);
  };
  StreamFetch fetched = fetch();
  if (fetched == StreamFetch::kNoMemory && state_.kv_sizer.stop_release()) fetched = fetch();
  if (fetched != StreamFetch::kNoMemory) return fetched == StreamFetch::kDone;
  waiting_stream_ = SchedulerState::place_of(sequence);
  if (state_.kv_sizer.can_grow()) {
    state_.kv_sizer.want(state_.kv.last_shortage());
    return false;
  }
  if (!is_alone() || state_.pager.busy()) return false;
  state_.pager.stream().stop_fetch();
  return fetch() == StreamFetch::kDone;
}

void PlanPass::admit_stream() {
  StreamLane& lane = state_.streams;
  if (lane.slot >= 0 && owes_its_adapter(lane.slot)) state_.yield_stream(plan_);
  if (lane.slot >= 0 || lane.waiting.empty() || !admits_) return;
  const WaitingEntry entry = lane.waiting.front();
  if (entry.adapter >= 0 && !state_.adapters.ready(entry.adapter)) return;  // others go on
  const auto older = [&](const WaitingEntry& other) {
    return other.sequence != nullptr && other.order < entry.order;
  };
  if (std::ranges::any_of(waiting(), older)) {
    waiting_stream_ = entry.order;
    return;
  }
  if (!has_file(*entry.sequence) || !has_fetched(*entry.sequence)) return;  // others go on
  if (take_window(*entry.sequence)) {
    begin_stream(entry);
  } else {
    waiting_stream_ = entry.order;
  }
}

Headroom PlanPass::window_headroom() {
  Headroom room;
  room.spare_cached = state_.kv_sizer.can_grow();
  if (!is_alone()) room.blocks = std::max(state_.kv.watermark_blocks(), decode_room());
  return room;
}

// Blocks for the windows, in the slot that is given out next.
bool PlanPass::take_window(const Sequence& sequence) {
  if (set().free_slots.empty()) return false;
  const std::int32_t slot = set().free_slots.back();
  const auto blocks =
      static_cast<std::int32_t>(state_.streams.shape.pool_blocks(sequence.streamed_blocks));
  const auto take = [&] {
    return state_.kv.admit_window(slot, blocks, window_headroom(), changes_);
  };
  if (take() || (state_.kv_sizer.stop_release() && take())) return true;
  if (state_.kv_sizer.can_grow()) {
    state_.kv_sizer.want(state_.kv.last_shortage());
    return false;
  }
  if (is_alone() && state_.kv.release_holds() && take()) return true;
  if (blocks > state_.kv_sizer.most_usable_blocks()) {
    Sequence* const ended = state_.streams.waiting.front().sequence;
    state_.end_waiting_stream(*ended, FinishReason::kNoMemory);
    plan_.ended.push_back(ended);
  }
  return false;
}

void PlanPass::begin_stream(const WaitingEntry& entry) {
  Sequence& sequence = *entry.sequence;
  state_.dequeue_stream(sequence);
  state_.occupy(set().free_slots.back(), entry, sequence.streamed_kept);
  if (sequence.num_preemptions == 0) {
    sequence.first_scheduled = now_;
    state_.pager.stream().begin(sequence);
  }
  assign(entry);
}

bool PlanPass::stream_is_due() const {
  const StreamLane& lane = state_.streams;
  return lane.slot >= 0 && lane.others_ran && now_ >= lane.due;
}

void PlanPass::plan_stream() {
  StreamLane& lane = state_.streams;
  CHECK(plan_.rows.empty());
  if (lane.slot < 0) return;
  const std::int32_t slot = lane.slot;
  CHECK(idle(slot));
  time_ = nullptr;  // measured steps say nothing about streamed ones
  token_limit_ = state_.options.token_budget;
  if (prefilling(slot)) {
    prefill(slot, tokens_left());
  } else {
    CHECK(decode_ready(slot));
    decode(slot);
  }
  CHECK(plan_.rows.size() == 1);
  plan_.streamed_blocks = sequence(slot).streamed_blocks;
  Sequence& owner = *set().sequence[at(slot)];
  const std::int32_t end = set().next[at(slot)];
  new_streamed_tokens_ = std::max(0, std::min(end, owner.prompt_len) - owner.streamed_reached);
  owner.streamed_reached = std::max(owner.streamed_reached, end);
  lane.others_ran = false;
}

}  // namespace sluice
