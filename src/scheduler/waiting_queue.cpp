#include "scheduler/waiting_queue.h"

#include <algorithm>

#include "base/check.h"

namespace sluice {

void WaitingQueue::insert(const WaitingEntry& entry) {
  const auto begin = entries_.begin() + static_cast<std::ptrdiff_t>(head_);
  const auto place = std::upper_bound(
      begin, entries_.end(), entry,
      [](const WaitingEntry& a, const WaitingEntry& b) { return a.order < b.order; });
  if (place == begin && head_ > 0) {
    entries_[--head_] = entry;
    return;
  }
  entries_.insert(place, entry);
}

void WaitingQueue::erase(std::size_t position) {
  CHECK(position < size());
  if (position > 0) {
    entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(head_ + position));
    return;
  }
  ++head_;
  // Give the room in front back now and then: every entry is moved at most once for each entry
  // that left.
  if (2 * head_ >= entries_.size()) {
    entries_.erase(entries_.begin(), entries_.begin() + static_cast<std::ptrdiff_t>(head_));
    head_ = 0;
  }
}

std::size_t WaitingQueue::find(const Sequence& sequence) const {
  const std::span<const WaitingEntry> all = entries();
  const auto found = std::find_if(all.begin(), all.end(), [&](const WaitingEntry& entry) {
    return entry.sequence == &sequence;
  });
  return static_cast<std::size_t>(found - all.begin());
}

}  // namespace sluice
