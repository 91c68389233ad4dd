#include "engine/page_transfers.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/cpu/cpu_device.h"
#include "tests/support/late_device.h"
#include "tests/support/memory_tier.h"

namespace sluice {
namespace {

// Three full layers and one sliding layer: blocks of the second group use a third of their bytes.
TEST(ClearUnused, LeavesOnlyTheTokensOfTheBlocksOwnLayers) {
  KvLayoutOptions options;
  options.block_size = 4;
  options.num_kv_heads = 2;
  options.head_dim = 8;
  options.element_bytes = 2;
  options.layer_windows = {0, 0, 16, 0};
  const auto layout = make_kv_layout(options);
  ASSERT_TRUE(layout);
  const std::int64_t token = 8 * 2;  // bytes of one head
  for (const std::int32_t tokens : {0, 1, 3}) {
    for (std::int32_t group = 0; group < 2; ++group) {
      std::vector<std::byte> block(static_cast<std::size_t>(layout->block_bytes), std::byte{7});
      PagedBlock paged;
      paged.group = group;
      paged.tokens = tokens;
      clear_unused(*layout, paged, block);
      const std::int64_t layers = group == 0 ? 3 : 1;
      const std::int64_t kept = layers * 2 * 2 * (tokens == 0 ? 4 : tokens) * token;
      EXPECT_EQ(std::count(block.begin(), block.end(), std::byte{7}), kept);
      // The first token of the last layer's last head of V is there.
      const KvLayerPlace& last = layout->layers[group == 0 ? 3 : 2];
      const std::int64_t first = last.v_offset + layout->head_stride * 2;
      EXPECT_EQ(block[static_cast<std::size_t>(first)], std::byte{7});
    }
  }
}

// Two heads of eight BF16 in one layer; blocks of four tokens.
KvLayout small_layout() {
  KvLayoutOptions options;
  options.block_size = 4;
  options.num_kv_heads = 2;
  options.head_dim = 8;
  options.element_bytes = 2;
  options.layer_windows = {0};
  return *make_kv_layout(options);
}

// Ends every move at once, loads with the error that is set.
class FailingTier final : public KvTier {
 public:
  std::int32_t num_pages() const override { return 8; }
  std::vector<TierPage> take_stored() override { return {}; }
  bool accepts_saves() const override { return true; }
  void save(std::uint64_t id, const TierPage& /*page*/,
            std::span<const std::byte> /*block*/) override {
    ended_.push_back({id, {}});
  }
  void load(std::uint64_t id, const TierPage& /*page*/, std::span<std::byte> /*block*/) override {
    ended_.push_back({id, tl::unexpected(error)});
  }
  void touch(std::int32_t /*page*/) override {}
  void erase(std::int32_t page) override { erased.push_back(page); }
  void poll(std::vector<TierMove>& ended) override { ended.swap(ended_); }
  void wait(Duration /*at_most*/) override {}
  Status flush(Duration /*at_most*/) override { return {}; }

  Error error;
  std::vector<std::int32_t> erased;

 private:
  std::vector<TierMove> ended_;
};

TEST(PageTransfers, AnErrorOfTheDiskLeavesThePage) {
  auto owned = std::make_unique<FailingTier>();
  FailingTier& tier = *owned;
  const KvLayout layout = small_layout();
  PageTransfers transfers(std::move(owned), layout);
  std::vector<std::byte> contents(static_cast<std::size_t>(layout.block_bytes));
  PagedBlock block;
  block.page = 3;
  const auto load = [&](TransferId id, Error error) {
    tier.error = std::move(error);
    EXPECT_TRUE(transfers.start({id, TransferKind::kLoadBlock, 0, 3}, block, contents));
    std::vector<TransferResult> ended;
    EXPECT_TRUE(transfers.poll(ended));
    EXPECT_EQ(ended.size(), 1U);
    EXPECT_TRUE(ended.at(0).failed);
    return ended.at(0).damaged;
  };
  testing::internal::CaptureStderr();
  EXPECT_FALSE(load(1, unavailable("the disk does not answer")));
  EXPECT_FALSE(load(2, unavailable("the disk does not answer")));
  EXPECT_TRUE(tier.erased.empty());
  EXPECT_TRUE(load(3, invalid_argument("page 3 is damaged")));
  EXPECT_EQ(tier.erased, std::vector<std::int32_t>{3});
  for (TransferId id = 4; id <= 33; ++id) load(id, unavailable("the disk does not answer"));
  // The first of many equal failures is logged, and then one in 32.
  const std::string log = testing::internal::GetCapturedStderr();
  for (const char* number : {"1", "32"}) {
    EXPECT_NE(log.find(fmt::format("does not answer; it is computed again ({} such", number)),
              std::string::npos)
        << log;
  }
  EXPECT_EQ(std::ranges::count(log, '\n'), 2) << log;
  EXPECT_TRUE(transfers.idle());
}

// Blocks of a device that runs what is submitted as late as it may, and a tier that copies when it
// is polled. The memory of the device is reached by copies only, so every early or late use shows.
class StagedTest : public testing::Test {
 protected:
  using Block = std::vector<std::byte>;

