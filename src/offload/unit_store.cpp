#include "offload/unit_store.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/content_hash.h"

namespace sluice {

Result<std::unique_ptr<UnitStore>> UnitStore::create(std::int64_t max_bytes,
                                                     std::int64_t unit_bytes,
                                                     std::int32_t num_pages) {
  CHECK(unit_bytes > 0 && num_pages >= 0);
  const std::int64_t units = std::min<std::int64_t>(max_bytes / unit_bytes, kNoUnit - 1);
  if (units < 1 || num_pages < 1) {
    return invalid_argument(fmt::format("{} bytes have no room for a block", max_bytes));
  }
  const auto bytes = static_cast<std::size_t>(units * unit_bytes);
  void* const taken =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (taken == MAP_FAILED) {
    return resource_exhausted(
        fmt::format("the system does not give {} bytes: {}", bytes, std::strerror(errno)));
  }
  Memory memory(static_cast<std::byte*>(taken), Unmap{bytes});
  return std::unique_ptr<UnitStore>(new UnitStore(std::move(memory), unit_bytes, units, num_pages));
}

void UnitStore::Unmap::operator()(std::byte* memory) const { munmap(memory, bytes); }

UnitStore::UnitStore(Memory memory, std::int64_t unit_bytes, std::int64_t num_units,
                     std::int32_t num_pages)
    : memory_(std::move(memory)),
      unit_bytes_(unit_bytes),
      next_(static_cast<std::size_t>(num_units), kNoUnit),
      num_fresh_(next_.size()),
      pages_(static_cast<std::size_t>(num_pages)) {}

std::size_t UnitStore::units_for(std::size_t bytes) const {
  return std::max<std::size_t>((bytes + unit() - 1) / unit(), 1);
}

// A chain of units. REQUIRES: so many are free.
UnitStore::Unit UnitStore::take_units(std::size_t count) {
  Unit first = kNoUnit;
  for (; count > 0; --count) {
    Unit unit = free_;
    if (unit != kNoUnit) {
      free_ = next_[unit];
      --num_free_;
    } else {
      CHECK(num_fresh_ > 0);
      unit = static_cast<Unit>(next_.size() - num_fresh_--);
    }
    next_[unit] = std::exchange(first, unit);
  }
  return first;
}

void UnitStore::drop(std::int32_t page) {
  Page& dropped = at(page);
  if (dropped.first == kNoUnit) return;
  if (!dropped.kept) unlink(page);
  while (dropped.first != kNoUnit) {
    const Unit unit = dropped.first;
    dropped.first = next_[unit];
    next_[unit] = std::exchange(free_, unit);
    ++num_free_;
  }
  dropped.bytes = 0;
}

Status UnitStore::put(std::int32_t page, std::span<const std::byte> bytes,
                      std::vector<std::int32_t>& dropped) {
  const Hash128 hash = content_hash(bytes);
  const std::size_t count = units_for(bytes.size());
  Unit first = kNoUnit;
  {
    const std::lock_guard lock(mutex_);
    drop(page);
    if (count > next_.size()) return resource_exhausted("the memory of the tier is too small");
    while (num_free_ + num_fresh_ < count) {
      if (oldest_ == kNoPage) return resource_exhausted("all blocks of the tier are kept");
      dropped.push_back(oldest_);
      drop(oldest_);
    }
    first = take_units(count);
  }
  // Nothing else knows of these units, and a unit's successor changes only when it is released.
  Unit number = first;
  for (std::size_t offset = 0; offset < bytes.size(); offset += unit(), number = next_[number]) {
    std::memcpy(address(number), bytes.data() + offset, std::min(unit(), bytes.size() - offset));
  }
  const std::lock_guard lock(mutex_);
  Page& put = at(page);
  put.first = first;
  put.bytes = bytes.size();
  put.hash = hash;
  if (!put.kept) link_newest(page);
  return {};
}

Result<std::size_t> UnitStore::get(std::int32_t page, std::span<std::byte> out) const {
  Page found;
  {
    const std::lock_guard lock(mutex_);
    found = at(page);
  }
  if (found.first == kNoUnit) return not_found("the block made room for others");
  CHECK(out.size() >= found.bytes);
  Unit number = found.first;
  for (std::size_t offset = 0; offset < found.bytes; offset += unit(), number = next_[number]) {
    std::memcpy(out.data() + offset, address(number), std::min(unit(), found.bytes - offset));
  }
  if (content_hash(std::span<const std::byte>(out).first(found.bytes)) != found.hash) {
    return invalid_argument(fmt::format("page {} is damaged in memory", page));
  }
  return found.bytes;
}

void UnitStore::keep(std::int32_t page) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(at(page).kept, true) || at(page).first == kNoUnit) return;
  unlink(page);
}

void UnitStore::release(std::int32_t page) {
  const std::lock_guard lock(mutex_);
  if (!std::exchange(at(page).kept, false) || at(page).first == kNoUnit) return;
  link_newest(page);
}

void UnitStore::touch(std::int32_t page) {
  const std::lock_guard lock(mutex_);
  if (at(page).first == kNoUnit || at(page).kept) return;
  unlink(page);
  link_newest(page);
}

void UnitStore::erase(std::int32_t page) {
  const std::lock_guard lock(mutex_);
  drop(page);
}

void UnitStore::clear(std::vector<std::int32_t>& dropped) {
  const std::lock_guard lock(mutex_);
  for (std::int32_t page = 0; page < num_pages(); ++page) {
    if (at(page).first == kNoUnit) continue;
    dropped.push_back(page);
    drop(page);
  }
  next_ = {};
  free_ = kNoUnit;
  num_free_ = 0;
  num_fresh_ = 0;
  memory_.reset();
}

std::int64_t UnitStore::held_bytes() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::int64_t>(next_.size() - num_free_ - num_fresh_) * unit_bytes_;
}

void UnitStore::link_newest(std::int32_t page) {
  Page& linked = at(page);
  linked.older = newest_;
  linked.newer = kNoPage;
  (newest_ == kNoPage ? oldest_ : at(newest_).newer) = page;
  newest_ = page;
}

void UnitStore::unlink(std::int32_t page) {
  const Page& linked = at(page);
  (linked.older == kNoPage ? oldest_ : at(linked.older).newer) = linked.newer;
  (linked.newer == kNoPage ? newest_ : at(linked.newer).older) = linked.older;
}

}  // namespace sluice
