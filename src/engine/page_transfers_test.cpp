#include "engine/page_transfers.h"

#include <gtest/gtest.h>

#include <algorithm>
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

}  // namespace
}  // namespace sluice