  void SetUp() override {
    auto cpu = make_cpu_device({.threads = 1});
    ASSERT_TRUE(cpu);
    device_ = std::make_unique<test::LateDevice>(std::move(*cpu));
    store_.pages.resize(100);
    auto staging = BlockStaging::create(*device_, bytes());
    ASSERT_TRUE(staging);
    buffers_ = (*staging)->num_buffers();
    transfers_ = std::make_unique<PageTransfers>(std::make_unique<test::MemoryTier>(store_),
                                                 layout_, *std::move(staging));
  }
  std::size_t bytes() const { return static_cast<std::size_t>(layout_.block_bytes); }
  Block filled(int value) const { return Block(bytes(), static_cast<std::byte>(value)); }

  // Writes the block as a step would.
  void compute(Block& block, const Block& contents) {
    ASSERT_TRUE(device_->copy_to_device(block.data(), contents.data(), contents.size()));
    mark_ = (mark_ + 1) % Device::kMarks;
    ASSERT_TRUE(device_->mark(Queue::kCompute, mark_));
  }
  static PagedBlock paged(std::int32_t page, std::int32_t tokens = 0) {
    PagedBlock block;
    block.page = page;
    block.name = {1, static_cast<std::uint64_t>(page)};
    block.tokens = tokens;
    return block;
  }
  void start(TransferId id, TransferKind kind, std::int32_t page, Block& block,
             std::int32_t tokens = 0) {
    ASSERT_TRUE(transfers_->start({id, kind, 0, page}, paged(page, tokens), block, mark_));
  }
  // Ids in the order of their ends, failed ones negative.
  std::vector<std::int64_t> run_to_end() {
    EXPECT_TRUE(transfers_->submit());
    std::vector<TransferResult> results;
    for (int i = 0; i < 10000 && !transfers_->idle(); ++i) EXPECT_TRUE(transfers_->poll(results));
    EXPECT_TRUE(transfers_->idle());
    std::vector<std::int64_t> ids;
    for (const TransferResult& result : results) {
      const auto id = static_cast<std::int64_t>(result.id);
      ids.push_back(result.failed ? -id : id);
    }
    return ids;
  }

