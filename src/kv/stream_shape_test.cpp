// Windows of streamed sequences: their sizes, and the blocks of the pool that they take.
#include "kv/stream_shape.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kv/kv_manager.h"

namespace sluice {
namespace {

KvLayout layout_of(std::vector<std::int32_t> windows, std::int32_t heads) {
  KvLayoutOptions options;
  options.block_size = 16;
  options.num_kv_heads = heads;
  options.head_dim = 16;
  options.element_bytes = 2;
  options.layer_windows = std::move(windows);
  const auto layout = make_kv_layout(options);
  EXPECT_TRUE(layout);
  return *layout;
}

TEST(StreamShape, PiecesAreAligned) {
  // 1024 bytes a head: three heads need four blocks for a multiple of 4096.
  const KvLayout layout = layout_of({0, 0, 0, 0}, 3);
  ASSERT_EQ(layout.layer_bytes, 3 * 1024);
  const StreamShape shape = make_stream_shape(layout, 4 * 4 * 3 * 1024 * 10 + 5, 4096);
  EXPECT_EQ(shape.piece_blocks, 4);
  EXPECT_EQ(shape.piece_tokens(), 64);
  EXPECT_EQ(shape.max_blocks, 40);
  EXPECT_EQ(shape.slices_per_block, 4);
  // 9 blocks are 3 pieces: two windows of 12 slices, and 4 tails of 4.
  EXPECT_EQ(shape.window_slices(9), 12);
  EXPECT_EQ(shape.tail_slice(9, 2), 24 + 8);
  EXPECT_EQ(shape.pool_blocks(9), (24 + 16) / 4);
}

TEST(StreamShape, BlocksHoldTheLayersOfTheLargestGroup) {
  const KvLayout layout = layout_of({0, 8, 8, 8}, 4);
  const StreamShape shape = make_stream_shape(layout, 1 << 20, 4096);
  EXPECT_EQ(shape.num_layers, 4);
  EXPECT_EQ(shape.slices_per_block, 3);
  EXPECT_EQ(shape.pool_blocks(10), (20 + 4 + 2) / 3);
}

TEST(StreamShape, WithoutRoomForAPieceNothingIsStreamed) {
  const KvLayout layout = layout_of({0, 0}, 4);
  EXPECT_EQ(make_stream_shape(layout, 2 * 4096 - 1, 4096).max_blocks, 0);
  EXPECT_EQ(make_stream_shape(layout, 2 * 4096, 4096).max_blocks, 1);
}

TEST(StreamShape, BlocksThatAreNoWholeNumberOfSlices) {
  KvLayout layout = layout_of({0, 0}, 4);
  layout.block_bytes += 64;  // padded
  EXPECT_EQ(make_stream_shape(layout, 1 << 20, 4096).max_blocks, 0);
}

class KvWindow : public ::testing::TestWithParam<int> {  // groups
 protected:
  static KvOptions options() {
    KvOptions o;
    o.block_size = 4;
    o.group_windows.assign(static_cast<std::size_t>(GetParam()), 0);
    if (GetParam() > 1) o.group_windows.back() = 8;
    o.num_blocks = 12;
    o.max_blocks = 12;
    o.max_num_seqs = 2;
    o.max_model_len = 64;
    o.max_query_len = 8;
    o.watermark = 0;
    return o;
  }
  std::vector<BlockTableUpdate> updates_;
  std::vector<BlockId> ids_;
  std::vector<BlockCopy> copies_;
};

TEST_P(KvWindow, HoldsItsBlocksAndNeedsNoOthers) {
  KvManager kv(options());
  BlockChanges changes{updates_, ids_, copies_};
  EXPECT_FALSE(kv.admit_window(0, 12, {}, changes));
  EXPECT_EQ(kv.last_shortage(), 1);
  EXPECT_FALSE(kv.admit_window(0, 9, {.blocks = 3}, changes));
  ASSERT_TRUE(kv.admit_window(0, 9, {.blocks = 2}, changes));
  kv.check_integrity();
  EXPECT_EQ(kv.num_used_blocks(), 9);
  EXPECT_EQ(ids_.size(), 9U);
  EXPECT_EQ(kv.blocks_to_reach(0, 20), 0);

  // Positions that these blocks would not hold.
  EXPECT_TRUE(kv.extend(0, 40, 20, changes));
  kv.publish(0, std::vector<Hash128>(10, Hash128{1, 2}), 40);
  EXPECT_EQ(kv.num_cached_blocks(), 0);
  EXPECT_EQ(kv.num_used_blocks(), 9);
  kv.check_integrity();

  kv.release(0);
  kv.check_integrity();
  EXPECT_EQ(kv.num_free_blocks(), 11);
  EXPECT_TRUE(kv.admit(0, {}, 8, {}, changes));
  kv.check_integrity();
}

TEST_P(KvWindow, MovesDownLikeOtherBlocks) {
  KvManager kv(options());
  BlockChanges changes{updates_, ids_, copies_};
  ASSERT_TRUE(kv.admit_window(0, 4, {}, changes));
  ASSERT_TRUE(kv.admit_window(1, 4, {}, changes));
  kv.release(0);
  kv.resize(6);
  updates_.clear();
  kv.move_down(64, changes);
  kv.check_integrity();
  EXPECT_EQ(kv.num_blocks_above(), 0);
  ASSERT_EQ(updates_.size(), 1U);
  EXPECT_EQ(updates_[0].slot, 1);
  EXPECT_LT(std::ranges::max(kv.table(1, 0)), 6);
}

INSTANTIATE_TEST_SUITE_P(Groups, KvWindow, testing::Values(1, 3));

}  // namespace
}  // namespace sluice
