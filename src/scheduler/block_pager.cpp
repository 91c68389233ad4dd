#include "scheduler/block_pager.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "scheduler/sequence_names.h"

namespace sluice {

void BlockPager::add_transfer(TransferKind kind, const PagedBlock& block, TransferId& next_id,
                              BatchPlan& plan) {
  plan.transfers.push_back(
      {next_id++, kind, static_cast<std::int32_t>(plan.pages.size()), block.page});
  plan.pages.push_back(block);
}

// The tokens of the longest beginning that needs no slow load, if loading it pays; else `had`.
std::int32_t BlockPager::fast_beginning(const BlockNames& names, const BlocksBelow& below,
                                        std::int32_t had) const {
  if (below.first_slow == INT32_MAX) return had;
  const std::int32_t found = kv_.match_with_tier(names, below.first_slow * kv_.block_size());
  if (found <= had) return had;
  // A sliding window sees other blocks from here.
  const BlocksBelow beginning = kv_.blocks_below(names, found);
  if (beginning.first_slow != INT32_MAX) return had;
  return costs_.loads_pay({.loads = beginning.tokens, .computes = found - had}) ? found : had;
}

bool BlockPager::load_for(Sequence& sequence, const BlockNames& names, Headroom headroom,
                          bool may_meet, TransferId& next_id, BatchPlan& plan) {
  if (sequence.paging != Paging::kNone || names.empty()) return false;
  const std::int32_t most = sequence.length() - 1;  // one token is always computed
  const std::int32_t had = kv_.match(names, most);
  std::int32_t found = kv_.match_with_tier(names, most);
  if (found <= had) return false;
  const BlocksBelow below = kv_.blocks_below(names, found);
  const bool meets = may_meet && back_.worth(sequence, had, found);
  const PagingChoice choice =
      costs_.choose({.loads = below.tokens, .computes = found - had}, meets);
  if (choice != PagingChoice::kLoad) {
    if (choice == PagingChoice::kCompute) ++stats_.computed_instead;
    found = fast_beginning(names, below, had);
    if (found == had) {
      if (choice == PagingChoice::kMeet) sequence.paging = Paging::kMeeting;
      return false;
    }
  }
  Load load;
  const Hash128 tenant = sequence.request->block_owner.tenant;
  switch (kv_.begin_loads(names, found, headroom, tenant, load.blocks)) {
    case LoadStart::kStarted: break;
    case LoadStart::kUnderWay: sequence.paging = Paging::kFollowing; return true;
    case LoadStart::kNoMemory: return false;  // then admission lacks memory too, and says so
  }
  load.sequence = &sequence;
  load.first = next_id;
  load.counted_from = plan.planned_at;
  load.had_tokens = had;
  load.then = choice == PagingChoice::kMeet ? Paging::kMeetingRest : Paging::kDone;
  load.end_tokens = found;
  for (const PagedBlock& block : load.blocks) {
    if (block.page == TierIndex::kNoPage) continue;
    ++load.at(block.level).under_way;
    add_transfer(TransferKind::kLoadBlock, block, next_id, plan);
  }
  load.moves = static_cast<std::int32_t>(next_id - load.first);
  load.under_way = load.moves;
  CHECK(load.moves > 0);
  sequence.paging = Paging::kLoading;
  loads_.push_back(std::move(load));
  return true;
}

void BlockPager::note_admitted(Sequence& sequence, std::int32_t slot, std::int32_t had,
                               TransferId& next_id, BatchPlan& plan) {
  if (!meets_loads(sequence.paging)) return;
  sequence.paging = Paging::kDone;
  back_.begin(sequence, slot, had, next_id, plan);
  stats_.met += back_.active(slot) ? 1 : 0;
}

StreamFetch BlockPager::fetch_stream(Sequence& sequence, const StreamShape& shape,
                                     Headroom headroom, TransferId& next_id, BatchPlan& plan) {
  const bool looked = sequence.paging == Paging::kDone;
  const StreamFetch fetched = stream_.fetch(sequence, shape, headroom, next_id, plan);
  if (!looked && fetched == StreamFetch::kDone) note_hits(sequence.streamed_kept);
  return fetched;
}

std::int32_t BlockPager::take_loaded(std::int32_t slot, std::int32_t position) {
  const std::int32_t end = back_.take(slot, position);
  note_hits(end - position);
  return end;
}

std::int32_t BlockPager::loading_until(const Sequence& sequence) const {
  const auto load = std::ranges::find(loads_, &sequence, &Load::sequence);
  CHECK(load != loads_.end());
  return load->end_tokens;
}

void BlockPager::forget(const Sequence& sequence) {
  for (Load& load : loads_) {
    if (load.sequence == &sequence) load.sequence = nullptr;
  }
}

bool BlockPager::complete(const TransferResult& result, TimePoint now) {
  const auto load = std::find_if(loads_.begin(), loads_.end(), [&](const Load& each) {
    return result.id >= each.first && result.id < each.first + static_cast<TransferId>(each.moves);
  });
  if (load == loads_.end()) {
    if (stream_.owns(result.id)) {
      if (stream_.loads()) {
        ++(result.failed ? stats_.failed_loads : stats_.loaded_blocks);
        loads_ended_ = true;
      }
      stream_.complete(result);
      return true;
    }
    if (back_.empty() || !back_.complete(result)) return complete_save(result);
    ++(result.failed ? stats_.failed_loads : stats_.loaded_blocks);
    loads_ended_ = true;
    return true;
  }
  end_block(*load, result, now);
  if (load->under_way > 0) return true;
  end_loads(*load);
  loads_.erase(load);
  return true;
}

void BlockPager::end_block(Load& load, const TransferResult& result, TimePoint now) {
  auto left = static_cast<std::int64_t>(result.id - load.first);
  for (const PagedBlock& block : load.blocks) {
    if (block.page == TierIndex::kNoPage || left-- > 0) continue;
    const PageLoadEnd failure = result.damaged ? PageLoadEnd::kDamaged : PageLoadEnd::kUnreadable;
    kv_.end_load(block, result.failed ? failure : PageLoadEnd::kLoaded);
    Load::Level& level = load.at(block.level);
    level.loaded += result.failed ? 0 : 1;
    if (--level.under_way == 0) {
      costs_.note_load(block.level, kv_.tokens_of(level.loaded), now - load.counted_from);
    }
    break;
  }
  ++(result.failed ? stats_.failed_loads : stats_.loaded_blocks);
  --load.under_way;
}

void BlockPager::end_loads(const Load& load) {
  for (auto block = load.blocks.rbegin(); block != load.blocks.rend(); ++block) kv_.let_go(*block);
  loads_ended_ = true;
  if (load.sequence == nullptr) return;
  load.sequence->paging = load.then;
  const std::int32_t has = kv_.match(names_of(*load.sequence), load.sequence->length() - 1);
  // Other sequences may have computed blocks of it meanwhile.
  std::int32_t loaded = 0;
  for (const Load::Level& level : load.levels) loaded += level.loaded;
  const std::int32_t hits = std::clamp(has - load.had_tokens, 0, loaded * kv_.block_size());
  note_hits(hits);
}

void BlockPager::note_hits(std::int64_t tokens) {
  stats_.hit_tokens += tokens;
  unpriced_tokens_ += tokens;
  price_hits();
}

void BlockPager::price_hits() {
  const double price = costs_.chunk_ns_per_token();
  if (price == 0) return;
  stats_.saved_ns += price * static_cast<double>(unpriced_tokens_);
  unpriced_tokens_ = 0;
}

bool BlockPager::complete_save(const TransferResult& result) {
  const auto save = std::find_if(saves_.begin(), saves_.end(),
                                 [&](const Save& each) { return each.id == result.id; });
  if (save == saves_.end()) return false;
  kv_.end_save(save->block, !result.failed);
  ++(result.failed ? stats_.failed_saves : stats_.saved_blocks);
  saves_.erase(save);
  return true;
}

void BlockPager::note_step_end(TimePoint now) {
  for (Load& load : loads_) {
    if (load.beside_step) continue;
    load.beside_step = true;
    load.counted_from = now;
  }
}

bool BlockPager::take_loads_ended() { return std::exchange(loads_ended_, false); }

void BlockPager::plan_saves(bool accepted, SavesBesideLoads beside_loads, SaveHaste haste,
                            TransferId& next_id, BatchPlan& plan) {
  if (!accepted || (loads_under_way() && beside_loads == SavesBesideLoads::kNo)) return;
  const std::int32_t most = std::clamp(kv_.num_usable_blocks() / 16, 1, kMaxSaves);
  while (static_cast<std::int32_t>(saves_.size()) < most) {
    std::optional<PagedBlock> block = kv_.begin_save(plan.copies);
    if (!block) return;
    block->haste = haste;
    saves_.push_back({next_id, *block});
    add_transfer(TransferKind::kSaveBlock, *block, next_id, plan);
  }
}

void BlockPager::check_integrity() const {
  std::size_t held = saves_.size();
  for (const Load& load : loads_) {
    held += load.blocks.size();
    CHECK(load.under_way > 0 && load.under_way <= load.moves);
    if (load.sequence == nullptr) continue;
    CHECK(load.sequence->state == SequenceState::kWaiting);
    CHECK(load.sequence->paging == Paging::kLoading);
  }
  back_.check_integrity();
  held += static_cast<std::size_t>(back_.num_held() + stream_.num_held());
  CHECK(held == static_cast<std::size_t>(kv_.num_paging()));
  CHECK(saves_.size() <= std::size_t{kMaxSaves});
}

}  // namespace sluice
