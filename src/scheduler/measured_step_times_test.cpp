#include "scheduler/measured_step_times.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"

namespace sluice {
namespace {

constexpr StepCosts kCosts{.pair_tokens = 1e-4, .position_reads = 2e-5, .window = 0};
constexpr double kRead = 90e6;
constexpr double kToken = 6e6;

// Reads all weights while it computes; attention comes on top.
double machine_ns(const StepFeatures& f) {
  return std::max(kRead, kToken * f.tokens) +
         kRead * kCosts.position_reads * (f.decode_context + f.chunk_context) +
         kToken * kCosts.pair_tokens * f.chunk_work;
}

StepFeatures prompt_of(std::int32_t tokens) {
  StepFeatures f;
  f.add_chunk(0, tokens, true);
  return f;
}

StepFeatures decode_at(std::int32_t context) {
  StepFeatures f;
  f.add_decode(context);
  return f;
}

TEST(MeasuredStepTimes, KnowsNothingBeforeTheFirstStep) {
  MeasuredStepTimes times(kCosts);
  EXPECT_EQ(times.predictor().num_knots, 0);
  times.observe({}, 1e6);
  times.observe(decode_at(5), 0);
  EXPECT_EQ(times.predictor().num_knots, 0);
}

TEST(MeasuredStepTimes, StepsLikeThoseSeenArePredicted) {
  MeasuredStepTimes times(kCosts);
  SplitMix64 random(4);
  for (int i = 0; i < 400; ++i) {
    StepFeatures f = decode_at(static_cast<std::int32_t>(random.below(3000)));
    if (i % 2 == 0) {
      const auto tokens = static_cast<std::int32_t>(1 + random.below(500));
      f.add_chunk(static_cast<std::int32_t>(random.below(3000)), tokens, false);
    }
    times.observe(f, machine_ns(f));
  }
  const StepTimePredictor& p = times.predictor();
  for (int i = 0; i < 200; ++i) {
    StepFeatures f = decode_at(static_cast<std::int32_t>(random.below(3000)));
    const auto tokens = static_cast<std::int32_t>(1 + random.below(400));
    f.add_chunk(static_cast<std::int32_t>(random.below(3000)), tokens, false);
    EXPECT_NEAR(p.time_ns(f) / machine_ns(f), 1, 0.35) << f.tokens << " tokens";
  }
  EXPECT_NEAR(p.time_ns(decode_at(100)) / machine_ns(decode_at(100)), 1, 0.05);
}

// Step lengths that were never seen are predicted as too long, so that chunks grow step by step.
TEST(MeasuredStepTimes, LongerStepsThanSeenAreNotTakenForCheap) {
  MeasuredStepTimes times(kCosts);
  times.observe(decode_at(10), machine_ns(decode_at(10)));
  EXPECT_GE(times.predictor().time_ns(prompt_of(17)), 17 * kRead * 0.9);
  times.observe(prompt_of(17), machine_ns(prompt_of(17)));
  EXPECT_GE(times.predictor().time_ns(prompt_of(512)), 0.95 * machine_ns(prompt_of(512)));
  EXPECT_LE(times.predictor().time_ns(prompt_of(512)), 2 * machine_ns(prompt_of(512)));
}

// The first prompt of a process pages its weights in.
TEST(MeasuredStepTimes, ASlowFirstStepIsForgotten) {
  MeasuredStepTimes times(kCosts);
  times.observe(prompt_of(100), 30 * machine_ns(prompt_of(100)));
  times.observe(prompt_of(100), machine_ns(prompt_of(100)));
  EXPECT_NEAR(times.predictor().time_ns(prompt_of(100)) / machine_ns(prompt_of(100)), 1, 0.2);
}

// Chunks beside streams are never as short as the first prompt was, so its range is not seen again.
TEST(MeasuredStepTimes, ASlowFirstPromptDoesNotRaiseLongerSteps) {
  MeasuredStepTimes times(kCosts);
  times.observe(prompt_of(16), 5 * machine_ns(prompt_of(16)));
  for (int i = 0; i < 5; ++i) times.observe(decode_at(10), machine_ns(decode_at(10)));
  for (int i = 0; i < 5; ++i) times.observe(prompt_of(17), machine_ns(prompt_of(17)));
  EXPECT_NEAR(times.predictor().time_ns(prompt_of(17)) / machine_ns(prompt_of(17)), 1, 0.05);
  EXPECT_LE(times.predictor().time_ns(prompt_of(34)), 2.1 * machine_ns(prompt_of(17)));
}

// A step of a hundred tokens that took long must not keep all later ones from being tried.
TEST(MeasuredStepTimes, ASlowStepDoesNotHideItsRange) {
  MeasuredStepTimes times(kCosts);
  for (int i = 0; i < 5; ++i) times.observe(decode_at(10), machine_ns(decode_at(10)));
  times.observe(prompt_of(100), 20 * machine_ns(prompt_of(100)));
  for (int i = 0; i < 5; ++i) times.observe(prompt_of(17), machine_ns(prompt_of(17)));
  EXPECT_LE(times.predictor().time_ns(prompt_of(34)), 2.1 * machine_ns(prompt_of(17)));
  EXPECT_LE(times.predictor().time_ns(prompt_of(100)), 6.2 * machine_ns(prompt_of(17)));
}

// The stream's own prompt came after a rest; the chunks beside the stream have as many tokens.
TEST(MeasuredStepTimes, ASlowStepDoesNotHideItsRangeFromAPromptBesideAStream) {
  MeasuredStepTimes times(kCosts);
  for (int i = 0; i < 5; ++i) times.observe(decode_at(10), machine_ns(decode_at(10)));
  for (int i = 0; i < 2; ++i) times.observe(prompt_of(512), machine_ns(prompt_of(512)));
  for (int i = 0; i < 2; ++i) times.observe(prompt_of(64), 4 * machine_ns(prompt_of(64)));
  for (int tokens = 20; tokens <= 400; tokens += 20) {
    const double predicted = times.predictor().time_ns(prompt_of(tokens));
    EXPECT_GE(predicted, 0.95 * machine_ns(prompt_of(tokens))) << tokens;
    EXPECT_LE(predicted, machine_ns(prompt_of(tokens)) + 1.1 * kRead) << tokens;
  }
}

// The machine computes few rows less efficiently, so steps of 64 lie above that line.
TEST(MeasuredStepTimes, ARangeWithManyStepsIsBelieved) {
  MeasuredStepTimes times(kCosts);
  for (int i = 0; i < 5; ++i) times.observe(decode_at(10), machine_ns(decode_at(10)));
  for (int i = 0; i < 2; ++i) times.observe(prompt_of(512), machine_ns(prompt_of(512)));
  for (int i = 0; i < 6; ++i) times.observe(prompt_of(64), 2 * machine_ns(prompt_of(64)));
  EXPECT_NEAR(times.predictor().time_ns(prompt_of(64)) / machine_ns(prompt_of(64)), 2, 0.1);
}

// The error of an average of few steps says nothing about the machine.
TEST(MeasuredStepTimes, AFewStepsOfARangeDoNotChangeOtherRanges) {
  MeasuredStepTimes times(kCosts);
  for (int i = 0; i < 10; ++i) times.observe(decode_at(10), machine_ns(decode_at(10)));
  for (int i = 0; i < 2; ++i) times.observe(prompt_of(64), 4 * machine_ns(prompt_of(64)));
  for (int i = 0; i < 2; ++i) times.observe(prompt_of(64), machine_ns(prompt_of(64)));
  EXPECT_NEAR(times.predictor().time_ns(decode_at(10)) / machine_ns(decode_at(10)), 1, 0.01);
}

TEST(MeasuredStepTimes, ThePredictionNeverFallsWhenAStepGrows) {
  MeasuredStepTimes times(kCosts);
  SplitMix64 random(9);
  for (int i = 0; i < 300; ++i) {
    const StepFeatures f = prompt_of(static_cast<std::int32_t>(1 + random.below(70000)));
    times.observe(f, 1e3 + 1e9 * random.uniform());
    double before = 0;
    for (std::int32_t tokens = 1; tokens < 70000; tokens += 1 + tokens / 7) {
      StepFeatures step;
      step.add_chunk(0, tokens, false);
      const double ns = times.predictor().time_ns(step);
      ASSERT_GE(ns, before) << tokens;
      before = ns;
    }
  }
}

}  // namespace
}  // namespace sluice