  const KvLayout layout_ = small_layout();
  std::unique_ptr<test::LateDevice> device_;
  test::MemoryTier::Store store_;
  std::unique_ptr<PageTransfers> transfers_;
  std::size_t buffers_ = 0;
  std::size_t mark_ = Transfers::kNoMark;  // after the last step
};

TEST_F(StagedTest, ASaveWaitsForTheStepThatWritesTheBlock) {
  Block block = filled(0);
  const Block contents = filled(7);
  compute(block, contents);
  EXPECT_EQ(block, filled(0)) << "the device runs late";
  start(1, TransferKind::kSaveBlock, 4, block);
  EXPECT_EQ(run_to_end(), std::vector<std::int64_t>{1});
  EXPECT_EQ(store_.pages[4].bytes, contents);
  EXPECT_EQ(store_.pages[4].page.name, paged(4).name);
}

TEST_F(StagedTest, ALoadOverwritesWhatAnEarlierStepWrites) {
  Block block = filled(0);
  store_.pages[4] = {{4, 0, paged(4).name, {}}, filled(9), 0};
  const Block old = filled(7);
  compute(block, old);
  start(1, TransferKind::kLoadBlock, 4, block);
  EXPECT_EQ(run_to_end(), std::vector<std::int64_t>{1});
  EXPECT_EQ(block, filled(9));
  ASSERT_TRUE(device_->synchronize());
  EXPECT_EQ(block, filled(9)) << "the older write came last";
}

TEST_F(StagedTest, ALoadThatFailsCopiesNothing) {
  Block block = filled(3);
  store_.pages[4] = {{4, 0, paged(4).name, {}}, filled(9), 0};
  store_.fail_loads = true;
  start(1, TransferKind::kLoadBlock, 4, block);
  testing::internal::CaptureStderr();
  EXPECT_EQ(run_to_end(), std::vector<std::int64_t>{-1});
  EXPECT_NE(testing::internal::GetCapturedStderr().find("it is computed again"), std::string::npos);
  ASSERT_TRUE(device_->synchronize());
  EXPECT_EQ(block, filled(3));
}

// The unused part of a tail is cleared on its way, and the block on the device is as it was.
TEST_F(StagedTest, ATailIsClearedInHostMemory) {
  Block block = filled(7);
  start(1, TransferKind::kSaveBlock, 4, block, 1);
  run_to_end();
  EXPECT_EQ(block, filled(7));
  EXPECT_EQ(std::count(store_.pages[4].bytes.begin(), store_.pages[4].bytes.end(), std::byte{7}),
            2 * 2 * 8 * 2);
}

TEST_F(StagedTest, MoreThanThereAreBuffersAllEnd) {
  std::vector<Block> blocks(100, filled(0));
  for (int i = 0; i < 100; ++i) {
    const Block contents = filled(i + 1);
    compute(blocks[static_cast<std::size_t>(i)], contents);
    start(static_cast<TransferId>(i + 1), TransferKind::kSaveBlock, i,
          blocks[static_cast<std::size_t>(i)]);
    ASSERT_TRUE(device_->synchronize(Queue::kCompute));  // `contents` ends here
  }
  EXPECT_EQ(run_to_end().size(), 100U);
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(store_.pages[static_cast<std::size_t>(i)].bytes, filled(i + 1)) << i;
  }
  for (int i = 0; i < 100; ++i) {
    start(static_cast<TransferId>(i + 101), TransferKind::kLoadBlock, 99 - i,
          blocks[static_cast<std::size_t>(i)]);
  }
  EXPECT_EQ(run_to_end().size(), 100U);
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(blocks[static_cast<std::size_t>(i)], filled(100 - i)) << i;
  }
}

TEST_F(StagedTest, LoadsThatWaitForABufferGoBeforeSaves) {
  std::vector<Block> blocks(buffers_ + 9, filled(1));
  store_.pages[99] = {{99, 0, paged(99).name, {}}, filled(9), 0};
  const std::size_t last = blocks.size() - 1;
  for (std::size_t i = 0; i < last; ++i) {
    start(i + 1, TransferKind::kSaveBlock, static_cast<std::int32_t>(i), blocks[i]);
  }
  start(1000, TransferKind::kLoadBlock, 99, blocks[last]);
  const std::vector<std::int64_t> ids = run_to_end();
  ASSERT_EQ(ids.size(), blocks.size());
  const auto place =
      static_cast<std::size_t>(std::find(ids.begin(), ids.end(), 1000) - ids.begin());
  EXPECT_LT(place, ids.size() - 4) << "some of the saves that waited end after the load";
  EXPECT_EQ(blocks[last], filled(9));
}

TEST_F(StagedTest, WaitsUntilATransferEndsAndFlushesWhatIsOnItsWay) {
  Block block = filled(5);
  start(1, TransferKind::kSaveBlock, 0, block);
  ASSERT_TRUE(transfers_->submit());
  ASSERT_TRUE(transfers_->wait(std::chrono::seconds(60)));
  std::vector<TransferResult> results;
  ASSERT_TRUE(transfers_->poll(results));
  EXPECT_EQ(results.size(), 1U);
  start(2, TransferKind::kSaveBlock, 1, block);
  ASSERT_TRUE(transfers_->submit());
  ASSERT_TRUE(transfers_->flush(std::chrono::seconds(60)));
  EXPECT_EQ(store_.pages[1].bytes, filled(5));
}

// A server may end with transfers under way.
TEST_F(StagedTest, EndsWithCopiesAndMovesUnderWay) {
  std::vector<Block> blocks(50, filled(1));
  for (int i = 0; i < 50; ++i) {
    start(static_cast<TransferId>(i + 1), TransferKind::kSaveBlock, i,
          blocks[static_cast<std::size_t>(i)]);
  }
  ASSERT_TRUE(transfers_->submit());
  transfers_.reset();  // LateDevice checks that no copy uses the memory that is given back
}

}  // namespace
}  // namespace sluice
