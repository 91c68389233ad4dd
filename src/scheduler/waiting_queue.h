// WaitingQueue: sequences without a slot, in the order in which they are admitted: by priority
// (lower first), then by arrival. A preempted sequence keeps its ticket and so returns before all
// sequences that arrived later. The queue is a sorted array with a moving head. Removing a sequence
// leaves an empty entry, which its return fills again or compact() removes; until then all other
// entries keep their positions.
// Appending and removing are O(1), finding and reinserting O(log n); inserting a sequence with a
// better priority moves the entries after it.
// Owner: the scheduler; sequences are borrowed. Threads: the engine's.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "request/sequence.h"

namespace sluice {

// A sequence's place in every first-come order. Tickets are given out by arrival and are unique.
struct ServiceOrder {
  std::int32_t priority = 0;
  std::uint64_t ticket = 0;
  friend constexpr auto operator<=>(const ServiceOrder&, const ServiceOrder&) = default;
};

struct WaitingEntry {
  ServiceOrder order;
  Sequence* sequence = nullptr;  // null: it has left
  std::int32_t client = 0;       // in the ClientLedger
  std::int32_t adapter = -1;     // as Request::adapter
};

class WaitingQueue {
 public:
  void insert(const WaitingEntry& entry);
  // REQUIRES: the entry has a sequence.
  void erase(std::size_t position);
  // The position of the sequence with this place, or entries().size() when there is none.
  std::size_t find(ServiceOrder order) const;
  // Removes empty entries at the front, and all empty entries once they are the majority. Positions
  // change.
  void compact();

  std::size_t size() const { return size_; }  // sequences
  bool empty() const { return size_ == 0; }
  const WaitingEntry& at(std::size_t position) const { return entries_[head_ + position]; }
  // In order of admission, including empty entries.
  std::span<const WaitingEntry> entries() const { return std::span(entries_).subspan(head_); }

 private:
  std::vector<WaitingEntry> entries_;  // [head_, end) is the queue
  std::size_t head_ = 0;
  std::size_t size_ = 0;
};

}  // namespace sluice
