#include "offload/stacked_tier.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace sluice {
namespace {

// A tier can only be waited for alone, so both are looked at in turns while both have moves.
constexpr Duration kTurn = std::chrono::microseconds(200);

}  // namespace

StackedTier::StackedTier(std::unique_ptr<KeepingTier> fast, std::unique_ptr<KvTier> slow,
                         WriteBehind writes)
    : copies_(fast->num_pages()),
      copied_(static_cast<std::size_t>(fast->num_pages()),
              TierPage{.page = -1, .name = {}, .tenant = {}}),
      fast_(std::move(fast)),
      slow_(std::move(slow)) {
  if (writes == WriteBehind::kByThread) thread_ = std::thread([this] { run_writes(); });
}

StackedTier::~StackedTier() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  news_.notify_all();
  if (thread_.joinable()) thread_.join();
}

TierLevels StackedTier::levels() const {
  const std::lock_guard lock(mutex_);
  return levels_;
}

// ---------------------------------------------------------------- the beginnings

void StackedTier::save(std::uint64_t id, const TierPage& page, std::span<const std::byte> block) {
  const std::lock_guard lock(mutex_);
  block_bytes_ = block.size();
  Move& move = moves_[id];
  move.page = page;
  move.source = block;
  Write* const write = write_of(page.page);
  if (write == nullptr) return begin_save(id, move);
  only_fast_.erase(page.page);
  write->next = id;
}

void StackedTier::begin_save(std::uint64_t id, Move& move) {
  forget_copy(move.page.page);
  only_fast_.erase(move.page.page);
  move.status = unavailable("the slower tier takes no blocks now");
  const bool accepts = slow_->accepts_saves();
  const bool behind = move.page.haste == SaveHaste::kAwaited && kept_.size() < most_kept();
  if (accepts && !behind) begin_slow_save(id, move);
  if (begin_copy(id, move, move.source, accepts && behind) || move.in_slow) return;
  accepts ? begin_slow_save(id, move) : finish(id);
}

void StackedTier::begin_slow_save(std::uint64_t id, Move& move) {
  move.in_slow = true;
  move.tried_slow = true;
  slow_->save(id, move.page, move.source);
}

// False: the fast tier takes no block now.
bool StackedTier::begin_copy(std::uint64_t id, Move& move, std::span<const std::byte> block,
                             bool keeps) {
  if (!fast_->accepts_saves()) return false;
  const std::int32_t copy = copies_.begin_save();
  if (copy == TierIndex::kNoPage) return false;
  if (copied(copy).page >= 0) {
    lose(copied(copy).page);
    note_level(copied(copy).page);
  }
  CHECK(!kept_.contains(copy));
  copied(copy) = move.page;
  TierPage there = move.page;
  there.page = copy;
  // A load ends with its copy, which therefore must not rest.
  if (!move.saves()) there.haste = SaveHaste::kAwaited;
  move.copy = copy;
  move.copies = true;
  if (keeps) {
    kept_.insert(copy);
    fast_->keep(copy);
  }
  fast_->save(id, there, block);
  return true;
}

void StackedTier::load(std::uint64_t id, const TierPage& page, std::span<std::byte> block) {
  const std::lock_guard lock(mutex_);
  Move& move = moves_[id];
  move.page = page;
  move.target = block;
  begin_load(id, move);
}

void StackedTier::begin_load(std::uint64_t id, Move& move) {
  const std::int32_t copy = copies_.find(key(move.page.page), 0);
  if (copy == TierIndex::kNoPage) return begin_slow_load(id, move);
  move.copy = copy;
  copies_.begin_load(copy);
  fast_->touch(copy);
  TierPage there = move.page;
  there.page = copy;
  fast_->load(id, there, move.target);
}

void StackedTier::begin_slow_load(std::uint64_t id, Move& move) {
  Write* const write = write_of(move.page.page);
  if (write != nullptr) {
    write->next = id;
    return;
  }
  move.in_slow = true;
  slow_->load(id, move.page, move.target);
}

void StackedTier::touch(std::int32_t page) {
  const std::lock_guard lock(mutex_);
  // Else it would note the use of the block that the page had before.
  if (!only_fast_.contains(page)) slow_->touch(page);
}

void StackedTier::erase(std::int32_t page) {
  const std::lock_guard lock(mutex_);
  only_fast_.erase(page);
  Write* const write = write_of(page);
  if (write == nullptr) return erase_now(page);
  write->erases = true;
}

void StackedTier::erase_now(std::int32_t page) {
  slow_->erase(page);
  forget_copy(page);
}

void StackedTier::forget_copy(std::int32_t page) {
  const std::int32_t copy = copies_.forget(key(page), 0);
  if (copy == TierIndex::kNoPage) return;
  clear_copy(copy);
  fast_->erase(copy);
}

// Called when a copy of this page has come or gone.
void StackedTier::note_level(std::int32_t page) {
  const bool fast = copies_.find(key(page), 0) != TierIndex::kNoPage;
  level_changes_.push_back({page, fast ? TierLevel::kFast : TierLevel::kSlow});
}

void StackedTier::clear_copy(std::int32_t copy) {
  note_level(copied(copy).page);
  copied(copy).page = -1;
  release(copy);
}

// After a load that found the copy damaged, unless another load of it is under way.
void StackedTier::drop_if_empty(std::int32_t copy) {
  if (copied(copy).page < 0 || !copies_.is_empty(copy)) return;
  clear_copy(copy);
  fast_->erase(copy);
}

void StackedTier::release(std::int32_t copy) {
  if (kept_.erase(copy) > 0) fast_->release(copy);
}

