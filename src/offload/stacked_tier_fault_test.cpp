// RAM before a disk that fails or stands still: blocks are used from RAM meanwhile and are on the
// disk later.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <memory>
#include <thread>
#include <vector>

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

}  // namespace
}  // namespace sluice
