// The tier in lent memory: what is saved comes back as long as the lender leaves it there; all else
// is a miss.
#include "offload/lent_tier.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "base/rng.h"
#include "base/shared_memory.h"
#include "tests/support/tier_moves.h"

namespace sluice {
namespace {

constexpr std::int64_t kPage = 4096;
constexpr std::uint64_t kBytes = 4000;

std::vector<std::byte> contents(std::uint64_t seed) { return test::random_block(kBytes, seed); }

TierPage page_of(std::int32_t page, std::uint64_t seed) {
  return {.page = page, .group = 0, .name = {7, seed}, .tenant = {1, seed % 3}};
}

class LentTierTest : public testing::Test {
 protected:
  // The lender's own descriptor of the memory that the tier has.
  int lend(const std::string& lender, std::int64_t pages) {
    auto file = create_shared_memory("lent", static_cast<std::size_t>(16 * kPage));
    EXPECT_TRUE(file);
    files_[lender] = FileDescriptor(::dup(file->get()));
    memory_->set(lender, lent_file(*std::move(file)), pages * kPage);
    return files_[lender].get();
  }
  bool save(std::int32_t page, std::uint64_t seed) {
    return test::save_block(*tier_, page_of(page, seed), contents(seed)).has_value();
  }
  bool load(std::int32_t page, std::uint64_t seed) {
    tier_->touch(page);
    return test::load_exactly(*tier_, page_of(page, seed), contents(seed)).has_value();
  }

  // Shared with the tier.
  std::shared_ptr<LentMemory> memory_ = std::make_shared<LentMemory>(16 * kPage);
  std::unique_ptr<LentTier> tier_ = *LentTier::open(memory_, kBytes);
  std::map<std::string, FileDescriptor> files_;
};

TEST_F(LentTierTest, KeepsBlocksWhileTheyAreLent) {
  EXPECT_EQ(tier_->num_pages(), 16);
  EXPECT_FALSE(tier_->accepts_saves());
  EXPECT_FALSE(save(0, 1));
  lend("a", 4);
  EXPECT_TRUE(tier_->accepts_saves());
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(save(i, 10 + static_cast<std::uint64_t>(i)));
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(load(i, 10 + static_cast<std::uint64_t>(i)));
  EXPECT_FALSE(load(0, 99));  // the page holds another block
  EXPECT_FALSE(load(9, 10));  // nothing
  tier_->erase(2);
  EXPECT_FALSE(load(2, 12));
  EXPECT_EQ(memory_->held(), 3 * kPage);
  EXPECT_TRUE(tier_->flush(std::chrono::seconds(60)));
}

TEST_F(LentTierTest, ThePageThatWasUsedLeastRecentlyMakesRoom) {
  lend("a", 2);
  lend("b", 2);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(save(i, 10 + static_cast<std::uint64_t>(i)));
  EXPECT_TRUE(load(0, 10));
  EXPECT_TRUE(save(4, 14));
  EXPECT_FALSE(load(1, 11));
  EXPECT_TRUE(load(0, 10));
  EXPECT_TRUE(load(4, 14));
}

TEST_F(LentTierTest, MemoryThatGoesBackIsLost) {
  lend("a", 4);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(save(i, 10 + static_cast<std::uint64_t>(i)));
  memory_->set("a", nullptr, 2 * kPage + 100);
  EXPECT_EQ(memory_->usable(), 2 * kPage);
  int found = 0;
  for (int i = 0; i < 4; ++i) found += load(i, 10 + static_cast<std::uint64_t>(i)) ? 1 : 0;
  EXPECT_EQ(found, 2);
  memory_->set("a", nullptr, 4 * kPage);
  EXPECT_TRUE(save(5, 15));
  EXPECT_TRUE(load(5, 15));
  memory_->forget("a");
  EXPECT_FALSE(load(5, 15));
  EXPECT_FALSE(tier_->accepts_saves());
}

TEST_F(LentTierTest, TheLenderCannotMakeItTakeWrongBytes) {
  const int file = lend("a", 4);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(save(i, 10 + static_cast<std::uint64_t>(i)));
  std::vector<std::byte> before(3 * kPage);
  ASSERT_EQ(::pread(file, before.data(), before.size(), 0), 3 * kPage);
  // Nothing of a block lies open.
  const std::vector<std::byte> block = contents(10);
  EXPECT_EQ(std::search(before.begin(), before.end(), block.begin(), block.begin() + 16),
            before.end());
  ASSERT_EQ(::fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kPage), 0);
  const std::byte flipped = before[kPage + 50] ^ std::byte{1};
  ASSERT_EQ(::pwrite(file, &flipped, 1, kPage + 50), 1);
  EXPECT_FALSE(load(0, 10));
  EXPECT_FALSE(load(1, 11));
  EXPECT_TRUE(load(2, 12));
  // A page from before, and another one's page.
  ASSERT_EQ(::pwrite(file, before.data(), kPage, 2 * kPage), kPage);
  EXPECT_FALSE(load(2, 12));
  EXPECT_TRUE(save(2, 13));
  ASSERT_EQ(::pwrite(file, before.data() + 2 * kPage, kPage, 2 * kPage), kPage);
  EXPECT_FALSE(load(2, 13));
}

TEST_F(LentTierTest, RefusesMemoryWithoutRoomForABlock) {
  const auto small = LentTier::open(std::make_shared<LentMemory>(100), kBytes);  // as above
  ASSERT_FALSE(small);
  EXPECT_NE(small.error().message.find("no room for a block"), std::string::npos);
}

// Lenders that give, take and punch while blocks are moved: each load is exact or a miss.
TEST_F(LentTierTest, LendersMayDoWhatTheyLikeMeanwhile) {
  std::atomic<bool> over = false;
  const int file = lend("a", 8);
  std::thread lenders([&] {
    SplitMix64 random(5);
    while (!over) {
      const auto pages = static_cast<std::int64_t>(random.below(9));
      switch (random.below(4)) {
        case 0: memory_->set("a", nullptr, pages * kPage); break;
        case 1:
          static_cast<void>(
              ::fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, pages * kPage, kPage));
          break;
        case 2: lend("b", pages); break;
        default: memory_->forget("b"); break;
      }
      if (random.below(8) == 0) memory_->set("a", nullptr, 8 * kPage);
      std::this_thread::yield();
    }
  });
  SplitMix64 random(6);
  std::map<std::int32_t, std::uint64_t> saved;
  int hits = 0;
  for (int i = 0; i < 3000 || hits < 100; ++i) {
    const auto page = static_cast<std::int32_t>(random.below(12));
    if (random.below(2) == 0) {
      const std::uint64_t seed = random.below(1000);
      if (save(page, seed)) {
        saved[page] = seed;
      } else {
        saved.erase(page);
      }
    } else if (saved.contains(page)) {
      hits += load(page, saved[page]) ? 1 : 0;
    }
  }
  over = true;
  lenders.join();
  EXPECT_GE(hits, 100);
  memory_->set("a", nullptr, 8 * kPage);
  EXPECT_TRUE(save(0, 1));
  EXPECT_TRUE(load(0, 1));
}

}  // namespace
}  // namespace sluice
