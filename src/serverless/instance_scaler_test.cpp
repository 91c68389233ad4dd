#include "serverless/instance_scaler.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

using std::chrono::seconds;

TimePoint second(std::int64_t s) { return {seconds(s)}; }

ScalerOptions target_10() {
  ScalerOptions options;
  options.target = 10;
  return options;
}

// Records `concurrency` in each second of [from, to).
void load(InstanceScaler& scaler, std::int64_t from, std::int64_t to, double concurrency) {
  for (std::int64_t s = from; s < to; ++s) scaler.record(second(s), concurrency);
}

struct Row {
  double concurrency;  // for a whole stable window
  std::int32_t ready;
  std::int32_t instances;
  bool panicking;
  const char* by_hand;
};

// Each line by hand from Knative's pkg/autoscaler/scaling/autoscaler.go, Scale(): dspc = dppc =
// ceil(observed / target), clamped to [floor(ready / 2), ceil(1000 ready)]; panic if dppc / ready
// >= 2; target 10.
TEST(InstanceScalerTest, TableByHandFromKnative) {
  const Row rows[] = {
      {10, 1, 1, false, "ceil(10/10) = 1; 1/1 < 2"},
      {11, 1, 2, true, "ceil(1.1) = 2; 2/1 >= 2"},
      {0.1, 0, 1, false, "ready counts as 1; ceil(0.01) = 1"},
      {20, 0, 2, true, "ready counts as 1; 2/1 >= 2"},
      {90, 5, 9, false, "9/5 = 1.8 < 2"},
      {91, 5, 10, true, "ceil(9.1) = 10; 10/5 = 2"},
      {10, 10, 5, false, "1, but not below floor(10/2)"},
      {31, 7, 4, false, "ceil(3.1) = 4 > floor(7/2) = 3"},
      {0, 3, 1, false, "0, but not below floor(3/2)"},
      {0, 0, 0, false, "nothing"},
  };
  for (const Row& row : rows) {
    ScalerOptions options = target_10();
    InstanceScaler scaler(options, second(0), std::min(row.ready, 1));
    load(scaler, 0, 60, row.concurrency);
    const ScaleDecision decision = scaler.decide(second(59), row.ready);
    EXPECT_EQ(decision.instances, row.instances) << row.by_hand;
    EXPECT_EQ(decision.panicking, row.panicking) << row.by_hand;
  }
}

TEST(InstanceScalerTest, RatesBoundOneStep) {
  // The example in a comment of Knative's source: MSUR=1.1, OCC=3, RPC=2, TV=1 gives 3.
  ScalerOptions options;
  options.target = 1;
  options.max_scale_up_rate = 1.1;
  InstanceScaler slow(options, second(0), 1);
  load(slow, 0, 60, 3);
  EXPECT_EQ(slow.decide(second(59), 2).instances, 3);
  options.max_scale_up_rate = 2;
  InstanceScaler twice(options, second(0), 1);
  load(twice, 0, 60, 100);
  EXPECT_EQ(twice.decide(second(59), 2).instances, 4);
}

TEST(InstanceScalerTest, PanicFollowsTheShortWindowAndNeverScalesDown) {
  InstanceScaler scaler(target_10(), second(0), 1);
  load(scaler, 0, 60, 10);
  EXPECT_EQ(scaler.decide(second(59), 1).instances, 1);
  load(scaler, 60, 66, 100);
  // Panic window: 100, so 10 instances. Stable window: (54 x 10 + 6 x 100) / 60 = 19, so 2.
  EXPECT_EQ(scaler.decide(second(65), 1).instances, 10);
  // Then silence. The panic ends after more than 60 s; by then the stable window is empty, but one
  // step goes to floor(10 / 2) at most.
  for (std::int64_t s = 66; s <= 125; ++s) {
    scaler.record(second(s), 0);
    const ScaleDecision decision = scaler.decide(second(s), 10);
    EXPECT_EQ(decision.instances, 10) << s;
    EXPECT_TRUE(decision.panicking) << s;
  }
  scaler.record(second(126), 0);
  const ScaleDecision after = scaler.decide(second(126), 10);
  EXPECT_FALSE(after.panicking);
  EXPECT_EQ(after.instances, 5);
}

TEST(InstanceScalerTest, RestartKeepsWhatIsThereForAWindow) {
  InstanceScaler scaler(target_10(), second(0), 4);
  EXPECT_EQ(scaler.decide(second(60), 4).instances, 4);
  EXPECT_EQ(scaler.decide(second(61), 4).instances, 2);
}

