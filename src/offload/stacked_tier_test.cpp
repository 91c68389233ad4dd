// Two tiers as one: loads come from the fast one if it has the block, nothing that the slow one
// keeps is lost by a restart, and no block is promised that neither has.
#include "offload/stacked_tier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "tests/support/tier_moves.h"

namespace sluice {
namespace {

constexpr std::size_t kBlock = 64;
using Bytes = std::vector<std::byte>;

// Behaviour: what a tier does, and what it has. It outlives the tier as a folder does.
struct Behaviour {
  std::map<std::int32_t, std::pair<TierPage, Bytes>> pages;
  bool accepts = true;
  std::uint64_t fails_one_in = 0;   // of loads and of saves; 0: none fails
  std::uint64_t drops_one_in = 0;   // saves that drop another block; 0: none does
  bool holds_back = false;          // no move ends
  bool ends_moves_late = false;     // those under way end in the destructor, as a thread ends them
  bool in_order = false;            // the oldest move ends first
  std::vector<std::int32_t> begun;  // pages of saves
  std::vector<SaveHaste> hastes;    // of saves
  std::int64_t loads = 0;
  std::int64_t saves = 0;
};

// A tier that ends its moves late, in any order, and fails and drops blocks as it is told.
class RandomTier final : public KeepingTier {
 public:
  RandomTier(Behaviour& told, std::int32_t pages, std::uint64_t seed)
      : told_(told), pages_(pages), random_(seed) {}
  ~RandomTier() override {
    if (!told_.ends_moves_late) return;
    for (const Move& move : moves_) (void)run(move);
  }

  std::int32_t num_pages() const override { return pages_; }
  std::vector<TierPage> take_stored() override {
    std::vector<TierPage> stored;
    for (const auto& [page, kept] : told_.pages) stored.push_back(kept.first);
    return stored;
  }
  bool accepts_saves() const override { return told_.accepts; }
  void save(std::uint64_t id, const TierPage& page, std::span<const std::byte> block) override {
    begin_save(page.page);
    told_.begun.push_back(page.page);
    told_.hastes.push_back(page.haste);
    moves_.push_back({id, page, block, {}});
  }
  void load(std::uint64_t id, const TierPage& page, std::span<std::byte> block) override {
    begin_load(page.page);
    moves_.push_back({id, page, {}, block});
  }
  void touch(std::int32_t /*page*/) override {}
  void keep(std::int32_t page) override { EXPECT_TRUE(kept_.insert(page).second) << page; }
  void release(std::int32_t page) override { EXPECT_EQ(kept_.erase(page), 1U) << page; }
  void erase(std::int32_t page) override {
    EXPECT_FALSE(busy_.contains(page)) << page;
    told_.pages.erase(page);
  }
  void poll(std::vector<TierMove>& ended) override {
    if (told_.holds_back) return;
    for (std::uint64_t count = random_.below(3); count > 0 && !moves_.empty(); --count) {
      const auto at =
          told_.in_order ? 0 : static_cast<std::ptrdiff_t>(random_.below(moves_.size()));
      const Move move = moves_[static_cast<std::size_t>(at)];
      moves_.erase(moves_.begin() + at);
      busy_.erase(busy_.find(move.page.page));
      ended.push_back({move.id, run(move)});
    }
  }
  void take_lost(std::vector<TierPage>& lost) override {
    lost.insert(lost.end(), lost_.begin(), lost_.end());
    lost_.clear();
  }
  void wait(Duration /*at_most*/) override {}
  Status flush(Duration /*at_most*/) override { return {}; }

 private:
  struct Move {
    std::uint64_t id = 0;
    TierPage page;
    std::span<const std::byte> from;
    std::span<std::byte> to;
  };