void StackedTier::lose(std::int32_t page) {
  const auto found = only_fast_.find(page);
  if (found == only_fast_.end()) return;
  lost_.push_back(found->second.page);
  only_fast_.erase(found);
}

// ---------------------------------------------------------------- the ends

void StackedTier::end_fast(std::uint64_t id, Move& move, const Status& status) {
  if (move.copies) {
    end_copy(id, move, status.has_value());
    return finish(id);
  }
  const std::int32_t copy = std::exchange(move.copy, -1);
  const PageLoadEnd end = page_load_end(status);
  copies_.end_load(copy, key(move.page.page), 0, end);
  drop_if_empty(copy);  // the write beside it may have found it damaged
  if (end == PageLoadEnd::kLoaded) {
    ++levels_.fast.loaded_blocks;
    return finish(id);
  }
  if (only_fast_.contains(move.page.page)) {
    if (end == PageLoadEnd::kDamaged) only_fast_.erase(move.page.page);
    move.status = status;
    return finish(id);
  }
  begin_slow_load(id, move);
}

void StackedTier::end_copy(std::uint64_t id, Move& move, bool saved) {
  const std::int32_t copy = std::exchange(move.copy, -1);
  if (!move.saves()) --promotions_;
  copies_.end_save(copy, key(move.page.page), 0, saved);
  if (saved) ++levels_.fast.saved_blocks;
  if (!copies_.is_empty(copy)) {
    note_level(move.page.page);
    if (kept_.contains(copy)) copies_.protect(key(move.page.page), 0);
    return;
  }
  clear_copy(copy);
  if (saved) fast_->erase(copy);
  if (move.saves() && !move.tried_slow && slow_->accepts_saves()) begin_slow_save(id, move);
}

void StackedTier::end_slow(std::uint64_t id, Move& move, Status status) {
  move.in_slow = false;
  move.status = std::move(status);
  if (move.saves()) {
    levels_.slow.saved_blocks += move.status ? 1 : 0;
  } else if (move.status) {
    ++levels_.slow.loaded_blocks;
    if (promotions_ < kMostPromotions && copies_.find(key(move.page.page), 0) < 0 &&
        begin_copy(id, move, move.target, false)) {
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
    add_waiting(move.page);
    move.status = {};
  }
  ended_.push_back({id, std::move(move.status)});
  moves_.erase(found);
}

void StackedTier::advance() {
  parts_.clear();
  fast_->poll(parts_);
  for (const TierMove& part : parts_) {
    const auto write = writes_.find(part.id);
    if (write != writes_.end()) {
      end_read(part.id, write->second, part.status);
    } else {
      end_fast(part.id, moves_.at(part.id), part.status);
    }
  }
  take_lost_copies();
  parts_.clear();
  slow_->poll(parts_);
  for (TierMove& part : parts_) {
    if (writes_.contains(part.id)) {
      end_write(part.id, part.status.has_value());
    } else {
      end_slow(part.id, moves_.at(part.id), std::move(part.status));
    }
  }
  begin_writes();
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
    lose(block.page);
    clear_copy(lost.page);
  }
}

void StackedTier::poll(std::vector<TierMove>& ended) {
  const std::lock_guard lock(mutex_);
  advance();
  std::ranges::move(ended_, std::back_inserter(ended));
  ended_.clear();
  reported_.insert(reported_.end(), lost_.begin(), lost_.end());
  lost_.clear();
}

void StackedTier::take_lost(std::vector<TierPage>& lost) {
  const std::lock_guard lock(mutex_);
  slow_->take_lost(lost);
  lost.insert(lost.end(), reported_.begin(), reported_.end());
  reported_.clear();
}

void StackedTier::take_levels(std::vector<PageLevel>& changes) {
  const std::lock_guard lock(mutex_);
  changes.insert(changes.end(), level_changes_.begin(), level_changes_.end());
  level_changes_.clear();
}

void StackedTier::wait(Duration at_most) {
  const SystemClock clock;
  const TimePoint end = clock.now() + at_most;
  while (true) {
    bool in_fast = false;
    bool in_slow = false;
    Duration turn = end - clock.now();
    {
      const std::lock_guard lock(mutex_);
      advance();
      if (!ended_.empty() || turn <= Duration{0}) return;
      for (const auto& [id, move] : moves_) {
        in_fast = in_fast || move.copy >= 0;
        in_slow = in_slow || move.in_slow;
      }
      // The thread that writes may take the ends that this call waits for.
      if ((in_fast && in_slow) || has_writes()) turn = std::min(turn, kTurn);
    }
    if (in_fast) fast_->wait(turn);
    if (in_slow || !in_fast) slow_->wait(turn);
  }
}

Status StackedTier::flush(Duration at_most) {
  const SystemClock clock;
  const TimePoint end = clock.now() + at_most;
  bool waits = true;
  while (waits && clock.now() < end) {
    {
      const std::lock_guard lock(mutex_);
      hurries_ = true;
      advance();
      waits = !moves_.empty() || !writes_.empty() || (!waiting_.empty() && slow_->accepts_saves());
    }
    if (waits) slow_->wait(std::min(kTurn, Duration(end - clock.now())));
  }
  Status flushed = slow_->flush(std::max(Duration(end - clock.now()), Duration{0}));
  const std::lock_guard lock(mutex_);
  hurries_ = false;
  if (flushed && waits) {
    return Error{ErrorCode::kDeadlineExceeded, "blocks still wait for the slower tier"};
  }
  return flushed;
}

}  // namespace sluice
