#include "engine/load_plan.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;
// 4 GiB are in use by others; weights, inputs and workspace will take 10 more.
constexpr MemoryInfo kMemory = {80 * kGiB, 76 * kGiB};

TEST(LoadPlanTest, KvMemoryTakesHalfOfWhatIsFree) {
  EXPECT_EQ(room_for_kv(kMemory, {}, 10 * kGiB), 33 * kGiB);
}

TEST(LoadPlanTest, KvMemoryTakesWhatAShareOfTheDeviceLeaves) {
  EXPECT_EQ(room_for_kv(kMemory, 0.75, 10 * kGiB), 46 * kGiB);  // 4 + 10 + 46 of 80 GiB
  EXPECT_EQ(room_for_kv(kMemory, 1, 10 * kGiB), 66 * kGiB);
  EXPECT_EQ(room_for_kv(kMemory, 0.125, 10 * kGiB), -4 * kGiB);
}

}  // namespace
}  // namespace sluice
