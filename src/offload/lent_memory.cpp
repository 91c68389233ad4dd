#include "offload/lent_memory.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace sluice {
namespace {

std::size_t at(std::int32_t slot) { return static_cast<std::size_t>(slot); }

}  // namespace

void LentMemory::set(const std::string& lender, std::unique_ptr<LentBytes> memory,
                     std::int64_t bytes) {
  std::unique_lock lock(mutex_);
  if (memory == nullptr && !lenders_.contains(lender)) return;
  Lender& l = lenders_[lender];
  if (memory != nullptr) {
    // The blocks of the memory before are lost. Its moves end first, because they use it.
    l.bytes = 0;
    fit(l);
    quiet_.wait(lock, [&] { return std::ranges::all_of(l.busy, [](auto n) { return n == 0; }); });
    l.memory = std::move(memory);
  }
  l.bytes = bytes;
  fit(l);
  const std::size_t used = l.pages.size();
  quiet_.wait(lock, [&] {
    return std::all_of(l.busy.begin() + static_cast<std::ptrdiff_t>(used), l.busy.end(),
                       [](std::int32_t n) { return n == 0; });
  });
  l.busy.resize(used);
}

void LentMemory::forget(const std::string& lender) {
  set(lender, nullptr, 0);
  const std::lock_guard lock(mutex_);
  lenders_.erase(lender);
}

// `busy` stays as long as moves need it.
void LentMemory::fit(Lender& lender) {
  const std::size_t slots =
      page_bytes_ == 0 ? 0 : static_cast<std::size_t>(lender.bytes / page_bytes_);
  for (std::size_t i = slots; i < lender.pages.size(); ++i) {
    if (lender.pages[i] != kFree) drop(lender.pages[i]);
  }
  const std::size_t before = lender.pages.size();
  lender.pages.resize(slots, kFree);
  lender.busy.resize(std::max(lender.busy.size(), slots), 0);
  lender.free.erase(lender.free.lower_bound(static_cast<std::int32_t>(slots)), lender.free.end());
  for (std::size_t i = before; i < slots; ++i) lender.free.insert(static_cast<std::int32_t>(i));
}

void LentMemory::drop(std::int32_t page) {
  const auto place = places_.find(page);
  if (place == places_.end()) return;
  Lender& lender = lenders_.at(place->second.lender);
  lender.pages[at(place->second.index)] = kFree;
  if (lender.busy[at(place->second.index)] == 0) lender.free.insert(place->second.index);
  by_use_.erase(place->second.used);
  places_.erase(place);
}

void LentMemory::use_pages(std::int64_t page_bytes) {
  const std::lock_guard lock(mutex_);
  CHECK(page_bytes > 0 && page_bytes_ == 0);
  page_bytes_ = page_bytes;
  for (auto& [name, lender] : lenders_) fit(lender);
}

std::int64_t LentMemory::usable() const {
  const std::lock_guard lock(mutex_);
  std::int64_t slots = 0;
  for (const auto& [name, lender] : lenders_)
    slots += static_cast<std::int64_t>(lender.pages.size());
  return slots * page_bytes_;
}

std::int64_t LentMemory::held() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::int64_t>(places_.size()) * page_bytes_;
}

std::int64_t LentMemory::given() const {
  const std::lock_guard lock(mutex_);
  std::int64_t bytes = 0;
  for (const auto& [name, lender] : lenders_) bytes += lender.bytes;
  return bytes;
}

LentMemory::Slot LentMemory::take_slot(const std::string& name, std::int32_t index) {
  Lender& lender = lenders_.at(name);
  lender.free.erase(index);
  ++lender.busy[at(index)];
  return {name, index, lender.memory.get(), static_cast<std::uint64_t>(index * page_bytes_)};
}

std::optional<LentMemory::Slot> LentMemory::begin_save(std::int32_t page) {
  const std::lock_guard lock(mutex_);
  drop(page);
  for (const auto& [name, lender] : lenders_) {
    if (!lender.free.empty()) return take_slot(name, *lender.free.begin());
  }
  for (const auto& [used, other] : by_use_) {
    const Place& place = places_.at(other);
    if (lenders_.at(place.lender).busy[at(place.index)] > 0) continue;
    const std::string lender = place.lender;
    const std::int32_t index = place.index;
    drop(other);
    return take_slot(lender, index);
  }
  return std::nullopt;
}

std::optional<LentMemory::Slot> LentMemory::begin_load(std::int32_t page) {
  const std::lock_guard lock(mutex_);
  const auto place = places_.find(page);
  if (place == places_.end()) return std::nullopt;
  return take_slot(place->second.lender, place->second.index);
}

bool LentMemory::end(std::int32_t page, const Slot& slot, bool keep) {
  const std::lock_guard lock(mutex_);
  Lender& lender = lenders_.at(slot.lender);
  --lender.busy[at(slot.index)];
  quiet_.notify_all();
  if (at(slot.index) >= lender.pages.size()) return false;
  const auto place = places_.find(page);
  if (keep && place == places_.end()) {
    lender.pages[at(slot.index)] = page;
    places_[page] = {slot.lender, slot.index, ++uses_};
    by_use_[uses_] = page;
  }
  const std::size_t index = at(slot.index);
  if (lender.pages[index] == kFree && lender.busy[index] == 0) lender.free.insert(slot.index);
  return true;
}

void LentMemory::touch(std::int32_t page) {
  const std::lock_guard lock(mutex_);
  const auto place = places_.find(page);
  if (place == places_.end()) return;
  by_use_.erase(place->second.used);
  place->second.used = ++uses_;
  by_use_[uses_] = page;
}

void LentMemory::erase(std::int32_t page) {
  const std::lock_guard lock(mutex_);
  drop(page);
}

}  // namespace sluice
