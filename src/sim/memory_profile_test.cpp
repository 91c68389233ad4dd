// The profiler of memory on machines whose answers are known: by hand, and from the paper.
#include "sim/memory_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/cost_model.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

// A step takes 10 ms up to 16 tokens, and in proportion beyond.
class RampCost final : public StepCost {
 public:
  std::int32_t num_stages() const override { return 1; }
  void stage_times(const BatchPlan& plan, std::span<Duration> stages) override {
    const auto tokens = static_cast<std::int64_t>(plan.token_ids.size());
    stages[0] = milliseconds(10) * std::max<std::int64_t>(16, tokens) / 16;
  }
  Duration send_time(const BatchPlan&) const override { return Duration(0); }
};

SimulatedMachine ramp_machine(std::int32_t num_blocks) {
  SimulatedMachine machine;
  machine.options.replica.token_budget = 64;
  machine.options.replica.max_num_seqs = 64;
  machine.options.replica.max_model_len = 512;
  machine.options.replica.num_blocks = num_blocks;
  machine.cost = std::make_unique<RampCost>();
  return machine;
}

SimulatedLoadOptions short_load() {
  SimulatedLoadOptions load;
  load.lengths = "fixed:32,96";
  load.num_requests = 200;
  load.context = 512;
  load.seed = 3;
  return load;
}

MemoryProfileOptions objective(Duration tbt, Duration ttft) {
  MemoryProfileOptions options;
  options.capacity.objective.p99_tbt = tbt;
  options.capacity.objective.ttft = ttft;
  options.burst_seconds = 10;
  return options;
}

TEST(MemoryProfile, ASpareHalfMakesAProducer) {
  const SimulatedMachine machine = ramp_machine(4001);
  MemoryProfileOptions options = objective(milliseconds(60), milliseconds(500));
  options.lend_blocks = 500;
  const auto profile = profile_memory(machine, short_load(), options);
  ASSERT_TRUE(profile);
  EXPECT_TRUE(profile->producer);
  EXPECT_EQ(profile->kv_blocks, 4000);
  EXPECT_GT(profile->held_blocks, 0);
  EXPECT_EQ(profile->spare_blocks, 4000 - profile->held_blocks);
  EXPECT_GT(profile->spare_blocks, options.lend_blocks);
  ASSERT_EQ(profile->bursts.size(), 2U);
  EXPECT_EQ(profile->bursts[1].swap_blocks, 0);  // all of a burst fits
  for (const CapacityProbe& probe : profile->capacity.probes) {
    EXPECT_EQ(probe.met, probe.rate <= profile->capacity.rate);
    EXPECT_TRUE(!probe.met || probe.ttft <= milliseconds(500));
  }
  // The same machine under a threshold that it does not reach lends nothing and needs nothing.
  options.lend_blocks = 4000;
  const auto none = profile_memory(machine, short_load(), options);
  EXPECT_TRUE(none->producer);
  EXPECT_EQ(none->spare_blocks, 0);
}

TEST(MemoryProfile, AModelWhoseBurstsDoNotFitIsAConsumer) {
  const SimulatedMachine machine = ramp_machine(101);  // twelve requests
  MemoryProfileOptions options = objective(milliseconds(60), milliseconds(500));
  options.lend_blocks = 60;
  const auto profile = profile_memory(machine, short_load(), options);
  ASSERT_TRUE(profile);
  EXPECT_FALSE(profile->producer);
  ASSERT_EQ(profile->bursts.size(), 2U);
  EXPECT_GT(profile->bursts[0].swap_blocks, 0);
  EXPECT_GT(profile->bursts[1].swap_blocks, profile->bursts[0].swap_blocks);
  EXPECT_EQ(profile->spare_blocks, -profile->bursts[1].swap_blocks);
  // A request never has more than its 128 tokens, and no more arrive than the bursts send.
  EXPECT_LT(profile->bursts[1].swap_blocks, 8 * 10 * 5 * 1.5 * profile->capacity.rate);
}

TEST(MemoryProfile, TheTtftObjectiveLowersTheRate) {
  const SimulatedMachine machine = ramp_machine(101);
  const auto loose =
      profile_memory(machine, short_load(), objective(milliseconds(60), std::chrono::seconds(5)));
  const auto tight =
      profile_memory(machine, short_load(), objective(milliseconds(60), milliseconds(100)));
  ASSERT_TRUE(loose && tight);
  EXPECT_LT(tight->capacity.rate, loose->capacity.rate);
  EXPECT_LE(tight->held_blocks, loose->held_blocks);
  const auto never =
      profile_memory(machine, short_load(), objective(milliseconds(1), milliseconds(100)));
  ASSERT_FALSE(never);
  EXPECT_THAT(never.error().message, HasSubstr("no rate meets a P99 TBT of 1.0 ms and a P99 TTFT"));
  SimulatedLoadOptions few = short_load();
  few.num_requests = 20;
  const auto always =
      profile_memory(machine, few, objective(std::chrono::hours(1), std::chrono::hours(1)));
  ASSERT_FALSE(always);
  EXPECT_THAT(always.error().message, HasSubstr("every rate that was tried meets the objective"));
  const auto stopped =
      profile_memory(machine, short_load(), objective(milliseconds(60), milliseconds(100)),
                     [](double) { return false; });
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled);
}

TEST(MemoryProfile, BatchesGrowUntilTheThroughputSaturates) {
  // Sixteen decodes take as long as one; more than sixteen take longer in proportion.
  MemoryProfileOptions options;
  options.lend_blocks = 100;
  const auto profile = profile_batches(ramp_machine(1001), 16, 480, options);
  ASSERT_TRUE(profile);
  EXPECT_EQ(profile->saturated_batch, 16);
  ASSERT_EQ(profile->batches.size(), 6U);  // 1 to 32
  EXPECT_EQ(profile->batches.back().batch, 32);
  EXPECT_EQ(profile->held_blocks, 16 * 31);  // of 496 tokens each
  EXPECT_TRUE(profile->producer);
  EXPECT_EQ(profile->spare_blocks, 1000 - 16 * 31);
  // In less memory the same batch lacks some.
  const auto small = profile_batches(ramp_machine(301), 16, 480, options);
  ASSERT_TRUE(small);
  EXPECT_EQ(small->saturated_batch, 16);
  EXPECT_FALSE(small->producer);
  EXPECT_EQ(small->spare_blocks, 300 - 16 * 31);
}

TEST(MemoryProfile, TheSameSeedGivesTheSameProfile) {
  const MemoryProfileOptions options = objective(milliseconds(60), milliseconds(500));
  const auto once = profile_memory(ramp_machine(101), short_load(), options);
  const auto again = profile_memory(ramp_machine(101), short_load(), options);
  EXPECT_EQ(once->capacity.rate, again->capacity.rate);
  EXPECT_EQ(once->held_blocks, again->held_blocks);
  EXPECT_EQ(once->spare_blocks, again->spare_blocks);
}

}  // namespace
}  // namespace sluice
