#include "profile/profiler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "profile/test_profiles.h"
#include "tests/support/fake_executor.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Takes the time that a law says for the plan's rows, with noise and now and then a hiccup. Runs
// the plans on a FakeExecutor when there is one, which is strict about them.
class LawExecutor final : public Executor {
 public:
  LawExecutor(ManualClock& clock, FakeExecutor* strict) : clock_(clock), strict_(strict) {}

  int max_in_flight() const override { return 1; }
  Status submit(const BatchPlan& plan) override {
    if (steps_++ == fail_at) return unavailable("the device is gone");
    StepFeatures f;
    for (const PlanRow& row : plan.rows) {
      if (row.num_logits > 0) {
        f.add_decode(row.context_len);
      } else {
        f.add_chunk(row.context_len, row.query_len, false);
      }
    }
    double ns = law.time_ns(f) * (1 + noise * (2 * random_.uniform() - 1));
    if (noise > 0 && random_.below(20) == 0) ns *= 4;
    clock_.advance(Duration(static_cast<std::int64_t>(ns)));
    longest = std::max(longest, ns);
    copies += plan.copies.size();
    if (strict_ != nullptr) return strict_->submit(plan);
    return {};
  }
  Status collect(StepResult& out) override {
    if (strict_ != nullptr) return strict_->collect(out);
    out.clear();
    return {};
  }

  StepTimePredictor law = test::test_law();
  double noise = 0;
  int fail_at = -1;
  double longest = 0;
  std::size_t copies = 0;

 private:
  ManualClock& clock_;
  FakeExecutor* strict_;
  SplitMix64 random_{3};
  int steps_ = 0;
};

StepLimits limits(std::int32_t seqs, std::int32_t context, std::int32_t tokens,
                  std::vector<std::int32_t> windows = {0}) {
  StepLimits result;
  result.kv = {.block_size = 16,
               .group_windows = std::move(windows),
               .num_blocks = seqs * (context / 16 + 2) + 1,
               .max_blocks = 0,
               .max_num_seqs = seqs,
               .max_model_len = context,
               .max_query_len = std::min(tokens, context)};
  result.max_tokens = tokens;
  result.vocab_size = 50;
  return result;
}

constexpr auto kGoOn = [](const ProfilerProgress& progress) {
  EXPECT_LE(progress.measured, progress.points);
  return true;
};

TEST(ProfilerTest, FindsTheLawOfANoisyMachine) {
  ManualClock clock;
  LawExecutor executor(clock, nullptr);
  executor.noise = 0.05;
  const StepLimits l = limits(32, 8192, 512);
  StepRunner runner(l, executor, clock);
  const auto grid = profile_grid(runner, l);
  const auto points = measure_points(runner, grid, {.time_limit = seconds(600)}, clock, kGoOn);
  ASSERT_TRUE(points);
  EXPECT_EQ(points->size(), grid.size());
  MachineProfile profile;
  profile.points = *points;
  ASSERT_TRUE(fit_profile(profile));
  EXPECT_EQ(profile.predictor.tile, 16);
  std::printf("held out: %d points, error median %.2f %%, p90 %.2f %%, largest %.2f %%\n",
              profile.error.points, 100 * profile.error.median, 100 * profile.error.p90,
              100 * profile.error.largest);
  EXPECT_GE(profile.error.points, 15);
  EXPECT_LT(profile.error.median, 0.03);
  EXPECT_LT(profile.error.p90, 0.06);
  for (const StepShape& shape : {StepShape{32, 4096, 0, 0}, StepShape{20, 3000, 200, 5000}}) {
    EXPECT_NEAR(
        profile.predictor.time_ns(shape.features()) / executor.law.time_ns(shape.features()), 1,
        0.06);
  }
}

TEST(ProfilerTest, PlansKeepTheirPromisesToAnExecutor) {
  for (const std::vector<std::int32_t>& windows : {std::vector<std::int32_t>{0}, {24}, {0, 24}}) {
    ManualClock clock;
    const FakeModel model{.group_windows = windows};
    const StepLimits l = limits(4, 96, 40, windows);
    FakeExecutor strict(model, l.kv, 1);
    LawExecutor executor(clock, &strict);
    StepRunner runner(l, executor, clock);
    ASSERT_TRUE(runner.fill_kv());
    EXPECT_GE(executor.copies + 4, static_cast<std::size_t>(l.kv.num_blocks - 1));
    const auto grid = profile_grid(runner, l);
    const auto points =
        measure_points(runner, grid, {.time_limit = seconds(60), .repeats = 2}, clock, kGoOn);
    ASSERT_TRUE(points);
    EXPECT_EQ(points->size(), grid.size());
  }
}