  void begin_save(std::int32_t page) {
    EXPECT_TRUE(page >= 0 && page < pages_ && !busy_.contains(page)) << page;
    saving_.insert(page);
    busy_.insert(page);
  }
  void begin_load(std::int32_t page) {
    EXPECT_TRUE(page >= 0 && page < pages_ && !saving_.contains(page)) << page;
    busy_.insert(page);
  }
  bool one_in(std::uint64_t n) { return n > 0 && random_.below(n) == 0; }
  Status run(const Move& move) {
    const bool fails = one_in(told_.fails_one_in);
    if (move.to.empty()) {
      saving_.erase(move.page.page);
      told_.pages.erase(move.page.page);
      if (fails) return unavailable("a save failed");
      if (one_in(told_.drops_one_in)) drop();
      told_.pages[move.page.page] = {move.page, Bytes(move.from.begin(), move.from.end())};
      ++told_.saves;
      return {};
    }
    std::ranges::fill(move.to, std::byte{0xEE});
    if (fails) return one_in(2) ? unavailable("busy") : invalid_argument("damaged");
    const auto found = told_.pages.find(move.page.page);
    if (found == told_.pages.end() || found->second.first.name != move.page.name ||
        found->second.first.group != move.page.group) {
      return not_found("the page holds another block");
    }
    std::ranges::copy(found->second.second, move.to.begin());
    ++told_.loads;
    return {};
  }
  void drop() {
    if (told_.pages.empty()) return;
    const auto at = static_cast<std::ptrdiff_t>(random_.below(told_.pages.size()));
    const auto dropped = std::next(told_.pages.begin(), at);
    if (kept_.contains(dropped->first)) return;
    lost_.push_back(dropped->second.first);
    told_.pages.erase(dropped);
  }

  Behaviour& told_;
  const std::int32_t pages_;
  SplitMix64 random_;
  std::vector<Move> moves_;
  std::multiset<std::int32_t> busy_;
  std::set<std::int32_t> saving_;
  std::set<std::int32_t> kept_;
  std::vector<TierPage> lost_;
};

TierPage awaited_page(std::int32_t page, std::uint64_t seed) {
  return {.page = page, .group = 1, .name = {seed, 3}, .tenant = {}, .haste = SaveHaste::kAwaited};
}
TierPage page_of(std::int32_t page, std::uint64_t seed) {
  return {.page = page, .group = 1, .name = {seed, 3}, .tenant = {}};
}
Bytes bytes_of(std::uint64_t seed) { return test::random_block(kBlock, seed); }

class StackedTierTest : public testing::Test {
 protected:
  void open(std::int32_t fast_pages, std::int32_t slow_pages, std::uint64_t seed = 1) {
    fast_.pages.clear();
    tier_ = std::make_unique<StackedTier>(std::make_unique<RandomTier>(fast_, fast_pages, seed),
                                          std::make_unique<RandomTier>(slow_, slow_pages, ~seed),
                                          WriteBehind::kByCaller);
  }
  Status save_awaited(std::int32_t page, std::uint64_t seed) {
    return test::save_block(*tier_, awaited_page(page, seed), bytes_of(seed));
  }
  void expect_in_slow(std::int32_t page, std::uint64_t seed) {
    ASSERT_TRUE(slow_.pages.contains(page)) << page;
    EXPECT_EQ(slow_.pages.at(page).second, bytes_of(seed));
  }
  Status save(std::int32_t page, std::uint64_t seed) {
    return test::save_block(*tier_, page_of(page, seed), bytes_of(seed));
  }
  Status load(std::int32_t page, std::uint64_t seed) {
    return test::load_exactly(*tier_, page_of(page, seed), bytes_of(seed));
  }
  std::vector<TierPage> lost() {
    std::vector<TierPage> pages;
    tier_->take_lost(pages);
    return pages;
  }

