#include "scheduler/back_loads.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "scheduler/sequence_names.h"

namespace sluice {
namespace {

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

}  // namespace

BackLoads::BackLoads(KvManager& kv, PagingCosts& costs, std::int32_t least_tokens)
    : kv_(kv), costs_(costs), least_tokens_(least_tokens) {
  for (std::int32_t g = 0; g < kv.num_groups(); ++g) num_full_ += slides(g) ? 0 : 1;
}

// The first block that the token behind block `end` - 1 sees.
std::int32_t BackLoads::seen_from(std::int32_t end, std::int32_t group) const {
  const std::int32_t window = kv_.options().group_windows[at(group)];
  return first_visible_block(end * kv_.block_size(), window, kv_.block_size());
}

// Without a full group, few blocks are needed, and loading them is all there is to do.
bool BackLoads::worth(const Sequence& sequence, std::int32_t had, std::int32_t found) const {
  if (least_tokens_ <= 0 || sequence.tail_end > 0) return false;
  if (found - had < 2 * least_tokens_ || num_full_ == 0) return false;
  if (num_full_ == kv_.num_groups()) return true;
  std::int64_t windows = 0;
  const std::int32_t end = found / kv_.block_size();
  for (std::int32_t g = 0; g < kv_.num_groups(); ++g) {
    if (slides(g)) windows += end - seen_from(end, g);
  }
  const std::int64_t spare = kv_.num_available_blocks() - kv_.watermark_blocks();
  return spare >= kv_.blocks_needed(sequence.length()) + windows;
}

const BackLoads::One* BackLoads::find(std::int32_t slot) const {
  for (const One& one : all_) {
    if (one.slot == slot && one.sequence != nullptr) return &one;
  }
  return nullptr;
}

BackLoads::One* BackLoads::find(std::int32_t slot) {
  return const_cast<One*>(std::as_const(*this).find(slot));
}

bool BackLoads::ready(const One& one, std::int32_t block) const {
  for (std::int32_t g = 0; g < kv_.num_groups(); ++g) {
    const std::int32_t entry = g * (one.end - one.begin) + block - one.begin;
    const State state = one.states[at(entry)];
    if (state != State::kReady && state != State::kUnseen) return false;
  }
  return true;
}

// The first block from `from` on at which a front that is there can take over loaded blocks: a part
// of them only where all groups have all blocks. one.end: there is none.
std::int32_t BackLoads::next_takeover(const One& one, std::int32_t from) const {
  std::int32_t whole = one.end;
  while (whole > from && ready(one, whole - 1)) --whole;
  for (std::int32_t b = std::max(from, one.all_seen); b < whole; ++b) {
    if (ready(one, b)) return b;
  }
  return whole;
}

// Blocks whose loads are under way and may be of use.
std::int32_t BackLoads::num_loading(const One& one) const {
  std::int32_t count = 0;
  for (std::int32_t b = one.next; b < one.end; ++b) {
    for (std::int32_t g = 0; g < kv_.num_groups(); ++g) {
      const std::int32_t entry = g * (one.end - one.begin) + b - one.begin;
      if (slides(g) || one.states[at(entry)] != State::kUnderWay) continue;
      ++count;
      break;
    }
  }
  return count;
}

// The blocks that the front computes until it meets the loads, if each side does its part alone: of
// the `gap` blocks before those that were asked for, and of those under way.
std::int32_t BackLoads::front_share(const One& one, std::int32_t gap) const {
  double load = one.rate.ns_per_token();
  if (load == 0) load = costs_.load_ns(one.all) / static_cast<double>(one.all.computes);
  double compute = costs_.chunk_ns_per_token();
  if (load == 0 || compute == 0) load = compute = 1;
  const std::int32_t blocks = gap + num_loading(one);
  return static_cast<std::int32_t>(std::ceil(blocks * (load / (load + compute))));
}

void BackLoads::begin(const Sequence& sequence, std::int32_t slot, std::int32_t had,
                      TransferId& next_id, BatchPlan& plan) {
  CHECK(find(slot) == nullptr);
  const std::int32_t size = kv_.block_size();
  const std::int32_t found = kv_.match_with_tier(known_hashes(sequence), sequence.length() - 1);
  if (had % size != 0 || found <= had) return;
  One one;
  one.sequence = &sequence;
  one.slot = slot;
  one.begin = had / size;
  one.end = one.next = found / size;
  one.blocks.resize(at(kv_.num_groups() * (one.end - one.begin)));
  one.states.resize(one.blocks.size(), State::kMissing);
  one.all_seen = one.begin;
  for (std::int32_t g = 0; g < kv_.num_groups(); ++g) {
    const std::int32_t seen = std::max(one.begin, seen_from(one.end, g));
    one.all_seen = std::max(one.all_seen, seen);
    std::fill_n(one.states.begin() + g * (one.end - one.begin), seen - one.begin, State::kUnseen);
  }
  one.counted_from = plan.planned_at;
  one.all = {.loads = kv_.blocks_below(known_hashes(sequence), found).tokens,
             .computes = found - had};
  // The first chunk has blocks that no load is under way for.
  const std::int32_t gap = one.end - one.begin;
  const std::int32_t share = std::min(front_share(one, gap), gap - least_blocks());
  ask(one, std::min(gap - std::max(share, 1), gap - 1), next_id, plan);
  all_.push_back(std::move(one));
}

void BackLoads::plan_more(const std::vector<std::int32_t>& next, TransferId& next_id,
                          BatchPlan& plan) {
  for (One& one : all_) {
    if (one.sequence == nullptr) continue;
    const std::int32_t front = border_behind(next[at(one.slot)]);
    pass(one, front);
    const std::int32_t gap = one.next - front;
    if (gap <= 0 || one.stopped) continue;
    if (one.under_way == 0) one.counted_from = plan.planned_at;
    ask(one, gap - front_share(one, gap), next_id, plan);
  }
  std::erase_if(all_, [](const One& one) {
    if (one.under_way > 0) return false;
    return one.sequence == nullptr ||
           std::ranges::none_of(one.states, [](State s) { return s == State::kReady; });
  });
}

// Asks for blocks from the back on, `count` of them. A block that cannot be had now is left out.
void BackLoads::ask(One& one, std::int32_t count, TransferId& next_id, BatchPlan& plan) {
  if (count <= 0) return;
  Batch batch{.first = next_id, .entries = {}};
  const std::int32_t least = std::max(one.begin, one.next - count);
  while (one.next > least && !one.stopped) {
    if (!ask_block(one, one.next - 1, batch, next_id, plan)) break;
    --one.next;
  }
  if (!batch.entries.empty()) one.batches.push_back(std::move(batch));
}

// False: the slot has no promise left, and asks for no more.
bool BackLoads::ask_block(One& one, std::int32_t block, Batch& batch, TransferId& next_id,
                          BatchPlan& plan) {
  const Hash128 name = known_hashes(*one.sequence)[at(block)];
  const Hash128 tenant = one.sequence->request->block_owner.tenant;
  for (std::int32_t g = 0; g < kv_.num_groups(); ++g) {
    one.stopped = one.stopped || !kv_.may_load_ahead(one.slot, g);
  }
  if (one.stopped) return false;
  for (std::int32_t g = 0; g < kv_.num_groups(); ++g) {
    const std::int32_t entry = g * (one.end - one.begin) + block - one.begin;
    if (one.states[at(entry)] == State::kUnseen) continue;
    const auto got = kv_.begin_load_ahead(one.slot, g, block, name, tenant);
    if (!got) {
      one.stopped = one.stopped || slides(g);  // the blocks before it are of no use
      continue;
    }
    one.blocks[at(entry)] = *got;
    ++num_held_;
    if (got->page == TierIndex::kNoPage) {
      one.states[at(entry)] = State::kReady;
      continue;
    }
    one.states[at(entry)] = State::kUnderWay;
    batch.entries.push_back(entry);
    ++one.under_way;
    ++one.wanted;
    ++num_under_way_;
    plan.transfers.push_back({next_id++, TransferKind::kLoadBlock,
                              static_cast<std::int32_t>(plan.pages.size()), got->page});
    plan.pages.push_back(*got);
  }
  return true;
}

// The front has begun all blocks before this index.
void BackLoads::pass(One& one, std::int32_t begun_blocks) {
  const std::int32_t end = std::min(begun_blocks, one.end);
  for (std::int32_t b = one.next; b < end; ++b) {
    for (std::int32_t g = 0; g < kv_.num_groups(); ++g) {
      const auto entry = at(g * (one.end - one.begin) + b - one.begin);
      if (one.states[entry] == State::kUnderWay) {
        kv_.disown_load_ahead(one.slot, one.blocks[entry]);
        one.states[entry] = State::kPassed;
        --one.wanted;
      } else if (one.states[entry] == State::kReady) {
        kv_.drop_load_ahead(one.slot, one.blocks[entry], false);
        one.states[entry] = State::kMissing;
        --num_held_;
      }
    }
  }
}

void BackLoads::end(std::int32_t slot) {
  One* const one = find(slot);
  if (one == nullptr) return;
  // The last block first, so that the beginning is evicted last.
  for (std::size_t entry = one->states.size(); entry > 0; --entry) {
    State& state = one->states[entry - 1];
    if (state == State::kReady) {
      kv_.drop_load_ahead(slot, one->blocks[entry - 1], false);
      state = State::kMissing;
      --num_held_;
    } else if (state == State::kUnderWay) {
      kv_.disown_load_ahead(slot, one->blocks[entry - 1]);
      state = State::kPassed;
    }
  }
  one->wanted = 0;
  one->sequence = nullptr;
}

std::int32_t BackLoads::take(std::int32_t slot, std::int32_t position) {
  One* const one = find(slot);
  const std::int32_t size = kv_.block_size();
  if (one == nullptr || position % size != 0) return position;
  const std::int32_t first = position / size;
  if (first < one->next || static_cast<std::int32_t>(kv_.table(slot, 0).size()) != first) {
    return position;
  }
  if (next_takeover(*one, first) != first) return position;
  std::int32_t end = first;
  while (end < one->end && ready(*one, end)) ++end;
  if (end == first) return position;
  taken_.clear();
  for (std::int32_t g = 0; g < kv_.num_groups(); ++g) {
    for (std::int32_t b = first; b < end; ++b) {
      const auto entry = at(g * (one->end - one->begin) + b - one->begin);
      taken_.push_back(one->blocks[entry]);
      taken_.back().group = g;
      taken_.back().depth = b;
      if (one->states[entry] == State::kReady) --num_held_;
      one->states[entry] = State::kTaken;
    }
  }
  kv_.append_loaded(slot, taken_);
  return end * size;
}

std::int32_t BackLoads::chunk_limit(std::int32_t slot, std::int32_t position) const {
  const One* const one = find(slot);
  const std::int32_t size = kv_.block_size();
  const std::int32_t front = border_behind(position);
  const std::int32_t gap = std::max(0, one->next - front);
  std::int32_t limit = std::numeric_limits<std::int32_t>::max();
  if (gap > 0 || one->wanted > 0) {
    // Blocks under way may yet come, so the front first computes those that are not. It has a share
    // of the gap, or all of it when no more loads will come.
    const std::int32_t alone = one->stopped ? gap : 0;
    const std::int32_t shared = gap - alone;
    const std::int32_t share = std::max(front_share(*one, shared), least_blocks());
    limit = (front + alone + (shared > 0 ? std::min(share, shared) : share)) * size - position;
  }
  const std::int32_t from = std::max({front, one->next, position / size + 1});
  const std::int32_t takeover = from < one->end ? next_takeover(*one, from) : one->end;
  return takeover < one->end ? std::min(limit, takeover * size - position) : limit;
}

bool BackLoads::wait_for_memory(std::int32_t slot) {
  One* const one = find(slot);
  if (one == nullptr || one->wanted == 0 || one->waits == kMostWaits) return false;
  ++one->waits;
  return true;
}

bool BackLoads::complete(const TransferResult& result) {
  for (One& one : all_) {
    for (const Batch& batch : one.batches) {
      const TransferId end = batch.first + static_cast<TransferId>(batch.entries.size());
      if (result.id < batch.first || result.id >= end) continue;
      end_entry(one, at(batch.entries[static_cast<std::size_t>(result.id - batch.first)]), result);
      return true;
    }
  }
  return false;
}

void BackLoads::end_entry(One& one, std::size_t entry, const TransferResult& result) {
  const PagedBlock& block = one.blocks[entry];
  State& state = one.states[entry];
  const PageLoadEnd failure = result.damaged ? PageLoadEnd::kDamaged : PageLoadEnd::kUnreadable;
  const bool loaded = kv_.end_load(block, result.failed ? failure : PageLoadEnd::kLoaded);
  --one.under_way;
  --num_under_way_;
  if (!result.failed) {
    ++one.came[static_cast<std::size_t>(block.level)];
    one.came_full += slides(block.group) ? 0 : 1;
  }
  if (state == State::kPassed) {
    kv_.let_go(block);
    --num_held_;
    state = State::kMissing;
    return;
  }
  CHECK(state == State::kUnderWay);
  --one.wanted;
  if (!loaded) {
    one.stopped = one.stopped || slides(block.group);
    kv_.drop_load_ahead(one.slot, block, true);
    --num_held_;
  }
  state = loaded ? State::kReady : State::kMissing;
}

// While loads are under way the tier is busy, and what came says how fast it is. When none is, it
// was done at an unknown earlier time: half of the time is a guess that makes up for asking too
// little the last time.
void BackLoads::note_time(TimePoint now) {
  for (One& one : all_) {
    const auto came = std::exchange(one.came, {});
    const std::int32_t came_full = std::exchange(one.came_full, 0);
    const std::int32_t all = std::accumulate(came.begin(), came.end(), 0);
    // Without a sequence, there may be no plans while the loads are under way.
    if (all == 0 || one.sequence == nullptr) continue;
    const Duration took = (now - one.counted_from) / (one.under_way > 0 ? 1 : 2);
    one.rate.add(std::int64_t{came_full} * kv_.block_size() / num_full_, took);
    for (const TierLevel level : {TierLevel::kSlow, TierLevel::kFast}) {
      costs_.note_load(level, kv_.tokens_of(came[static_cast<std::size_t>(level)]), took);
    }
    one.counted_from = now;
  }
}

void BackLoads::check_integrity() const {
  std::int32_t under_way = 0;
  std::int32_t held = 0;
  for (const One& one : all_) {
    std::int32_t mine = 0;
    std::int32_t wanted = 0;
    for (std::size_t entry = 0; entry < one.states.size(); ++entry) {
      const State state = one.states[entry];
      wanted += state == State::kUnderWay ? 1 : 0;
      mine += state == State::kUnderWay || state == State::kPassed ? 1 : 0;
      held += state == State::kReady ? 1 : 0;
    }
    CHECK(mine == one.under_way && wanted == one.wanted);
    under_way += mine;
    if (one.sequence == nullptr) continue;
    CHECK(one.sequence->state == SequenceState::kRunning && one.sequence->slot == one.slot);
    CHECK(one.begin <= one.next && one.next <= one.end);
  }
  CHECK(under_way == num_under_way_ && held + under_way == num_held_);
}

}  // namespace sluice
