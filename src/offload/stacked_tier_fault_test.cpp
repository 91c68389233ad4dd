// RAM before a disk that fails, stands still or is opened again: blocks are used from RAM meanwhile
// and are on the disk later.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "offload/disk_tier.h"
#include "offload/ram_tier.h"
#include "offload/stacked_tier.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/tier_moves.h"

namespace sluice {
namespace {

constexpr std::uint64_t kStackBlock = 3000;

// Fails or holds up all writes as it is told.
class FailingWrites final : public FileIo {
 public:
  bool write(int fd, std::span<const std::byte> bytes, std::uint64_t offset) const override {
    while (holds) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (!fails) return write_at(fd, bytes, offset);
    errno = ENOSPC;
    return false;
  }
  std::atomic<bool> fails = false;
  std::atomic<bool> holds = false;
};

class StackedTierFaultTest : public testing::Test {
 protected:
  std::unique_ptr<KvTier> open_disk() {
    DiskTier::Options disk;
    disk.folder = folder_.file("kv");
    disk.max_bytes = std::uint64_t{1} << 20;
    disk.block_bytes = kStackBlock;
    disk.segment_bytes = std::uint64_t{1} << 17;
    disk.identity = "model";
    disk.free_bytes = 0;
    disk.pause = std::chrono::milliseconds(20);
    disk.io = io_;
    auto tier = DiskTier::open(disk, clock_);
    EXPECT_TRUE(tier) << tier.error().message;
    return *std::move(tier);
  }
  std::unique_ptr<StackedTier> open() {
    auto ram = RamTier::open({.max_bytes = 40 * kStackBlock, .block_bytes = kStackBlock});
    EXPECT_TRUE(ram) << ram.error().message;
    return std::make_unique<StackedTier>(*std::move(ram), open_disk());
  }

  static std::vector<std::byte> block(int name) {
    return test::random_block(kStackBlock, static_cast<std::uint64_t>(name));
  }
  static TierPage page(int number, SaveHaste haste) {
    return {.page = number,
            .group = 0,
            .name = {static_cast<std::uint64_t>(number), 7},
            .tenant = {},
            .haste = haste};
  }
  static void save_all(StackedTier& tier, int count, SaveHaste haste) {
    for (int i = 0; i < count; ++i) {
      ASSERT_TRUE(test::save_block(tier, page(i, haste), block(i))) << i;
    }
  }
  void expect_on_disk(int count) {
    const auto disk = open_disk();
    EXPECT_EQ(disk->take_stored().size(), static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) {
      EXPECT_TRUE(test::load_exactly(*disk, page(i, SaveHaste::kEasy), block(i))) << i;
    }
  }

  const TempDirectory folder_;
  const SystemClock clock_;
  const std::shared_ptr<FailingWrites> io_ = std::make_shared<FailingWrites>();
};

TEST_F(StackedTierFaultTest, BlocksOfAFullDiskAreWrittenWhenItHasRoomAgain) {
  {
    const auto tier = open();
    io_->fails = true;
    save_all(*tier, 6, SaveHaste::kEasy);
    EXPECT_EQ(tier->levels().slow.saved_blocks, 0);
    for (int i = 0; i < 6; ++i)
      EXPECT_TRUE(test::load_exactly(*tier, page(i, SaveHaste::kEasy), block(i)));
    io_->fails = false;
    while (tier->levels().slow.saved_blocks < 6) std::this_thread::yield();  // no call is needed
  }
  expect_on_disk(6);
}

TEST_F(StackedTierFaultTest, AwaitedSavesDoNotWaitForTheDiskAndAStopWritesThem) {
  {
    const auto tier = open();
    io_->holds = true;
    save_all(*tier, 6, SaveHaste::kAwaited);
    EXPECT_EQ(tier->levels().fast.saved_blocks, 6);
    EXPECT_FALSE(tier->flush(std::chrono::milliseconds(5))) << "the disk stands still";
    for (int i = 0; i < 6; ++i)
      EXPECT_TRUE(test::load_exactly(*tier, page(i, SaveHaste::kEasy), block(i)));
    io_->holds = false;
    EXPECT_TRUE(tier->flush(std::chrono::seconds(60)));
  }
  expect_on_disk(6);
}

// As after kill -9: what is on the disk is exact, and the blocks that waited are not there.
TEST_F(StackedTierFaultTest, WithoutAFlushOnlyBlocksThatWaitedAreMissing) {
  {
    const auto tier = open();
    save_all(*tier, 3, SaveHaste::kEasy);
    io_->fails = true;
    for (int i = 3; i < 6; ++i) {
      ASSERT_TRUE(test::save_block(*tier, page(i, SaveHaste::kAwaited), block(i))) << i;
    }
  }
  io_->fails = false;
  expect_on_disk(3);
}

// A caller of the two tiers over many processes. Each block has its own name, and its bytes follow
// from the name.
class ReopenedStack {
 public:
  explicit ReopenedStack(std::uint64_t seed) : random_(seed) {}

