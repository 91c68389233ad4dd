#include "scheduler/waiting_queue.h"

#include <algorithm>

#include "base/check.h"

namespace sluice {

namespace {

bool comes_before(const WaitingEntry& entry, ServiceOrder order) { return entry.order < order; }

}  // namespace

void WaitingQueue::insert(const WaitingEntry& entry) {
  CHECK(entry.sequence != nullptr);
  ++size_;
  const auto begin = entries_.begin() + static_cast<std::ptrdiff_t>(head_);
  const auto place = std::lower_bound(begin, entries_.end(), entry.order, comes_before);
  if (place != entries_.end() && place->order == entry.order) {
    CHECK(place->sequence == nullptr);  // it left, and is back
    *place = entry;
  } else if (place == begin && head_ > 0) {
    entries_[--head_] = entry;
  } else {
    entries_.insert(place, entry);
  }
}

void WaitingQueue::erase(std::size_t position) {
  CHECK(position < entries().size() && at(position).sequence != nullptr);
  entries_[head_ + position].sequence = nullptr;
  --size_;
  while (head_ < entries_.size() && entries_[head_].sequence == nullptr) ++head_;
  while (head_ < entries_.size() && entries_.back().sequence == nullptr) entries_.pop_back();
  // Give the room in front back now and then: every entry is moved at most once for each entry
  // that left.
  if (2 * head_ >= entries_.size()) {
    entries_.erase(entries_.begin(), entries_.begin() + static_cast<std::ptrdiff_t>(head_));
    head_ = 0;
  }
}

std::size_t WaitingQueue::find(ServiceOrder order) const {
  const std::span<const WaitingEntry> all = entries();
  const auto place = std::lower_bound(all.begin(), all.end(), order, comes_before);
  const bool here = place != all.end() && place->order == order && place->sequence != nullptr;
  return here ? static_cast<std::size_t>(place - all.begin()) : all.size();
}

void WaitingQueue::compact() {
  if (entries().size() <= 2 * size_) return;
  std::erase_if(entries_, [](const WaitingEntry& entry) { return entry.sequence == nullptr; });
  head_ = 0;
}

}  // namespace sluice
