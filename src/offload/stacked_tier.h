// StackedTier: a fast tier before a slow one, as one tier: `--kv-ram` before `--kv-disk`.
//
// The pages of the stack are those of the slow tier, and every block is saved in both. So what the
// slow tier alone would keep over a restart or a kill, the stack keeps, and a block that leaves the
// fast tier for lack of room costs no write. A block is loaded from the fast tier if it has a copy,
// else, and when that copy fails, from the slow one. A block that came from the slow tier is then
// copied to the fast one, at most kMostPromotions at a time, because the load ends after its copy.
//
// A save ends well when one of both has the block. While the slow tier takes none, blocks are in
// the fast tier only; when one of these makes room there, take_lost() reports it. The slow tier
// keeps what it had in such a page, for the next process.
//
// Owner: the engine's executor. Threads: KvTier's; those of both tiers, none of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/hash128.h"
#include "base/result.h"
#include "base/rng.h"
#include "kv/tier_index.h"
#include "offload/kv_tier.h"

namespace sluice {

class StackedTier final : public KvTier {
 public:
  static constexpr int kMostPromotions = 2;

  // REQUIRES: both have blocks of the same size; nothing is in the fast tier.
  StackedTier(std::unique_ptr<KvTier> fast, std::unique_ptr<KvTier> slow);

  std::int32_t num_pages() const override { return slow_->num_pages(); }
  std::vector<TierPage> take_stored() override { return slow_->take_stored(); }
  bool accepts_saves() const override { return slow_->accepts_saves() || fast_->accepts_saves(); }
  void save(std::uint64_t id, const TierPage& page, std::span<const std::byte> block) override;
  void load(std::uint64_t id, const TierPage& page, std::span<std::byte> block) override;
  void touch(std::int32_t page) override;
  void erase(std::int32_t page) override;
  void poll(std::vector<TierMove>& ended) override;
  void take_lost(std::vector<TierPage>& lost) override;
  void wait(Duration at_most) override;
  Status flush(Duration at_most) override { return slow_->flush(at_most); }
  std::int64_t memory_bytes() const override {
    return fast_->memory_bytes() + slow_->memory_bytes();
  }
  TierLevels levels() const override { return levels_; }

 private:
  struct Move {
    TierPage page;
    std::span<std::byte> target;        // of a load
    std::span<const std::byte> source;  // of a save
    std::int32_t copy = -1;             // the page of the fast tier that it uses now
    bool copies = false;                // to that page; else from it
    bool in_slow = false;               // it is under way there
    Status status;                      // the slow tier's

    bool saves() const { return !source.empty(); }
  };

  // The name of a stack's page in copies_.
  static Hash128 key(std::int32_t page) {
    return {0, SplitMix64(static_cast<std::uint64_t>(page))()};  // a permutation
  }
  TierPage& copied(std::int32_t copy) { return copied_[static_cast<std::size_t>(copy)]; }
  bool begin_copy(std::uint64_t id, Move& move, std::span<const std::byte> block);
  void forget_copy(std::int32_t page);
  // The fast tier has the block no more.
  void lose(std::int32_t page);
  void advance();
  void end_fast(std::uint64_t id, Move& move, const Status& status);
  void end_copy(Move& move, bool saved);
  void end_slow(std::uint64_t id, Move& move, Status status);
  void finish(std::uint64_t id);
  void take_lost_copies();

  const std::unique_ptr<KvTier> fast_;
  const std::unique_ptr<KvTier> slow_;
  TierIndex copies_;              // which page of the stack each page of the fast tier copies
  std::vector<TierPage> copied_;  // the same by page of the fast tier; page -1: none
  std::unordered_map<std::uint64_t, Move> moves_;
  std::unordered_map<std::int32_t, TierPage> only_fast_;  // by page of the stack
  std::vector<TierMove> ended_;                           // not reported yet
  std::vector<TierPage> lost_;                            // not reported yet
  std::vector<TierMove> parts_;
  std::vector<TierPage> lost_copies_;
  int promotions_ = 0;  // under way
  TierLevels levels_{.are_two = true, .fast = {}, .slow = {}};
};

}  // namespace sluice