  Behaviour fast_;
  Behaviour slow_;
  std::unique_ptr<StackedTier> tier_;
};

TEST_F(StackedTierTest, SavesInBothAndLoadsFromTheFastOne) {
  open(2, 8);
  EXPECT_EQ(tier_->num_pages(), 8);
  EXPECT_TRUE(save(5, 50));
  EXPECT_EQ(fast_.saves, 1);
  EXPECT_EQ(slow_.saves, 1);
  EXPECT_TRUE(load(5, 50));
  EXPECT_EQ(fast_.loads, 1);
  EXPECT_EQ(slow_.loads, 0);
  EXPECT_FALSE(load(5, 51)) << "another block's name";
  EXPECT_TRUE(tier_->levels().are_two);
  EXPECT_EQ(tier_->levels().fast.loaded_blocks, 1);
  EXPECT_EQ(tier_->levels().slow.loaded_blocks, 0);
  EXPECT_EQ(tier_->levels().slow.saved_blocks, 1);
}

TEST_F(StackedTierTest, ABlockThatLeavesTheFastTierComesFromTheSlowOneAndIsFastAgain) {
  open(2, 8);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(save(i, 10 + static_cast<std::uint64_t>(i)));
  EXPECT_EQ(fast_.hastes, std::vector<SaveHaste>(3, SaveHaste::kEasy));
  EXPECT_TRUE(load(0, 10));
  EXPECT_EQ(slow_.loads, 1) << "the one that was used least recently made room";
  EXPECT_EQ(fast_.hastes.back(), SaveHaste::kAwaited) << "a load does not wait for saves that rest";
  EXPECT_TRUE(load(0, 10));
  EXPECT_EQ(slow_.loads, 1);
  EXPECT_TRUE(lost().empty()) << "the slow tier has all of them";
}

TEST_F(StackedTierTest, SaysWhereBlocksAre) {
  open(1, 8);
  const auto changes = [&] {
    std::vector<PageLevel> all;
    tier_->take_levels(all);
    std::vector<std::pair<std::int32_t, TierLevel>> pairs;
    for (const PageLevel& each : all) pairs.push_back({each.page, each.level});
    return pairs;
  };
  using Pairs = std::vector<std::pair<std::int32_t, TierLevel>>;
  EXPECT_TRUE(save(5, 50));
  EXPECT_EQ(changes(), (Pairs{{5, TierLevel::kFast}}));
  EXPECT_TRUE(save(6, 60));
  EXPECT_EQ(changes(), (Pairs{{5, TierLevel::kSlow}, {6, TierLevel::kFast}}));
  EXPECT_TRUE(load(5, 50));
  EXPECT_EQ(changes(), (Pairs{{6, TierLevel::kSlow}, {5, TierLevel::kFast}}));
  tier_->erase(5);
  EXPECT_EQ(changes(), (Pairs{{5, TierLevel::kSlow}}));
}

TEST_F(StackedTierTest, TheBlocksAreThereAfterARestart) {
  open(2, 8);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(save(i, 10 + static_cast<std::uint64_t>(i)));
  open(2, 8);
  EXPECT_EQ(tier_->take_stored().size(), 4U);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(load(i, 10 + static_cast<std::uint64_t>(i)));
}

TEST_F(StackedTierTest, WhileTheSlowTierTakesNothingBlocksAreInTheFastOneUntilTheyMakeRoom) {
  open(2, 8);
  EXPECT_TRUE(save(0, 9));
  slow_.accepts = false;
  EXPECT_TRUE(tier_->accepts_saves());
  EXPECT_TRUE(save(0, 10));
  EXPECT_TRUE(load(0, 10));
  EXPECT_TRUE(save(1, 11));
  EXPECT_TRUE(lost().empty());
  EXPECT_TRUE(save(2, 12));
  const std::vector<TierPage> gone = lost();
  ASSERT_EQ(gone.size(), 1U);
  EXPECT_EQ(gone[0].page, 0);
  EXPECT_EQ(gone[0].name, page_of(0, 10).name);
  EXPECT_EQ(gone[0].group, 1);
  EXPECT_FALSE(load(0, 10));
  open(2, 8);
  EXPECT_TRUE(load(0, 9)) << "the slow tier keeps what the page had";
  fast_.accepts = false;
  EXPECT_FALSE(tier_->accepts_saves());
  EXPECT_FALSE(save(3, 13));
}

TEST_F(StackedTierTest, AFailureOfOneTierIsNoFailure) {
  open(4, 8);
  slow_.fails_one_in = 1;
  EXPECT_TRUE(save(0, 10));
  EXPECT_TRUE(load(0, 10));
  fast_.fails_one_in = 1;
  EXPECT_FALSE(load(0, 10));
  slow_.fails_one_in = 0;
  EXPECT_TRUE(save(1, 11));
  EXPECT_TRUE(load(1, 11));
  fast_.fails_one_in = 0;
  EXPECT_TRUE(save(2, 12));
  fast_.fails_one_in = 1;
  EXPECT_TRUE(load(2, 12));
  slow_.fails_one_in = 1;
  EXPECT_FALSE(save(3, 13));
}

// Else a wrong copy would come back under a name that was saved again.
TEST_F(StackedTierTest, ErasedAndReplacedBlocksAreGoneFromBoth) {
  open(4, 8);
  EXPECT_TRUE(save(0, 10));
  tier_->erase(0);
  EXPECT_TRUE(fast_.pages.empty());
  EXPECT_TRUE(slow_.pages.empty());
  EXPECT_FALSE(load(0, 10));
  EXPECT_TRUE(save(0, 11));
  EXPECT_TRUE(save(0, 12));
  EXPECT_EQ(fast_.pages.size(), 1U);
  EXPECT_FALSE(load(0, 11));
}

TEST_F(StackedTierTest, AnAwaitedSaveEndsWithTheFastTierAndIsWrittenBehind) {
  open(8, 16);
  slow_.holds_back = true;  // its moves do not end
  EXPECT_TRUE(save_awaited(0, 10));
  EXPECT_TRUE(load(0, 10));
  EXPECT_TRUE(slow_.pages.empty());
  EXPECT_TRUE(tier_->flush(std::chrono::milliseconds(1)).error().code ==
              ErrorCode::kDeadlineExceeded);
  slow_.holds_back = false;
  EXPECT_TRUE(tier_->flush(std::chrono::seconds(10)));
  expect_in_slow(0, 10);
  EXPECT_EQ(slow_.saves, 1);
  EXPECT_EQ(tier_->levels().slow.saved_blocks, 1);
}

// A thread of the slow tier may still read the block of a write while the stack is destroyed.
TEST_F(StackedTierTest, TheBlockOfAWriteOutlivesTheSlowTier) {
  open(8, 16);
  slow_.holds_back = true;
  slow_.ends_moves_late = true;
  EXPECT_TRUE(save_awaited(0, 10));
  EXPECT_FALSE(tier_->flush(std::chrono::milliseconds(1))) << "the write is under way";
  tier_.reset();
  expect_in_slow(0, 10);
}

// A kill loses little, because only saves that a client waits for end early.
TEST_F(StackedTierTest, OtherSavesEndWithTheSlowTier) {
  open(8, 16);
  slow_.holds_back = true;
  int id = 0;
  const Bytes block = bytes_of(10);  // until both saves have ended
  for (const SaveHaste haste : {SaveHaste::kEasy, SaveHaste::kIdle}) {
    TierPage to = page_of(id, 10);
    to.haste = haste;
    tier_->save(static_cast<std::uint64_t>(++id), to, block);
    std::vector<TierMove> ended;
    for (int i = 0; i < 200; ++i) tier_->poll(ended);
    EXPECT_TRUE(ended.empty());
  }
  slow_.holds_back = false;
  EXPECT_TRUE(tier_->flush(std::chrono::seconds(10)));
}

// One write of a disk takes those of adjacent pages (PageWrites).
TEST_F(StackedTierTest, BlocksWrittenBehindReachTheSlowTierTogetherAndInOrder) {
  EXPECT_EQ(StackedTier::most_writes(std::size_t{1} << 20), 2U);
  EXPECT_EQ(StackedTier::most_writes(std::size_t{64} << 10), 8U);
  EXPECT_EQ(StackedTier::most_writes(kBlock), StackedTier::kMostWrites);
  open(400, 800);
  fast_.in_order = true;
  slow_.accepts = false;
  for (int i = 0; i < 90; ++i) EXPECT_TRUE(save_awaited(i, 10 + static_cast<std::uint64_t>(i)));
  slow_.accepts = true;
  slow_.holds_back = true;
  std::vector<TierMove> ended;
  for (int i = 0; i < 400; ++i) tier_->poll(ended);
  ASSERT_EQ(slow_.begun.size(), StackedTier::kMostWrites);
  for (std::size_t i = 0; i < slow_.begun.size(); ++i) {
    EXPECT_EQ(slow_.begun[i], static_cast<std::int32_t>(i));
  }
  slow_.holds_back = false;
  EXPECT_TRUE(tier_->flush(std::chrono::seconds(10)));
  for (int i = 0; i < 90; ++i) expect_in_slow(i, 10 + static_cast<std::uint64_t>(i));
}

TEST_F(StackedTierTest, OnlyAQuarterOfTheFastTierWaitsAndMakesNoRoom) {
  open(8, 32);
  slow_.holds_back = true;
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(save_awaited(i, 10 + static_cast<std::uint64_t>(i)));
  const Bytes third = bytes_of(12);
  tier_->save(7, awaited_page(2, 12), third);
  std::vector<TierMove> ended;
  for (int i = 0; i < 200; ++i) tier_->poll(ended);
  EXPECT_TRUE(ended.empty()) << "the third ends with the slow tier";
  slow_.accepts = false;
  for (int i = 3; i < 20; ++i) EXPECT_TRUE(save(i, 10 + static_cast<std::uint64_t>(i)));
  EXPECT_TRUE(load(0, 10));
  EXPECT_TRUE(load(1, 11));
  for (const TierPage& gone : lost()) EXPECT_GT(gone.page, 2);
  slow_.accepts = true;
  slow_.holds_back = false;
  EXPECT_TRUE(tier_->flush(std::chrono::seconds(10)));
  for (int i = 0; i < 2; ++i) expect_in_slow(i, 10 + static_cast<std::uint64_t>(i));
}

TEST_F(StackedTierTest, BlocksOfAPauseAreWrittenWhenTheSlowTierTakesBlocksAgain) {
  open(8, 16);
  slow_.accepts = false;
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(save(i, 10 + static_cast<std::uint64_t>(i)));
  EXPECT_TRUE(tier_->flush(std::chrono::seconds(10))) << "what cannot be written is not waited for";
  EXPECT_TRUE(slow_.pages.empty());
  slow_.accepts = true;
  EXPECT_TRUE(tier_->flush(std::chrono::seconds(10)));
  for (int i = 0; i < 4; ++i) expect_in_slow(i, 10 + static_cast<std::uint64_t>(i));
  EXPECT_TRUE(lost().empty());
}

TEST_F(StackedTierTest, AFailedWriteIsTriedAgain) {
  open(8, 16);
  slow_.fails_one_in = 2;
  for (int i = 0; i < 8; ++i) {
    EXPECT_TRUE(save_awaited(i, 10 + static_cast<std::uint64_t>(i)));
    EXPECT_TRUE(tier_->flush(std::chrono::seconds(10)));
    expect_in_slow(i, 10 + static_cast<std::uint64_t>(i));
  }
}

// Else an old block's write would follow the new one's, under its page.
TEST_F(StackedTierTest, CallsForAPageWaitForItsWrite) {
  for (const bool erases : {false, true}) {
    SCOPED_TRACE(erases);
    slow_ = {};
    open(8, 16);
    EXPECT_TRUE(save_awaited(0, 10));
    slow_.holds_back = true;
    std::vector<TierMove> ended;
    for (int i = 0; i < 100; ++i) tier_->poll(ended);  // its write has begun
    if (erases) tier_->erase(0);
    const Bytes later = bytes_of(11);
    tier_->save(7, page_of(0, 11), later);
    slow_.holds_back = false;
    EXPECT_TRUE(test::end_of_move(*tier_, 7));
    EXPECT_TRUE(load(0, 11));
    expect_in_slow(0, 11);
    EXPECT_TRUE(save_awaited(1, 12));
    for (int i = 0; i < 2; ++i) tier_->poll(ended);
    tier_->erase(1);
    EXPECT_TRUE(tier_->flush(std::chrono::seconds(10)));
    EXPECT_FALSE(slow_.pages.contains(1));
  }
}

TEST(StackedTierThread, WritesWithoutAnyCall) {
  Behaviour fast;
  Behaviour slow;
  const auto block = bytes_of(10);
  {
    StackedTier tier(std::make_unique<RandomTier>(fast, 8, 1),
                     std::make_unique<RandomTier>(slow, 16, 2));
    EXPECT_TRUE(test::save_block(tier, awaited_page(3, 10), block));
    while (tier.levels().slow.saved_blocks == 0) std::this_thread::yield();
    EXPECT_TRUE(test::load_exactly(tier, awaited_page(3, 10), block));
  }
  EXPECT_EQ(slow.pages.at(3).second, block);
}

// A caller that follows the contract, and knows what must be there.
class StackedTierWorkload {
 public:
  explicit StackedTierWorkload(std::uint64_t seed)
      : random_(seed),
        fast_pages_(static_cast<std::int32_t>(1 + random_.below(12))),
        slow_pages_(static_cast<std::int32_t>(4 + random_.below(40))),
        fails_(seed % 2 == 0) {
    fast_.drops_one_in = random_.below(2) == 0 ? 0 : 2 + random_.below(6);
    if (fails_) fast_.fails_one_in = 3 + random_.below(20);
    if (fails_) slow_.fails_one_in = 3 + random_.below(20);
    restart();
  }

