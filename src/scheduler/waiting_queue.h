// WaitingQueue: sequences without a slot, in the order in which they are admitted: by priority
// (lower first), then by arrival. A preempted sequence keeps its ticket and so returns in front of
// all that arrived later. A sorted array with a moving head: adding at the end and taking in front
// are O(1), removal elsewhere moves what lies behind.
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
  Sequence* sequence = nullptr;
  std::int32_t client = 0;  // in the ClientLedger
};

class WaitingQueue {
 public:
  void insert(const WaitingEntry& entry);
  // REQUIRES: position < size().
  void erase(std::size_t position);
  // The position of a sequence, or size() when it is not here.
  std::size_t find(const Sequence& sequence) const;

  std::size_t size() const { return entries_.size() - head_; }
  bool empty() const { return size() == 0; }
  const WaitingEntry& at(std::size_t position) const { return entries_[head_ + position]; }
  // In order of admission.
  std::span<const WaitingEntry> entries() const { return std::span(entries_).subspan(head_); }

 private:
  std::vector<WaitingEntry> entries_;  // [head_, end) is the queue
  std::size_t head_ = 0;
};

}  // namespace sluice
