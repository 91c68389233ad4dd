// MemoryTier: a KvTier in host memory, for tests. A move ends at a later poll() and copies its
// bytes only then, so a block that changes too early, or is used too early, shows. Its pages live
// in a store that outlives it, as a folder outlives a process. Threads: one.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <thread>
#include <vector>

#include "base/check.h"
#include "offload/kv_tier.h"

namespace sluice::test {

class MemoryTier final : public KvTier {
 public:
  struct Store {
    struct Page {
      TierPage page;
      std::vector<std::byte> bytes;  // empty: no block
      std::int64_t used = 0;         // Store::uses at the last save or touch
    };
    std::vector<Page> pages;
    std::int64_t saves = 0;
    std::int64_t loads = 0;
    std::int64_t uses = 0;
    bool fail_loads = false;
    std::atomic<bool> takes_saves = true;  // any thread
    Duration pause{0};                     // of each wait for a move
  };
  // REQUIRES: the store outlives this.
  explicit MemoryTier(Store& store) : store_(&store) {}

  std::int32_t num_pages() const override {
    return static_cast<std::int32_t>(store_->pages.size());
  }
  std::vector<TierPage> take_stored() override {
    std::vector<const Store::Page*> pages;
    for (const Store::Page& page : store_->pages) {
      if (!page.bytes.empty()) pages.push_back(&page);
    }
    std::sort(pages.begin(), pages.end(),
              [](const Store::Page* a, const Store::Page* b) { return a->used < b->used; });
    std::vector<TierPage> stored;
    stored.reserve(pages.size());
    for (const Store::Page* page : pages) stored.push_back(page->page);
    return stored;
  }
  bool accepts_saves() const override { return store_->takes_saves; }
  void save(std::uint64_t id, const TierPage& page, std::span<const std::byte> block) override {
    moves_.push_back({id, page, block, {}});
  }
  void load(std::uint64_t id, const TierPage& page, std::span<std::byte> block) override {
    std::fill(block.begin(), block.end(), std::byte{0xFF});
    moves_.push_back({id, page, {}, block});
  }
  void touch(std::int32_t page) override { at(page).used = ++store_->uses; }
  void erase(std::int32_t page) override { at(page).bytes.clear(); }
  // One move a call, the newest first.
  void poll(std::vector<TierMove>& ended) override {
    if (moves_.empty()) return;
    const Move move = moves_.back();
    moves_.pop_back();
    ended.push_back({move.id, run(move)});
  }
  void wait(Duration at_most) override {
    std::this_thread::sleep_for(std::min(at_most, store_->pause));
  }
  Status flush(Duration /*at_most*/) override { return {}; }

 private:
  struct Move {
    std::uint64_t id = 0;
    TierPage page;
    std::span<const std::byte> from;  // to save
    std::span<std::byte> to;          // to load
  };

  Store::Page& at(std::int32_t page) { return store_->pages.at(static_cast<std::size_t>(page)); }
  Status run(const Move& move) {
    Store::Page& page = at(move.page.page);
    if (move.to.empty()) {
      page = {move.page, {move.from.begin(), move.from.end()}, ++store_->uses};
      ++store_->saves;
      return {};
    }
    if (store_->fail_loads) return internal_error("the page is damaged");
    CHECK(page.page.name == move.page.name && page.page.group == move.page.group);
    CHECK(page.bytes.size() == move.to.size());
    std::copy(page.bytes.begin(), page.bytes.end(), move.to.begin());
    ++store_->loads;
    return {};
  }

  Store* store_;
  std::deque<Move> moves_;
};

}  // namespace sluice::test
