#include "engine/page_transfers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

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
  PageTransfers transfers(std::move(owned));
  std::vector<std::byte> contents(64);
  PagedBlock block;
  block.page = 3;
  const auto load = [&](TransferId id, Error error) {
    tier.error = std::move(error);
    transfers.start({id, TransferKind::kLoadBlock, 0, 3}, block, contents);
    std::vector<TransferResult> ended;
    transfers.poll(ended);
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
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("the disk does not answer; it is computed again (2 such"), std::string::npos)
      << log;
  EXPECT_TRUE(transfers.idle());
}

}  // namespace
}  // namespace sluice
