#include "scheduler/adapter_slots.h"

#include <algorithm>

#include "base/check.h"

namespace sluice {

AdapterSlots::AdapterSlots(const AdapterOptions& options)
    : options_(options),
      slots_(index(options.num_slots)),
      adapters_(index(options.num_slots > 0 ? options.num_adapters : 0)) {
  CHECK(options.num_slots >= 0 && options.num_adapters >= 0 && options.turn.count() >= 0);
}

void AdapterSlots::join_line(std::int32_t adapter) {
  Adapter& entry = adapters_[index(adapter)];
  entry.in_line = true;
  entry.previous = line_tail_;
  entry.next = -1;
  (line_tail_ < 0 ? line_head_ : adapters_[index(line_tail_)].next) = adapter;
  line_tail_ = adapter;
  ++line_size_;
}

void AdapterSlots::leave_line(std::int32_t adapter) {
  Adapter& entry = adapters_[index(adapter)];
  (entry.previous < 0 ? line_head_ : adapters_[index(entry.previous)].next) = entry.next;
  (entry.next < 0 ? line_tail_ : adapters_[index(entry.next)].previous) = entry.previous;
  entry.in_line = false;
  --line_size_;
}

// The line has the adapters with waiting sequences that are neither loading nor resident.
void AdapterSlots::update_line(std::int32_t adapter) {
  const Adapter& entry = adapters_[index(adapter)];
  const bool wanted = entry.slot < 0 && entry.waiting > 0;
  if (wanted && !entry.in_line) join_line(adapter);
  if (!wanted && entry.in_line) leave_line(adapter);
}

void AdapterSlots::add_waiting(std::int32_t adapter) {
  ++adapters_[index(adapter)].waiting;
  update_line(adapter);
}

void AdapterSlots::remove_waiting(std::int32_t adapter) {
  CHECK(adapters_[index(adapter)].waiting > 0);
  --adapters_[index(adapter)].waiting;
  update_line(adapter);
}

std::int32_t AdapterSlots::acquire(std::int32_t adapter) {
  CHECK(ready(adapter));
  const std::int32_t slot = adapters_[index(adapter)].slot;
  ++slots_[index(slot)].users;
  slots_[index(slot)].last_used = ++uses_;
  return slot;
}

void AdapterSlots::release(std::int32_t adapter) {
  const std::int32_t slot = adapters_[index(adapter)].slot;
  CHECK(slot >= 0 && slots_[index(slot)].users > 0);
  --slots_[index(slot)].users;
  slots_[index(slot)].last_used = ++uses_;
}

std::int32_t AdapterSlots::complete(const TransferResult& result, TimePoint now) {
  const auto found = std::find_if(slots_.begin(), slots_.end(), [&](const Slot& slot) {
    return slot.state == State::kLoading && slot.transfer == result.id;
  });
  CHECK(found != slots_.end());
  --num_loading_;
  const std::int32_t adapter = found->adapter;
  if (result.failed) {
    *found = {};
    adapters_[index(adapter)].slot = -1;
    return adapter;
  }
  found->state = State::kResident;
  found->since = now;
  return adapter;
}

// Empty slots first, then slots whose adapter no sequence uses or waits for, least recently used
// first, then closed slots.
std::int32_t AdapterSlots::slot_to_take() const {
  std::int32_t best = -1;
  const auto rank = [&](const Slot& slot) {
    if (slot.state == State::kEmpty) return 0;
    return slot.closed && adapters_[index(slot.adapter)].waiting > 0 ? 2 : 1;
  };
  for (std::int32_t s = 0; s < options_.num_slots; ++s) {
    const Slot& slot = slots_[index(s)];
    if (slot.state == State::kLoading || slot.users > 0) continue;
    const bool wanted =
        slot.state == State::kResident && adapters_[index(slot.adapter)].waiting > 0;
    if (wanted && !slot.closed) continue;
    if (best >= 0) {
      const Slot& other = slots_[index(best)];
      if (std::pair(rank(other), other.last_used) <= std::pair(rank(slot), slot.last_used))
        continue;
    }
    best = s;
  }
  return best;
}

void AdapterSlots::start_load(std::int32_t adapter, std::int32_t slot, TransferId id) {
  Slot& place = slots_[index(slot)];
  const std::int32_t old = place.adapter;
  if (place.closed) --num_closed_;
  place = {};
  place.state = State::kLoading;
  place.adapter = adapter;
  place.transfer = id;
  place.last_used = ++uses_;
  adapters_[index(adapter)].slot = slot;
  leave_line(adapter);
  ++num_loading_;
  if (old < 0) return;
  adapters_[index(old)].slot = -1;
  update_line(old);  // at its end
}

std::int32_t AdapterSlots::slot_to_close(TimePoint now, std::int32_t first, bool at_once) const {
  std::int32_t best = -1;
  for (std::int32_t s = 0; s < options_.num_slots; ++s) {
    const Slot& slot = slots_[index(s)];
    if (slot.state != State::kResident || slot.closed || slot.adapter == first) continue;
    if (!at_once && now - slot.since < options_.turn) continue;
    if (best < 0 || slot.since < slots_[index(best)].since) best = s;
  }
  return best;
}

// One closed or loading slot serves one adapter of the line.
void AdapterSlots::close_slots(TimePoint now, std::int32_t first) {
  const bool first_waits = first >= 0 && adapters_[index(first)].in_line;
  while (num_closed_ < line_size_) {
    const std::int32_t slot = slot_to_close(now, first, first_waits && num_closed_ == 0);
    if (slot < 0) return;
    slots_[index(slot)].closed = true;
    ++num_closed_;
  }
}

void AdapterSlots::plan_loads(TimePoint now, std::int32_t first, TransferId& next_id,
                              std::vector<PlanTransfer>& out) {
  const std::int32_t kept = first >= 0 ? adapters_[index(first)].slot : -1;
  if (kept >= 0 && slots_[index(kept)].closed) {
    slots_[index(kept)].closed = false;
    --num_closed_;
  }
  while (line_size_ > 0) {
    const bool first_waits = first >= 0 && adapters_[index(first)].in_line;
    std::int32_t slot = slot_to_take();
    if (slot < 0) {
      close_slots(now, first);
      slot = slot_to_take();
    }
    if (slot < 0) return;
    const std::int32_t adapter = first_waits ? first : head();
    start_load(adapter, slot, next_id);
    out.push_back({next_id++, TransferKind::kLoadAdapter, adapter, slot});
  }
  if (num_closed_ == 0) return;
  for (Slot& slot : slots_) slot.closed = false;
  num_closed_ = 0;
}

void AdapterSlots::check_integrity(std::int64_t waiting, std::int64_t running) const {
  std::int32_t loading = 0;
  std::int32_t closed = 0;
  for (std::int32_t s = 0; s < options_.num_slots; ++s) {
    const Slot& slot = slots_[index(s)];
    CHECK((slot.state == State::kEmpty) == (slot.adapter < 0));
    CHECK(slot.adapter < 0 || adapters_[index(slot.adapter)].slot == s);
    CHECK(slot.state == State::kResident || (slot.users == 0 && !slot.closed));
    CHECK(slot.users >= 0);
    loading += slot.state == State::kLoading ? 1 : 0;
    closed += slot.closed ? 1 : 0;
    running -= slot.users;
  }
  CHECK(running == 0 && loading == num_loading_ && closed == num_closed_);
  std::int32_t in_line = 0;
  for (const Adapter& adapter : adapters_) {
    CHECK(adapter.waiting >= 0);
    waiting -= adapter.waiting;
    CHECK(adapter.in_line == (adapter.slot < 0 && adapter.waiting > 0));
    in_line += adapter.in_line ? 1 : 0;
    if (adapter.slot < 0) continue;
    CHECK(&adapters_[index(slots_[index(adapter.slot)].adapter)] == &adapter);
  }
  CHECK(waiting == 0 && in_line == line_size_);
  std::int32_t listed = 0;
  std::int32_t previous = -1;
  for (std::int32_t a = line_head_; a >= 0; a = adapters_[index(a)].next) {
    CHECK(adapters_[index(a)].in_line && adapters_[index(a)].previous == previous);
    previous = a;
    CHECK(++listed <= line_size_);
  }
  CHECK(listed == line_size_ && previous == line_tail_);
}

}  // namespace sluice