TEST(InstanceScalerTest, ScaleDownDelayKeepsTheLargestCount) {
  ScalerOptions options = target_10();
  options.scale_down_delay = seconds(30);
  options.stable_window = seconds(2);
  options.panic_threshold = 100;
  InstanceScaler scaler(options, second(0), 1);
  load(scaler, 0, 2, 40);
  EXPECT_EQ(scaler.decide(second(1), 4).instances, 4);
  load(scaler, 2, 11, 10);
  EXPECT_EQ(scaler.decide(second(10), 4).instances, 4);
  load(scaler, 11, 31, 10);
  EXPECT_EQ(scaler.decide(second(30), 4).instances, 4);
  load(scaler, 31, 32, 10);
  EXPECT_EQ(scaler.decide(second(31), 4).instances, 2);  // not below floor(4/2) in one step
}

TEST(InstanceScalerTest, FromZeroAndBack) {
  ScalerOptions options = target_10();
  options.scale_to_zero_pod_retention_period = seconds(40);
  options.scale_to_zero_grace_period = seconds(30);
  InstanceScaler scaler(options, second(0), 0);
  EXPECT_EQ(scaler.decide(second(0), 0).instances, 0);
  scaler.record(second(100), 1);
  EXPECT_EQ(scaler.decide(second(100), 0).instances, 1);  // at once
  scaler.record(second(103), 0);
  EXPECT_EQ(scaler.decide(second(103), 1).instances, 1);
  // The window holds the call until second 159. From 160 on zero is asked for, but the instance,
  // there since 103, must have been there for a window; then the retention counts.
  EXPECT_EQ(scaler.decide(second(160), 1).instances, 1);
  EXPECT_EQ(scaler.decide(second(163), 1).instances, 1);
  EXPECT_EQ(scaler.decide(second(202), 1).instances, 1);
  EXPECT_EQ(scaler.decide(second(203), 1).instances, 0);
}

TEST(InstanceScalerTest, CallDuringRetentionStartsItAnew) {
  ScalerOptions options = scaler_options_for(seconds(90));
  EXPECT_EQ(options.scale_to_zero_pod_retention_period, seconds(30));
  InstanceScaler scaler(options, second(0), 1);
  EXPECT_EQ(scaler.decide(second(61), 1).instances, 1);
  scaler.record(second(80), 1);
  EXPECT_EQ(scaler.decide(second(80), 1).instances, 1);
  EXPECT_EQ(scaler.decide(second(140), 1).instances, 1);
  EXPECT_EQ(scaler.decide(second(169), 1).instances, 1);
  EXPECT_EQ(scaler.decide(second(170), 1).instances, 0);
}

TEST(InstanceScalerTest, ShortIdleTimes) {
  InstanceScaler scaler(scaler_options_for(seconds(5)), second(0), 0);
  scaler.record(second(10), 1);
  EXPECT_EQ(scaler.decide(second(10), 0).instances, 1);
  EXPECT_EQ(scaler.decide(second(11), 1).instances, 1);
  EXPECT_EQ(scaler.decide(second(14), 1).instances, 1);
  EXPECT_EQ(scaler.decide(second(16), 1).instances, 0);
}

TEST(InstanceScalerTest, BoundsHold) {
  ScalerOptions options = target_10();
  options.min_scale = 2;
  options.max_scale = 3;
  InstanceScaler scaler(options, second(0), 1);
  EXPECT_EQ(scaler.decide(second(100), 2).instances, 2);
  load(scaler, 101, 161, 500);
  EXPECT_EQ(scaler.decide(second(160), 2).instances, 3);
}

TEST(InstanceScalerTest, QueueIsBounded) {
  ScalerOptions options;
  options.queue_depth = 2;
  const InstanceScaler scaler(options, second(0), 0);
  EXPECT_TRUE(scaler.may_wait(1));
  EXPECT_FALSE(scaler.may_wait(2));
}

TEST(SecondsWindowTest, AveragesOnlyWhatIsKnown) {
  SecondsWindow window(seconds(10));
  EXPECT_EQ(window.mean(second(5)), 0);
  window.record(second(100), 4);
  window.record(second(100), 8);
  EXPECT_DOUBLE_EQ(window.mean(second(100)), 6);
  window.record(second(102), 3);
  EXPECT_DOUBLE_EQ(window.mean(second(102)), 3);  // 6, nothing, 3
  EXPECT_DOUBLE_EQ(window.mean(second(111)), 0.3);
  EXPECT_DOUBLE_EQ(window.mean(second(112)), 0);
  window.record(second(200), 5);
  EXPECT_DOUBLE_EQ(window.mean(second(200)), 5);  // begins anew
}

}  // namespace
}  // namespace sluice
