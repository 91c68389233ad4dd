// The model runner sizes KV memory as plans say, with steps in flight.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "device/cpu/cpu_device.h"
#include "engine/engine_loader.h"
#include "engine/kv_memory.h"
#include "tests/golden/golden_case.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/late_device.h"

namespace sluice {
namespace {

// Counts what is given back.
class CountingDevice final : public test::LateDevice {
 public:
  using LateDevice::LateDevice;
  void unback(AddressRange range, std::size_t offset, std::size_t bytes) override {
    ++unbacks;
    LateDevice::unback(range, offset, bytes);
  }
  Result<MemoryInfo> memory_info() const override {
    return memory ? Result<MemoryInfo>(*memory) : LateDevice::memory_info();
  }
  Status populate(AddressRange range, std::size_t offset, std::size_t bytes) override {
    populated += bytes;
    return LateDevice::populate(range, offset, bytes);
  }
  int unbacks = 0;
  std::size_t populated = 0;         // bytes
  std::optional<MemoryInfo> memory;  // absent: the machine's
};

class KvSizeTest : public testing::Test {
 protected:
  void SetUp() override {
    write_golden_checkpoint(read_golden_case("tests/golden/models", "llama-mha"),
                            checkpoint_.path());
    auto cpu = make_cpu_device({&pool_, 0, {}});
    ASSERT_TRUE(cpu);
    device_ = std::make_unique<CountingDevice>(std::move(*cpu));
  }
  void load(KvBacking backing) {
    EngineOptions options;
    options.max_num_seqs = 4;
    options.kv_cache_memory = std::int64_t{100} << 20;
    options.kv_backing = backing;
    StartupTimeline timeline(clock_);
    auto loaded = load_executor(checkpoint_.path(), options, *device_, pool_, timeline);
    ASSERT_TRUE(loaded) << loaded.error().message;
    loaded_ = std::move(*loaded);
  }
  Executor& executor() { return *loaded_.executor; }
  // A chunk of four tokens in a slot, whose block has the slot's number plus one.
  static BatchPlan chunk(std::int32_t slot, std::int32_t kv_blocks = 0) {
    BatchPlan plan;
    PlanRow row;
    row.slot = slot;
    row.query_len = 4;
    plan.rows = {row};
    plan.token_ids = {1, 2, 3, 4};
    plan.table_updates = {{slot, 0, 0, 1, 0}};
    plan.block_ids = {slot + 1};
    plan.kv_blocks = kv_blocks;
    return plan;
  }
  static BatchPlan size(std::int32_t blocks) {
    BatchPlan plan;
    plan.kv_blocks = blocks;
    return plan;
  }

