// LentMemory: memory of other processes in which a tier keeps pages, divided into slots of one
// page. Each lender gives LentBytes and says how much of them may be used. That amount falls and
// rises at any time; the blocks beyond it are lost.
// Owner: shared by the tier and by the side that speaks to lenders. Threads: any. Units: bytes.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "offload/lent_bytes.h"

namespace sluice {

class LentMemory {
 public:
  // `most`: of all lenders together. `page_bytes` is set once, by use_pages().
  explicit LentMemory(std::int64_t most) : most_(most) {}

  // ---------------------------------------------------------------- the side of the lenders

  // The first `bytes` of this lender's memory may be used from now on. Returns when no read or
  // write of what is beyond is under way. A null `memory`: the one that the lender has. One thread
  // calls this and forget().
  void set(const std::string& lender, std::unique_ptr<LentBytes> memory, std::int64_t bytes);
  void forget(const std::string& lender);
  std::int64_t most() const { return most_; }
  std::int64_t usable() const;  // in whole pages, of all lenders; before use_pages(): 0
  std::int64_t held() const;    // by blocks
  std::int64_t given() const;   // as set() said, of all lenders

  // ---------------------------------------------------------------- the tier

  // A place in a lender's memory, which stays there until the slot was given back by end().
  struct Slot {
    std::string lender;
    std::int32_t index = 0;
    LentBytes* memory = nullptr;
    std::uint64_t offset = 0;
  };

  void use_pages(std::int64_t page_bytes);
  bool has_room() const { return usable() > 0; }
  // A slot for a page, which loses the one that it had. Without a free slot the page that was used
  // least recently loses its own. Empty: there is no slot that is not in use. end() must follow.
  std::optional<Slot> begin_save(std::int32_t page);
  // The slot of a page that has one. end() must follow.
  std::optional<Slot> begin_load(std::int32_t page);
  // False: the slot was taken away meanwhile. `keep`: the page has the slot from now on.
  bool end(std::int32_t page, const Slot& slot, bool keep);
  void touch(std::int32_t page);
  void erase(std::int32_t page);

 private:
  static constexpr std::int32_t kFree = -1;

  struct Lender {
    std::unique_ptr<LentBytes> memory;
    std::int64_t bytes = 0;           // that may be used
    std::vector<std::int32_t> pages;  // by slot: the page, or kFree
    std::vector<std::int32_t> busy;   // by slot: moves under way
    std::set<std::int32_t> free;      // slots without a page and without moves
  };
  struct Place {
    std::string lender;
    std::int32_t index = 0;
    std::uint64_t used = 0;
  };

  void fit(Lender& lender);  // its slots, to its bytes
  void drop(std::int32_t page);
  Slot take_slot(const std::string& name, std::int32_t index);

  const std::int64_t most_;
  mutable std::mutex mutex_;
  std::condition_variable quiet_;
  std::int64_t page_bytes_ = 0;
  std::map<std::string, Lender> lenders_;
  std::map<std::int32_t, Place> places_;          // by page
  std::map<std::uint64_t, std::int32_t> by_use_;  // the page that was used least recently first
  std::uint64_t uses_ = 0;
};

}  // namespace sluice
