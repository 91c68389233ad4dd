// The part of StackedTier that writes blocks from the fast tier to the slow one.
#include <chrono>
#include <utility>

#include "offload/stacked_tier.h"

namespace sluice {
namespace {

constexpr std::uint64_t kWriteIds = std::uint64_t{1} << 63;

// Between two looks of the thread.
constexpr auto kLook = std::chrono::milliseconds(1);
constexpr auto kPausedLook = std::chrono::milliseconds(100);  // the slow tier takes no blocks

}  // namespace

void StackedTier::run_writes() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (!has_writes()) {
      news_.wait(lock);
      continue;
    }
    advance();
    const bool paused = writes_.empty() && !slow_->accepts_saves();
    news_.wait_for(lock, paused ? Duration(kPausedLook) : Duration(kLook),
                   [&] { return stopping_; });
  }
}

// At most most_writes() are compared.
StackedTier::Write* StackedTier::write_of(std::int32_t page) {
  for (auto& [id, write] : writes_) {
    if (write.page.page == page) return &write;
  }
  return nullptr;
}

bool StackedTier::still_wanted(std::int32_t page, std::uint64_t ticket) const {
  const auto found = only_fast_.find(page);
  return found != only_fast_.end() && found->second.ticket == ticket;
}

void StackedTier::add_waiting(const TierPage& page) {
  only_fast_[page.page] = {page, ++tickets_};
  waiting_.push_back({page.page, tickets_});
  news_.notify_all();
}

void StackedTier::begin_writes() {
  while (!waiting_.empty() && writes_.size() < most_writes(block_bytes_)) {
    const Waiting next = waiting_.front();
    const std::int32_t copy = copies_.find(key(next.page), 0);
    if (!still_wanted(next.page, next.ticket) || copy == TierIndex::kNoPage) {
      if (still_wanted(next.page, next.ticket)) lose(next.page);
      waiting_.pop_front();
      continue;
    }
    if (!slow_->accepts_saves()) return;
    waiting_.pop_front();
    const std::uint64_t id = kWriteIds | next.ticket;
    Write& write = writes_[id];
    write.page = only_fast_.at(next.page).page;
    write.page.haste = hurries_ ? SaveHaste::kIdle : SaveHaste::kEasy;
    write.ticket = next.ticket;
    if (!spare_.empty()) {
      write.block = std::move(spare_.back());
      spare_.pop_back();
    }
    write.block.resize(block_bytes_);
    write.copy = copy;
    copies_.begin_load(write.copy);
    TierPage there = write.page;
    there.page = write.copy;
    fast_->load(id, there, write.block);
  }
}

// The block has been read from the fast tier, or could not be.
void StackedTier::end_read(std::uint64_t id, Write& write, const Status& status) {
  const std::int32_t page = write.page.page;
  const std::int32_t copy = std::exchange(write.copy, -1);
  const PageLoadEnd end = page_load_end(status);
  copies_.end_load(copy, key(page), 0, end);
  if (end == PageLoadEnd::kDamaged && still_wanted(page, write.ticket)) lose(page);
  drop_if_empty(copy);
  const bool wanted = still_wanted(page, write.ticket);
  if (wanted && end == PageLoadEnd::kLoaded && slow_->accepts_saves()) {
    slow_->save(id, write.page, write.block);
    return;
  }
  if (wanted) waiting_.push_front({page, write.ticket});
  end_write(id, false);
}

// A block whose write fails may make room for others, so that a disk that fails for long does not
// take a part of the fast tier.
void StackedTier::end_write(std::uint64_t id, bool written) {
  const auto found = writes_.find(id);
  Write write = std::move(found->second);
  writes_.erase(found);
  spare_.push_back(std::move(write.block));
  const std::int32_t page = write.page.page;
  if (written) ++levels_.slow.saved_blocks;
  if (still_wanted(page, write.ticket)) {
    const bool waits = !waiting_.empty() && waiting_.front().ticket == write.ticket;
    if (!waits) {
      const std::int32_t copy = copies_.find(key(page), 0);
      copies_.unprotect(key(page), 0);
      release(copy);
      if (written) {
        only_fast_.erase(page);
      } else {
        waiting_.push_back({page, write.ticket});
      }
    }
  }
  if (write.erases) erase_now(page);
  if (write.next == 0) return;
  Move& next = moves_.at(write.next);
  next.saves() ? begin_save(write.next, next) : begin_load(write.next, next);
}

}  // namespace sluice