TEST(ProfilerTest, StaysWithinItsTimeAndKeepsWhatMatters) {
  for (const auto limit : {seconds(1), seconds(3), seconds(10), seconds(40)}) {
    ManualClock clock;
    LawExecutor executor(clock, nullptr);
    const StepLimits l = limits(64, 8192, 2048);
    StepRunner runner(l, executor, clock);
    const auto points =
        measure_points(runner, profile_grid(runner, l), {.time_limit = limit}, clock, kGoOn);
    ASSERT_TRUE(points);
    // A step is begun when it is expected to end in time; contexts make it longer than that.
    EXPECT_LE(static_cast<double>(clock.now().since_start.count()),
              static_cast<double>(Duration(limit).count()) + executor.longest);
    MachineProfile profile;
    profile.points = *points;
    EXPECT_TRUE(fit_profile(profile)) << points->size() << " points";
  }
}

// A step that turned out too long is not taken for a sign that all the others are.
TEST(ProfilerTest, OneLongStepDoesNotEndMeasuring) {
  ManualClock clock;
  LawExecutor executor(clock, nullptr);
  executor.law.chunk_work_ns = 600;  // 512 tokens after 4,000: 1.3 s
  const StepLimits l = limits(8, 8192, 512);
  StepRunner runner(l, executor, clock);
  const auto grid = profile_grid(runner, l);
  const auto points =
      measure_points(runner, grid, {.time_limit = seconds(40), .repeats = 2}, clock, kGoOn);
  ASSERT_TRUE(points);
  EXPECT_GT(points->size(), grid.size() / 2);
  for (const ProfilePoint& point : *points) EXPECT_LT(point.median_ns, 3e9);
}

TEST(ProfilerTest, TheSameSeedGivesTheSameOrder) {
  const auto measure = [](std::uint64_t seed) {
    ManualClock clock;
    LawExecutor executor(clock, nullptr);
    executor.noise = 0.1;
    const StepLimits l = limits(8, 1024, 128);
    StepRunner runner(l, executor, clock);
    MachineProfile profile = test::test_profile(0);
    profile.points =
        *measure_points(runner, profile_grid(runner, l),
                        {.time_limit = seconds(5), .repeats = 3, .seed = seed}, clock, kGoOn);
    return profile_to_json(profile);
  };
  EXPECT_EQ(measure(1), measure(1));
  EXPECT_NE(measure(1), measure(2));
}

TEST(ProfilerTest, SmallEnginesAreMeasuredAsFarAsTheyGo) {
  ManualClock clock;
  LawExecutor executor(clock, nullptr);
  const StepLimits l = limits(1, 16, 8);
  StepRunner runner(l, executor, clock);
  EXPECT_FALSE(runner.can_run({1, 16, 0, 0}));
  EXPECT_FALSE(runner.can_run({1, 4, 1, 0}));
  EXPECT_FALSE(runner.can_run({0, 0, 9, 0}));
  EXPECT_FALSE(runner.can_run({0, 0, 8, 9}));
  EXPECT_FALSE(runner.can_run({}));
  const auto grid = profile_grid(runner, l);
  ASSERT_FALSE(grid.empty());
  const auto points = measure_points(runner, grid, {.time_limit = seconds(60)}, clock, kGoOn);
  ASSERT_TRUE(points);
  MachineProfile profile;
  profile.points = *points;
  EXPECT_TRUE(fit_profile(profile));
}

TEST(ProfilerTest, ErrorsAndInterruptsEndIt) {
  const auto measure = [](int fail_at, int stop_at) {
    ManualClock clock;
    LawExecutor executor(clock, nullptr);
    executor.fail_at = fail_at;
    const StepLimits l = limits(4, 256, 64);
    StepRunner runner(l, executor, clock);
    int told = 0;
    const auto observer = [&](const ProfilerProgress&) { return told++ != stop_at; };
    return measure_points(runner, profile_grid(runner, l), {}, clock, observer);
  };
  EXPECT_EQ(measure(30, -1).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(measure(0, -1).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(measure(-1, 20).error().code, ErrorCode::kCancelled);
  EXPECT_EQ(measure(-1, 0).error().code, ErrorCode::kCancelled);
}

}  // namespace
}  // namespace sluice