  // A process has opened the tiers: it finds all blocks that must be on the disk, at most one in a
  // page, and none that was never saved there.
  void open(StackedTier& tier) {
    std::map<std::int32_t, std::uint64_t> found;
    for (const TierPage& page : tier.take_stored()) {
      EXPECT_TRUE(found.emplace(page.page, page.name.high).second) << page.page;
      EXPECT_TRUE(saved_.contains({page.page, page.name.high})) << page.page;
    }
    for (const auto& [page, block] : blocks_) {
      if (block.durable) {
        EXPECT_EQ(found[page], block.name) << page;
      }
    }
    blocks_.clear();
    for (const auto& [page, name] : found) blocks_[page] = {name, true};
  }
  // Saves, loads and erasures of different pages, all under way together.
  void run_moves(StackedTier& tier) {
    std::map<std::uint64_t, Move> moves;
    std::set<std::int32_t> busy;
    for (std::uint64_t id = 1; id <= 8; ++id) {
      const auto page = static_cast<std::int32_t>(random_.below(kPages));
      if (!busy.insert(page).second) continue;
      const auto found = blocks_.find(page);
      const std::uint64_t kind = random_.below(10);
      if (kind == 0) {
        tier.erase(page);
        blocks_.erase(page);
      } else if (found != blocks_.end() && kind < 7) {
        Move& move = moves[id];
        move = {page_of(page, found->second.name), true, std::vector<std::byte>(kStackBlock)};
        tier.touch(page);
        tier.load(id, move.page, move.block);
      } else {
        Move& move = moves[id];
        move = {page_of(page, ++names_), false, test::random_block(kStackBlock, names_)};
        move.page.haste = random_.below(2) == 0 ? SaveHaste::kAwaited : SaveHaste::kEasy;
        saved_.insert({page, names_});
        blocks_.erase(page);
        tier.save(id, move.page, move.block);
      }
    }
    while (!moves.empty()) {
      std::vector<TierMove> ended;
      tier.wait(std::chrono::seconds(1));
      tier.poll(ended);
      for (const TierMove& end : ended) {
        EXPECT_TRUE(end.status) << end.status.error().message;
        const Move& move = moves.at(end.id);
        const std::uint64_t name = move.page.name.high;
        if (move.loads) {
          EXPECT_EQ(move.block, test::random_block(kStackBlock, name)) << move.page.page;
          ++loaded_;
        } else {
          blocks_[move.page.page] = {name, move.page.haste == SaveHaste::kEasy};
        }
        moves.erase(end.id);
      }
    }
    std::vector<TierPage> lost;
    tier.take_lost(lost);
    EXPECT_TRUE(lost.empty()) << "the disk takes all blocks, and those that wait keep their room";
  }
  void note_flushed() {
    for (auto& [page, block] : blocks_) block.durable = true;
  }
  std::int64_t loaded() const { return loaded_; }

 private:
  static constexpr std::uint64_t kPages = 90;  // more than RAM has room for
  struct Block {
    std::uint64_t name = 0;
    bool durable = false;
  };
  struct Move {
    TierPage page;
    bool loads = false;
    std::vector<std::byte> block;
  };
  static TierPage page_of(std::int32_t page, std::uint64_t name) {
    return {.page = page, .group = 0, .name = {name, 7}, .tenant = {}};
  }

  SplitMix64 random_;
  std::map<std::int32_t, Block> blocks_;                    // by page
  std::set<std::pair<std::int32_t, std::uint64_t>> saved_;  // page and name, of all processes
  std::uint64_t names_ = 0;
  std::int64_t loaded_ = 0;
};

TEST_F(StackedTierFaultTest, EachProcessFindsWhatTheOnesBeforeHaveWritten) {
  SplitMix64 random(5);
  ReopenedStack stack(6);
  for (int process = 0; process < 12 && !HasFailure(); ++process) {
    SCOPED_TRACE(process);
    const auto tier = open();
    ASSERT_GE(tier->num_pages(), 90);
    stack.open(*tier);
    const std::uint64_t rounds = 20 + random.below(40);
    for (std::uint64_t i = 0; i < rounds && !HasFailure(); ++i) stack.run_moves(*tier);
    if (random.below(2) == 0) continue;  // as kill -9
    EXPECT_TRUE(tier->flush(std::chrono::seconds(60)));
    stack.note_flushed();
  }
  EXPECT_GT(stack.loaded(), 500);
}

}  // namespace
}  // namespace sluice
