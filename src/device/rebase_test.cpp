#include "device/rebase.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/cpu/cpu_device.h"

namespace sluice {
namespace {

// Two arenas of one layout, which lie at different bases.
class RebaseTest : public testing::Test {
 protected:
  static ArenaPlan plan(std::size_t out_bytes) {
    ArenaPlan plan;
    plan.add(RegionKind::kWeights, "m/table", 4096);
    plan.add(RegionKind::kInputs, "m/ids", 256);
    plan.add(RegionKind::kWorkspace, "m/out", out_bytes);
    return plan;
  }
  Arena make(std::size_t out_bytes = 1024) {
    ArenaPlan layout = plan(out_bytes);
    layout.finish(device_->traits().granularity);
    auto arena = Arena::create(*device_, std::move(layout));
    EXPECT_TRUE(arena);
    for (const RegionKind kind :
         {RegionKind::kWeights, RegionKind::kInputs, RegionKind::kWorkspace}) {
      EXPECT_TRUE(arena->grow(kind, 4096));
    }
    return *std::move(arena);
  }
  // Copies row 1 of the table, which the second id names, to row 0 of out.
  static OpList embed_in(const Arena& arena) {
    EmbedParams p;
    p.table = matrix_view(arena.address(RegionKind::kWeights, "m/table"), DType::kF32, 4, 8);
    p.token_ids = reinterpret_cast<std::int32_t*>(arena.address(RegionKind::kInputs, "m/ids")) + 1;
    p.out = matrix_view(arena.address(RegionKind::kWorkspace, "m/out") + 64, DType::kF32, 1, 8);
    p.rows.capacity = 1;
    OpList list;
    list.append(p);
    return list;
  }

  ThreadPool pool_{1};
  std::unique_ptr<Device> device_ = *make_cpu_device({&pool_, 0, {}});
  Arena from_ = make();
};

TEST_F(RebaseTest, GivesTheListThatWouldHaveBeenCapturedThere) {
  const Arena to = make();
  ASSERT_NE(from_.region_base(RegionKind::kWeights), to.region_base(RegionKind::kWeights));
  const auto moved = rebase(embed_in(from_), from_, to);
  ASSERT_TRUE(moved) << moved.error().message;
  EXPECT_EQ(first_difference(*moved, embed_in(to)), "");
  EXPECT_FALSE(*moved == embed_in(from_));
}

TEST_F(RebaseTest, AMovedListRunsAsAGraph) {
  const Arena to = make();
  auto* ids = reinterpret_cast<std::int32_t*>(to.address(RegionKind::kInputs, "m/ids"));
  auto* table = reinterpret_cast<float*>(to.address(RegionKind::kWeights, "m/table"));
  ids[1] = 2;
  for (int i = 0; i < 32; ++i) table[i] = static_cast<float>(i);
  auto moved = rebase(embed_in(from_), from_, to);
  ASSERT_TRUE(moved);
  const auto graph = device_->make_graph(*std::move(moved));
  ASSERT_TRUE(graph);
  ASSERT_TRUE(device_->replay(**graph));
  const auto* out =
      reinterpret_cast<const float*>(to.address(RegionKind::kWorkspace, "m/out") + 64);
  EXPECT_EQ(out[0], 16.0F);
  EXPECT_EQ(out[7], 23.0F);
}

TEST_F(RebaseTest, RefusesPointersOutsideOfTheArenaByName) {
  int elsewhere = 0;
  OpList list = embed_in(from_);
  SampleParams p;
  p.tokens = &elsewhere;
  list.append(p);
  const auto moved = rebase(list, from_, from_);
  ASSERT_FALSE(moved);
  EXPECT_THAT(moved.error().message,
              testing::AllOf(testing::HasSubstr("op 1 (sample): tokens is"),
                             testing::HasSubstr("lies in no buffer of the arena")));
}

TEST_F(RebaseTest, RefusesAnArenaOfAnotherLayout) {
  const Arena shorter = make(64);
  const auto moved = rebase(embed_in(from_), from_, shorter);
  ASSERT_FALSE(moved);
  EXPECT_THAT(moved.error().message, testing::HasSubstr("lies in 'm/out' at 64"));
}

}  // namespace
}  // namespace sluice
