#include "offload/stacked_tier.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"

namespace sluice {

StackedTier::StackedTier(std::unique_ptr<KvTier> fast, std::unique_ptr<KvTier> slow)
    : fast_(std::move(fast)),
      slow_(std::move(slow)),
      copies_(fast_->num_pages()),
      copied_(static_cast<std::size_t>(fast_->num_pages()),
              TierPage{.page = -1, .name = {}, .tenant = {}}) {}

void StackedTier::save(std::uint64_t id, const TierPage& page, std::span<const std::byte> block) {
  forget_copy(page.page);
  only_fast_.erase(page.page);
  Move& move = moves_[id];
  move.page = page;
  move.source = block;
  move.in_slow = slow_->accepts_saves();
  if (move.in_slow) {
    slow_->save(id, page, block);
  } else {
    move.status = unavailable("the slower tier takes no blocks now");
  }
  if (!begin_copy(id, move, block) && !move.in_slow) finish(id);
}

// False: the fast tier takes no block now.
bool StackedTier::begin_copy(std::uint64_t id, Move& move, std::span<const std::byte> block) {
  if (!fast_->accepts_saves()) return false;
  const std::int32_t copy = copies_.begin_save();
  if (copy == TierIndex::kNoPage) return false;
  if (copied(copy).page >= 0) lose(copied(copy).page);
  copied(copy) = move.page;
  TierPage there = move.page;
  there.page = copy;
  move.copy = copy;
  move.copies = true;
  fast_->save(id, there, block);
  return true;
}

void StackedTier::load(std::uint64_t id, const TierPage& page, std::span<std::byte> block) {
  Move& move = moves_[id];
  move.page = page;
  move.target = block;
  const std::int32_t copy = copies_.find(key(page.page), 0);
  if (copy == TierIndex::kNoPage) {
    move.in_slow = true;
    slow_->load(id, page, block);
    return;
  }
  move.copy = copy;
  copies_.begin_load(copy);
  fast_->touch(copy);
  TierPage there = page;
  there.page = copy;
  fast_->load(id, there, block);
}

void StackedTier::touch(std::int32_t page) {
  // Else it would note the use of the block that the page had before.
  if (!only_fast_.contains(page)) slow_->touch(page);
}

void StackedTier::erase(std::int32_t page) {
  slow_->erase(page);
  forget_copy(page);
  only_fast_.erase(page);
}

void StackedTier::forget_copy(std::int32_t page) {
  const std::int32_t copy = copies_.forget(key(page), 0);
  if (copy == TierIndex::kNoPage) return;
  copied(copy).page = -1;
  fast_->erase(copy);
}

void StackedTier::lose(std::int32_t page) {
  const auto found = only_fast_.find(page);
  if (found == only_fast_.end()) return;
  lost_.push_back(found->second);
  only_fast_.erase(found);
}

// ---------------------------------------------------------------- the ends

void StackedTier::end_fast(std::uint64_t id, Move& move, const Status& status) {
  const std::int32_t copy = move.copy;
  if (move.copies) {
    end_copy(move, status.has_value());
    return finish(id);
  }
  move.copy = -1;
  const bool unreadable = !status && status.error().code == ErrorCode::kUnavailable;
  const PageLoadEnd end = status       ? PageLoadEnd::kLoaded
                          : unreadable ? PageLoadEnd::kUnreadable
                                       : PageLoadEnd::kDamaged;
  copies_.end_load(copy, key(move.page.page), 0, end);
  if (end == PageLoadEnd::kLoaded) {
    ++levels_.fast.loaded_blocks;
    return finish(id);
  }
  if (end == PageLoadEnd::kDamaged) {
    copied(copy).page = -1;
    fast_->erase(copy);
    only_fast_.erase(move.page.page);  // the slow tier says so
  }
  move.in_slow = true;
  slow_->load(id, move.page, move.target);
}

void StackedTier::end_copy(Move& move, bool saved) {
  const std::int32_t copy = std::exchange(move.copy, -1);
  if (!move.saves()) --promotions_;
  copies_.end_save(copy, key(move.page.page), 0, saved);
  if (saved) ++levels_.fast.saved_blocks;
  if (!copies_.is_empty(copy)) return;
  copied(copy).page = -1;
  if (saved) fast_->erase(copy);
}

void StackedTier::end_slow(std::uint64_t id, Move& move, Status status) {
  move.in_slow = false;
  move.status = std::move(status);
  if (move.saves()) {
    levels_.slow.saved_blocks += move.status ? 1 : 0;
  } else if (move.status) {
    ++levels_.slow.loaded_blocks;
    if (promotions_ < kMostPromotions && copies_.find(key(move.page.page), 0) < 0 &&
        begin_copy(id, move, move.target)) {
      ++promotions_;
    }
  }
  finish(id);
}

// Reports the end of a move unless a part of it is under way.
void StackedTier::finish(std::uint64_t id) {
  const auto found = moves_.find(id);
  Move& move = found->second;
  if (move.in_slow || move.copy >= 0) return;
  if (move.saves() && !move.status && copies_.find(key(move.page.page), 0) >= 0) {
    only_fast_[move.page.page] = move.page;
    move.status = {};
  }
  ended_.push_back({id, std::move(move.status)});
  moves_.erase(found);
}

void StackedTier::advance() {
  parts_.clear();
  fast_->poll(parts_);
  for (TierMove& part : parts_) end_fast(part.id, moves_.at(part.id), part.status);
  take_lost_copies();
  parts_.clear();
  slow_->poll(parts_);
  for (TierMove& part : parts_) end_slow(part.id, moves_.at(part.id), std::move(part.status));
}

// After the ends, because a copy that is lost right after its save has been made by then.
void StackedTier::take_lost_copies() {
  lost_copies_.clear();
  fast_->take_lost(lost_copies_);
  for (const TierPage& lost : lost_copies_) {
    const TierPage& block = copied(lost.page);
    if (block.page < 0 || block.name != lost.name || block.group != lost.group) continue;
    if (copies_.find(key(block.page), 0) != lost.page) continue;
    copies_.forget(key(block.page), 0);
    lose(std::exchange(copied(lost.page).page, -1));
  }
}

void StackedTier::poll(std::vector<TierMove>& ended) {
  advance();
  std::ranges::move(ended_, std::back_inserter(ended));
  ended_.clear();
}

void StackedTier::take_lost(std::vector<TierPage>& lost) {
  slow_->take_lost(lost);
  lost.insert(lost.end(), lost_.begin(), lost_.end());
  lost_.clear();
}

// A tier can only be waited for alone, so it looks at them in turns while both have moves.
void StackedTier::wait(Duration at_most) {
  constexpr Duration kTurn = std::chrono::microseconds(200);
  const SystemClock clock;
  const TimePoint end = clock.now() + at_most;
  while (true) {
    advance();
    const Duration rest = end - clock.now();
    if (!ended_.empty() || rest <= Duration{0}) return;
    const auto in_fast =
        std::ranges::any_of(moves_, [](const auto& entry) { return entry.second.copy >= 0; });
    const auto in_slow =
        std::ranges::any_of(moves_, [](const auto& entry) { return entry.second.in_slow; });
    if (in_fast) fast_->wait(in_slow ? std::min(rest, kTurn) : rest);
    if (in_slow || !in_fast) slow_->wait(in_fast ? std::min(rest, kTurn) : rest);
  }
}

}  // namespace sluice
