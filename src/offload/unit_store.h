// UnitStore: byte strings of various sizes in memory of a fixed size, one for each page number. The
// memory is divided into units. A string takes as many units as it needs, anywhere, so memory is
// lost at the end of its last unit only, and nothing is ever moved. When no unit is free, the
// string that was used least recently makes room, except those of pages that are kept. Each string
// is checked with a hash when it is read.
//
// The system supplies memory as units are first used. Owner: a tier. Threads: put(), get() and
// clear() are called by one thread, all others by any. REQUIRES: no put() or get() of a page runs
// beside an erase() of it. Allocation: none after create(), except in
// `dropped`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/hash128.h"
#include "base/result.h"

namespace sluice {

class UnitStore {
 public:
  // kInvalidArgument: no unit fits. kResourceExhausted: the system has no such memory.
  static Result<std::unique_ptr<UnitStore>> create(std::int64_t max_bytes, std::int64_t unit_bytes,
                                                   std::int32_t num_pages);

  std::int32_t num_pages() const { return static_cast<std::int32_t>(pages_.size()); }
  std::int64_t unit_bytes() const { return unit_bytes_; }

  // Replaces the page's string. Appends the pages whose strings made room to `dropped`.
  // kResourceExhausted: all units together, without those of kept pages, are too few.
  Status put(std::int32_t page, std::span<const std::byte> bytes,
             std::vector<std::int32_t>& dropped);
  // Copies the page's string to the front of `out`; returns its size. kNotFound: the page has none.
  // kInvalidArgument: its bytes were changed. REQUIRES: `out` is large enough.
  Result<std::size_t> get(std::int32_t page, std::span<std::byte> out) const;

  // The page's strings, this one and later ones, make no room for others until release().
  void keep(std::int32_t page);
  void release(std::int32_t page);
  void touch(std::int32_t page);
  void erase(std::int32_t page);
  // Erases all strings, appends their pages to `dropped`, and gives the memory back to the system.
  // put() is then refused.
  void clear(std::vector<std::int32_t>& dropped);

  std::int64_t held_bytes() const;  // of all strings, in whole units
  std::span<std::byte> memory() { return {memory_.get(), next_.size() * unit()}; }

 private:
  using Unit = std::uint32_t;
  static constexpr Unit kNoUnit = ~Unit{0};
  static constexpr std::int32_t kNoPage = -1;

  struct Page {
    Unit first = kNoUnit;
    std::size_t bytes = 0;
    Hash128 hash;
    bool kept = false;
    // Its neighbours by time of use; the pages that have a string and are not kept.
    std::int32_t older = kNoPage;
    std::int32_t newer = kNoPage;
  };

  struct Unmap {
    std::size_t bytes = 0;
    void operator()(std::byte* memory) const;
  };
  using Memory = std::unique_ptr<std::byte, Unmap>;

  UnitStore(Memory memory, std::int64_t unit_bytes, std::int64_t num_units, std::int32_t num_pages);
  std::size_t unit() const { return static_cast<std::size_t>(unit_bytes_); }
  Page& at(std::int32_t page) { return pages_[static_cast<std::size_t>(page)]; }
  const Page& at(std::int32_t page) const { return pages_[static_cast<std::size_t>(page)]; }
  std::byte* address(Unit number) const { return memory_.get() + std::size_t{number} * unit(); }
  std::size_t units_for(std::size_t bytes) const;
  Unit take_units(std::size_t count);
  void drop(std::int32_t page);
  void link_newest(std::int32_t page);
  void unlink(std::int32_t page);

  Memory memory_;
  const std::int64_t unit_bytes_;
  mutable std::mutex mutex_;
  // Guarded by mutex_. A page's units are read outside of it: only erase(), put() and clear() of
  // the page release them.
  std::vector<Unit> next_;  // by unit: of the same string, or of the list of free units
  Unit free_ = kNoUnit;
  std::size_t num_free_ = 0;
  std::size_t num_fresh_ = 0;  // units at the end of the memory that were never used
  std::vector<Page> pages_;
  std::int32_t oldest_ = kNoPage;
  std::int32_t newest_ = kNoPage;
};

}  // namespace sluice
