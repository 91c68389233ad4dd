#include "kv/kv_layout.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

namespace sluice {
namespace {

KvLayoutOptions small() {
  return {.block_size = 4,
          .num_kv_heads = 2,
          .head_dim = 8,
          .element_bytes = 2,
          .layer_windows = {0, 16, 0},
          .max_layers_per_group = 0};
}

TEST(KvLayout, GroupsLikeLayers) {
  const KvLayout layout = make_kv_layout(small()).value();
  ASSERT_EQ(layout.groups.size(), 2U);
  EXPECT_EQ(layout.groups[0].window, 0);
  EXPECT_EQ(layout.groups[0].layers, (std::vector<std::int32_t>{0, 2}));
  EXPECT_EQ(layout.groups[1].window, 16);
  EXPECT_EQ(layout.groups[1].layers, (std::vector<std::int32_t>{1}));
}

TEST(KvLayout, Strides) {
  const KvLayout layout = make_kv_layout(small()).value();
  EXPECT_EQ(layout.token_stride, 8);
  EXPECT_EQ(layout.head_stride, 32);
  EXPECT_EQ(layout.layer_bytes, 2 * 2 * 32 * 2);          // K and V, heads, elements, bytes
  EXPECT_EQ(layout.block_bytes, 2 * layout.layer_bytes);  // the larger group's two layers
  EXPECT_EQ(layout.block_stride * 2, layout.block_bytes);
  EXPECT_EQ(layout.layers[0].k_offset, 0);
  EXPECT_EQ(layout.layers[0].v_offset, 128);
  EXPECT_EQ(layout.layers[2].k_offset, 256);
  EXPECT_EQ(layout.layers[1].group, 1);
  EXPECT_EQ(layout.layers[1].k_offset, 0);  // another group: another block
  EXPECT_EQ(layout.blocks_for_bytes(10 * layout.block_bytes + 1), 10);
}

// No two elements of a block share a byte, and all lie within it.
TEST(KvLayout, PlacesAreDisjoint) {
  KvLayoutOptions options = small();
  options.head_dim = 3;
  options.num_kv_heads = 3;
  options.block_size = 5;
  options.layer_windows = {0, 0, 0};
  const KvLayout layout = make_kv_layout(options).value();
  EXPECT_EQ(layout.block_bytes % 64, 0);
  std::set<std::int64_t> used;
  for (const KvLayerPlace& place : layout.layers) {
    for (const std::int64_t base : {place.k_offset, place.v_offset}) {
      for (int head = 0; head < 3; ++head) {
        for (int token = 0; token < 5; ++token) {
          for (int d = 0; d < 3; ++d) {
            const std::int64_t element =
                head * layout.head_stride + token * layout.token_stride + d;
            const std::int64_t byte = base + element * options.element_bytes;
            EXPECT_TRUE(used.insert(byte).second);
            EXPECT_LE(byte + options.element_bytes, layout.block_bytes);
          }
        }
      }
    }
  }
  EXPECT_EQ(used.size(), 3U * 2 * 3 * 5 * 3);
}

TEST(KvLayout, LargeGroupsCanBeSplitEvenly) {
  std::vector<std::int32_t> windows(52, 512);
  windows.insert(windows.end(), 10, 0);
  const std::vector<KvGroup> groups = group_layers(windows, 10);
  ASSERT_EQ(groups.size(), 7U);
  std::size_t layers = 0;
  for (const KvGroup& group : groups) {
    EXPECT_GE(group.layers.size(), 8U);
    EXPECT_LE(group.layers.size(), 10U);
    layers += group.layers.size();
  }
  EXPECT_EQ(layers, 62U);
}

TEST(KvLayout, BadNumbersAreNamed) {
  struct Case {
    const char* field;
    std::function<void(KvLayoutOptions&)> spoil;
  };
  const Case cases[] = {
      {"block_size", [](auto& o) { o.block_size = 0; }},
      {"num_kv_heads", [](auto& o) { o.num_kv_heads = -1; }},
      {"head_dim", [](auto& o) { o.head_dim = 0; }},
      {"element_bytes", [](auto& o) { o.element_bytes = 9; }},
      {"layers", [](auto& o) { o.layer_windows.clear(); }},
      {"window", [](auto& o) { o.layer_windows[1] = -4; }},
      {"max_layers_per_group", [](auto& o) { o.max_layers_per_group = -1; }},
  };
  for (const Case& bad : cases) {
    KvLayoutOptions options = small();
    bad.spoil(options);
    const auto layout = make_kv_layout(options);
    ASSERT_FALSE(layout) << bad.field;
    EXPECT_NE(layout.error().message.find(bad.field), std::string::npos) << layout.error().message;
  }
}

}  // namespace
}  // namespace sluice
