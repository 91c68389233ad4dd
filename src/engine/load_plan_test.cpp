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

// Memory that was touched at the start is no longer free, so nothing more has to stay free for it.
TEST(LoadPlanTest, KvMemoryThatWasTouchedIsNotCountedTwice) {
  KvLayout layout;
  layout.block_bytes = 1 << 20;
  EXPECT_EQ(kv_bytes_to_come(KvBacking::kByNeed, 5000, layout), std::int64_t{5000} << 20);
  EXPECT_EQ(kv_bytes_to_come(KvBacking::kAtStart, 5000, layout), std::int64_t{5000} << 20);
  EXPECT_EQ(kv_bytes_to_come(KvBacking::kTouched, 5000, layout), 0);
}

// A model in F16 runs at a fraction of the machine's speed there, which a user should not find out
// by chance.
TEST(LoadPlanTest, SaysWhereAnotherDtypeIsFaster) {
  DeviceTraits traits;
  const EngineOptions options;
  const WeightDTypes f16{.matrices = DType::kF16, .others = DType::kF16};
  EXPECT_EQ(slow_dtype_warning(f16, options, traits), "");
  traits.fast_bf16 = true;
  EXPECT_EQ(slow_dtype_warning(f16, options, traits),
            "the weights are in f16: prompts run at half the speed of BF16 or less here; "
            "--dtype bf16 rounds them to BF16 while they are loaded");
  const WeightDTypes f32{.matrices = DType::kF32, .others = DType::kF32};
  EXPECT_NE(slow_dtype_warning(f32, options, traits).find("in f32"), std::string::npos);
  for (const DType matrices : {DType::kBF16, DType::kF8E4M3, DType::kI8, DType::kQ4K}) {
    EXPECT_EQ(slow_dtype_warning({.matrices = matrices, .others = DType::kF16}, options, traits),
              "");
  }
  EngineOptions asked;
  asked.dtype = DType::kF16;
  EXPECT_EQ(slow_dtype_warning(f16, asked, traits), "");
}

}  // namespace
}  // namespace sluice
