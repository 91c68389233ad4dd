// AdapterSlots: which adapter is in which slot of the adapters region, which loads to start, and
// which adapters may be used now. Bookkeeping of ids only; it moves no bytes.
//
// An adapter is absent, loading or resident. Sequences of a resident adapter may be admitted while
// its slot is open. Absent adapters with waiting sequences queue in a line, first come, first
// served. One exception: the adapter of the first sequence in service order (`first`) is served
// before all others. A load takes an empty slot; if there is none, the least recently used slot
// whose adapter no sequence uses or waits for; if there is none, a closed slot that no sequence
// uses any more. A slot in use is never overwritten.
//
// When no slot can be taken, slots are closed, at most one for each adapter in the line. The
// running sequences of a closed slot finish, and no other sequence is admitted to it. A slot closes
// when its adapter has been resident for a turn, the oldest first; for `first` a slot closes at
// once. The slot of `first` itself stays open. While the line is empty, all slots are open.
//
// Bound: let R be the longest time that a sequence runs and L that of a load. The adapter of the
// first waiting sequence in service order is resident after at most 2 L + R, whatever else arrives.
// The worst case: all slots are loading when the sequence becomes first, then its slot drains, then
// its own adapter loads. Every sequence becomes first once those before it in service order have
// got their slots or have ended.
//
// Owner: the scheduler's state. Threads: the engine's. Allocation: at construction.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "scheduler/transfer.h"

namespace sluice {

struct AdapterOptions {
  std::int32_t num_slots = 0;     // adapters that fit into device memory; 0: none can be used
  std::int32_t num_adapters = 0;  // registered; indices [0, num_adapters)
  // A resident adapter keeps its slot open for this long before another one may take its place.
  Duration turn = std::chrono::milliseconds(500);
};

class AdapterSlots {
 public:
  explicit AdapterSlots(const AdapterOptions& options);

  const AdapterOptions& options() const { return options_; }

  // A sequence of the adapter enters or leaves the waiting queue.
  void add_waiting(std::int32_t adapter);
  void remove_waiting(std::int32_t adapter);
  // Whether sequences of the adapter may be admitted now: the adapter is resident and its slot is
  // open.
  bool ready(std::int32_t adapter) const {
    const std::int32_t slot = adapters_[index(adapter)].slot;
    return slot >= 0 && slots_[index(slot)].state == State::kResident &&
           !slots_[index(slot)].closed;
  }
  // A sequence is admitted; returns the adapter's slot. REQUIRES: ready().
  std::int32_t acquire(std::int32_t adapter);
  // No step in flight names the sequence any more.
  void release(std::int32_t adapter);

  // A load has ended; returns its adapter. A failed load leaves its slot empty and its adapter out
  // of the line; the caller ends the sequences that wait for the adapter. REQUIRES: result.id is in
  // progress.
  std::int32_t complete(const TransferResult& result, TimePoint now);

  // Appends the loads to start now and closes slots. `first`: the adapter of the sequence that
  // comes first in service order, -1 when that sequence has none. Ids count up from `next_id`.
  void plan_loads(TimePoint now, std::int32_t first, TransferId& next_id,
                  std::vector<PlanTransfer>& out);

  // The slot that an adapter is in or being loaded into; -1: none.
  std::int32_t slot_of(std::int32_t adapter) const { return adapters_[index(adapter)].slot; }

  // CHECKs slots, adapters and line against each other, and their sums against the caller's counts
  // of sequences with adapters: `waiting` in the queue, `running` in slots of the running set.
  void check_integrity(std::int64_t waiting, std::int64_t running) const;

 private:
  enum class State : std::uint8_t { kEmpty, kLoading, kResident };
  struct Slot {
    State state = State::kEmpty;
    bool closed = false;
    std::int32_t adapter = -1;
    std::int32_t users = 0;       // sequences that hold a slot of the running set
    TransferId transfer = 0;      // while loading
    TimePoint since;              // resident
    std::uint64_t last_used = 0;  // value of `uses_` at the last use
  };
  struct Adapter {
    std::int32_t slot = -1;
    std::int32_t waiting = 0;  // sequences
    bool in_line = false;
    std::int32_t next = -1;  // in the line
    std::int32_t previous = -1;
  };

  static std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }
  std::int32_t head() const { return line_head_; }
  void join_line(std::int32_t adapter);
  void leave_line(std::int32_t adapter);
  void update_line(std::int32_t adapter);
  std::int32_t slot_to_take() const;
  std::int32_t slot_to_close(TimePoint now, std::int32_t first, bool at_once) const;
  void start_load(std::int32_t adapter, std::int32_t slot, TransferId id);
  void close_slots(TimePoint now, std::int32_t first);

  AdapterOptions options_;
  std::vector<Slot> slots_;
  std::vector<Adapter> adapters_;
  std::int32_t line_head_ = -1;
  std::int32_t line_tail_ = -1;
  std::int32_t line_size_ = 0;
  std::int32_t num_loading_ = 0;
  std::int32_t num_closed_ = 0;
  std::uint64_t uses_ = 0;
};

}  // namespace sluice
