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
    CHECK(place->sequence == nullptr);  // the entry of a sequence that left and returns
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
}

std::size_t WaitingQueue::find(ServiceOrder order) const {
  const std::span<const WaitingEntry> all = entries();
  const auto place = std::lower_bound(all.begin(), all.end(), order, comes_before);
  const bool here = place != all.end() && place->order == order && place->sequence != nullptr;
  return here ? static_cast<std::size_t>(place - all.begin()) : all.size();
}

// Amortized, an entry moves at most once for each entry removed. The space at the front is kept for
// entries that return.
void WaitingQueue::compact() {
  while (head_ < entries_.size() && entries_[head_].sequence == nullptr) ++head_;
  if (entries_.size() <= 2 * size_) return;
  std::erase_if(entries_, [](const WaitingEntry& entry) { return entry.sequence == nullptr; });
  head_ = 0;
}

}  // namespace sluice