  TempDirectory checkpoint_;
  SystemClock clock_;
  ThreadPool pool_{1};
  std::unique_ptr<CountingDevice> device_;
  LoadedExecutor loaded_;
};

TEST_F(KvSizeTest, StartsWithOneChunkAndGrowsToTheMost) {
  load(KvBacking::kByNeed);
  EXPECT_EQ(executor().kv_backed_blocks(), loaded_.first_kv_blocks);
  EXPECT_EQ(loaded_.kv.num_blocks, loaded_.first_kv_blocks);
  EXPECT_EQ(loaded_.kv.max_blocks, loaded_.kv_blocks);
  EXPECT_LT(loaded_.first_kv_blocks, loaded_.kv_blocks / 5);
  ASSERT_TRUE(executor().submit(size(loaded_.first_kv_blocks + 1)));
  EXPECT_GE(executor().kv_backed_blocks(), 2 * loaded_.kv.chunk_blocks);
  ASSERT_TRUE(executor().submit(size(loaded_.kv_blocks)));
  EXPECT_EQ(executor().kv_backed_blocks(), loaded_.kv_blocks);
  EXPECT_FALSE(executor().kv_growth_failed());
  ASSERT_TRUE(executor().submit(size(loaded_.first_kv_blocks)));
  EXPECT_EQ(executor().kv_backed_blocks(), loaded_.first_kv_blocks);
  EXPECT_EQ(device_->unbacks, 1) << "with nothing in flight it goes back at once";
}

TEST_F(KvSizeTest, TouchedMemoryIsResidentAtTheStartAndGoesBackLater) {
  load(KvBacking::kTouched);
  EXPECT_EQ(executor().kv_backed_blocks(), loaded_.kv_blocks);
  EXPECT_EQ(loaded_.kv.num_blocks, loaded_.kv_blocks);
  EXPECT_GT(loaded_.kv.chunk_blocks, 0) << "it may shrink, unlike kAtStart";
  EXPECT_EQ(device_->populated, std::size_t{100} << 20);
  ASSERT_TRUE(executor().submit(size(loaded_.kv_blocks / 2)));
  EXPECT_EQ(device_->unbacks, 1);
}

TEST_F(KvSizeTest, MemoryIsNotTouchedUnlessAskedFor) {
  load(KvBacking::kAtStart);
  EXPECT_EQ(device_->populated, 0U);
}

TEST_F(KvSizeTest, MemoryGoesBackOnceTheStepsThatMayUseItHaveRun) {
  load(KvBacking::kAtStart);
  ASSERT_EQ(executor().kv_backed_blocks(), loaded_.kv_blocks);
  ASSERT_EQ(executor().max_in_flight(), 2);
  const std::int32_t few =
      KvMemory::chunk_blocks(device_->traits(), loaded_.kv_bytes / loaded_.kv_blocks);
  const BatchPlan first = chunk(0);
  const BatchPlan second = chunk(1, few);
  StepResult result;
  ASSERT_TRUE(executor().submit(first));
  ASSERT_TRUE(executor().submit(second));
  EXPECT_EQ(executor().kv_backed_blocks(), few) << "at once, for the plans that follow";
  EXPECT_EQ(executor().kv_held_blocks(), loaded_.kv_blocks) << "the system has nothing of it yet";
  EXPECT_EQ(device_->unbacks, 0);
  ASSERT_TRUE(executor().collect(result));
  EXPECT_EQ(device_->unbacks, 0) << "the step of the plan itself may still run";
  ASSERT_TRUE(executor().collect(result));
  EXPECT_EQ(device_->unbacks, 1);
  EXPECT_EQ(executor().kv_backed_blocks(), few);
  EXPECT_EQ(executor().kv_held_blocks(), few);
}

TEST_F(KvSizeTest, APlanWithoutRowsIsNotInFlight) {
  load(KvBacking::kAtStart);
  const BatchPlan first = chunk(0);
  ASSERT_TRUE(executor().submit(first));
  BatchPlan move = size(loaded_.kv_blocks / 2);
  move.copies = {{1, 2}};
  ASSERT_TRUE(executor().submit(move));
  EXPECT_LE(executor().kv_backed_blocks(), loaded_.kv_blocks / 2);
  const BatchPlan second = chunk(1);
  ASSERT_TRUE(executor().submit(second));
  StepResult result;
  ASSERT_TRUE(executor().collect(result));
  ASSERT_TRUE(executor().collect(result));
  EXPECT_EQ(device_->unbacks, 1);
}

TEST_F(KvSizeTest, ASizeBelowOneChunkIsKeptToTheBlock) {
  EngineOptions options;
  options.max_num_seqs = 4;
  StartupTimeline timeline(clock_);
  auto roomy = load_executor(checkpoint_.path(), options, *device_, pool_, timeline);
  ASSERT_TRUE(roomy);
  const std::int64_t block = roomy->kv_bytes / roomy->kv_blocks;
  roomy->executor.reset();
  options.kv_cache_memory = 7 * block + 1;
  auto loaded = load_executor(checkpoint_.path(), options, *device_, pool_, timeline);
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->kv_blocks, 7);
  EXPECT_EQ(loaded->first_kv_blocks, 7);
  EXPECT_EQ(loaded->executor->kv_backed_blocks(), 7);
}

TEST_F(KvSizeTest, AShareOfTheDevicesMemoryCountsWhatIsInUse) {
  constexpr std::int64_t kGiB = std::int64_t{1} << 30;
  device_->memory = MemoryInfo{10 * kGiB, 4 * kGiB};
  EngineOptions options;
  options.gpu_memory_share = 0.5;
  StartupTimeline timeline(clock_);
  const auto refused = load_executor(checkpoint_.path(), options, *device_, pool_, timeline);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(refused.error().message,
              testing::HasSubstr("--gpu-memory-utilization 0.5 leaves no KV memory: 4.00 GiB are "
                                 "free of 10.00 GiB"));
  options.gpu_memory_share = 0.75;
  const auto loaded = load_executor(checkpoint_.path(), options, *device_, pool_, timeline);
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_GT(loaded->kv_bytes, 0);
}

}  // namespace
}  // namespace sluice