  void run(int steps) {
    for (int step = 0; step < steps && !testing::Test::HasFailure(); ++step) {
      if (random_.below(60) == 0) {
        slow_.accepts = !slow_.accepts;
        ++turns_;
      }
      if (random_.below(90) == 0) fast_.accepts = !fast_.accepts;
      begin_one();
      take_ends();
      if (random_.below(400) == 0) {
        while (!moves_.empty()) take_ends();
        check_levels();
        if (random_.below(2) == 0) {
          EXPECT_TRUE(tier_->flush(std::chrono::seconds(60)));
          take_ends();
          if (slow_.accepts) check_all_durable();
        }
        check_durable();
        restart();
      }
    }
    while (!moves_.empty() && !testing::Test::HasFailure()) take_ends();
  }
  std::int64_t loaded() const { return loaded_; }
  std::int64_t from_fast() const { return fast_.loads; }

 private:
  struct Kept {
    std::uint64_t seed = 0;
    bool durable = false;
    bool never_lost = false;
  };
  struct Move {
    std::int32_t page = 0;
    std::uint64_t seed = 0;
    bool loads = false;
    bool slow_accepted = false;
    int turns = 0;
    SaveHaste haste = SaveHaste::kEasy;
    Bytes block;
  };

  void restart() {
    fast_.pages.clear();
    tier_ = std::make_unique<StackedTier>(
        std::make_unique<RandomTier>(fast_, fast_pages_, random_()),
        std::make_unique<RandomTier>(slow_, slow_pages_, random_()), WriteBehind::kByCaller);
    kept_.clear();
    levels_.clear();
    for (const TierPage& page : tier_->take_stored()) {
      kept_[page.page] = {page.name.high, true, true};
    }
  }
  // The changes together say of each block whether the fast tier has it.
  void check_levels() {
    take_ends();
    std::set<std::uint64_t> fast;
    for (const auto& [page, block] : fast_.pages) fast.insert(block.first.name.high);
    for (const auto& [page, kept] : kept_) {
      const TierLevel level = fast.contains(kept.seed) ? TierLevel::kFast : TierLevel::kSlow;
      ASSERT_EQ(levels_[page], level) << page;
    }
  }
  // After a flush, while the slow tier takes blocks, it has all that the stack promises.
  void check_all_durable() {
    for (const auto& [page, kept] : kept_) {
      const auto found = slow_.pages.find(page);
      ASSERT_TRUE(found != slow_.pages.end()) << page;
      ASSERT_EQ(found->second.second, bytes_of(kept.seed)) << page;
    }
  }
  // Blocks that were saved while the slow tier took some survive, unless they were awaited.
  void check_durable() {
    for (const auto& [page, kept] : kept_) {
      if (!kept.durable) continue;
      const auto found = slow_.pages.find(page);
      ASSERT_TRUE(found != slow_.pages.end());
      ASSERT_EQ(found->second.second, bytes_of(kept.seed));
    }
  }
  void begin_one() {
    const auto page =
        static_cast<std::int32_t>(random_.below(static_cast<std::uint64_t>(slow_pages_)));
    if (moves_.size() >= 12 || busy_.contains(page)) return;
    const std::uint64_t kind = random_.below(10);
    const auto found = kept_.find(page);
    if (kind == 0) {
      tier_->erase(page);
      kept_.erase(page);
      return;
    }
    const bool loads = found != kept_.end() && kind < 7;
    if (!loads && !tier_->accepts_saves()) return;
    Move& move = moves_[++ids_];
    move.page = page;
    move.loads = loads;
    move.seed = loads ? found->second.seed : ++seeds_;
    move.slow_accepted = slow_.accepts;
    move.turns = turns_;
    move.haste = static_cast<SaveHaste>(random_.below(3));
    move.block = loads ? Bytes(kBlock) : bytes_of(move.seed);
    busy_.insert(page);
    if (loads) {
      tier_->touch(page);
      tier_->load(ids_, page_of(page, move.seed), move.block);
    } else {
      kept_.erase(page);
      TierPage to = page_of(page, move.seed);
      to.haste = move.haste;
      tier_->save(ids_, to, move.block);
    }
  }
  void take_ends() {
    std::vector<TierMove> ended;
    tier_->poll(ended);
    for (const TierMove& end : ended) {
      const Move& move = moves_.at(end.id);
      busy_.erase(move.page);
      take_end(move, end.status);
      moves_.erase(end.id);
    }
    std::vector<PageLevel> changes;
    tier_->take_levels(changes);
    for (const PageLevel& change : changes) levels_[change.page] = change.level;
    std::vector<TierPage> lost;
    tier_->take_lost(lost);
    for (const TierPage& page : lost) {
      const auto found = kept_.find(page.page);
      if (found == kept_.end() || page_of(0, found->second.seed).name != page.name) continue;
      EXPECT_FALSE(found->second.never_lost);
      kept_.erase(found);
    }
  }
  void take_end(const Move& move, const Status& status) {
    if (!move.loads) {
      // A save that waits for its page's write begins later, when the slow tier may take none.
      const bool accepted = move.slow_accepted && move.turns == turns_;
      EXPECT_TRUE(status || fails_ || !accepted);
      const bool never_lost = accepted && !fails_;
      if (status)
        kept_[move.page] = {move.seed, never_lost && move.haste != SaveHaste::kAwaited, never_lost};
      return;
    }
    if (status) {
      ++loaded_;
      EXPECT_EQ(move.block, bytes_of(move.seed));
      return;
    }
    // Only what was lost while its load was under way may be missing.
    const auto found = kept_.find(move.page);
    EXPECT_TRUE(fails_ || found == kept_.end() ||
                (!found->second.never_lost && fast_.drops_one_in));
    if (status.error().code == ErrorCode::kUnavailable) return;
    tier_->erase(move.page);
    kept_.erase(move.page);
  }

  SplitMix64 random_;
  const std::int32_t fast_pages_;
  const std::int32_t slow_pages_;
  const bool fails_;
  Behaviour fast_;
  Behaviour slow_;
  std::unique_ptr<StackedTier> tier_;
  std::map<std::int32_t, Kept> kept_;  // by page
  std::map<std::int32_t, TierLevel> levels_;
  std::map<std::uint64_t, Move> moves_;
  std::set<std::int32_t> busy_;
  std::uint64_t ids_ = 0;
  std::uint64_t seeds_ = 0;
  int turns_ = 0;  // how often the slow tier began or ended to take blocks
  std::int64_t loaded_ = 0;
};

TEST(StackedTierProperty, EveryLoadIsExactAndNothingDurableIsMissing) {
  std::int64_t loaded = 0;
  std::int64_t from_fast = 0;
  for (std::uint64_t seed = 1; seed <= 60 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    StackedTierWorkload workload(seed);
    workload.run(3000);
    loaded += workload.loaded();
    from_fast += workload.from_fast();
  }
  EXPECT_GT(loaded, 10000);
  EXPECT_GT(from_fast, 1000);
  EXPECT_GT(loaded - from_fast, 1000);
}

}  // namespace
}  // namespace sluice
