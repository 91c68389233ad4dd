#include "serverless/prefill_meter.h"

#include <gtest/gtest.h>

#include <chrono>

#include "base/rng.h"

namespace sluice {
namespace {

TEST(PrefillMeter, KnowsNothingBeforeItHasSeenEnough) {
  PrefillMeter meter;
  EXPECT_EQ(meter.usual().seconds(100), 0);
  for (int i = 1; i < PrefillMeter::kEnough; ++i) meter.add(100, 0, from_seconds(0.5));
  EXPECT_EQ(meter.usual().seconds(100), 0);
  meter.add(100, 0, from_seconds(0.5));
  EXPECT_NEAR(meter.usual().seconds(100), 0.5, 1e-9);
}

TEST(PrefillMeter, FindsTheLine) {
  PrefillMeter meter;
  for (int i = 0; i < 200; ++i) {
    const std::int64_t tokens = 50 + 37 * (i % 11);
    meter.add(tokens, 0, from_seconds(0.02 + 0.001 * static_cast<double>(tokens)));
  }
  EXPECT_NEAR(meter.usual().token_s, 0.001, 1e-6);
  EXPECT_NEAR(meter.usual().step_s, 0.02, 1e-3);
}

TEST(PrefillMeter, NineOfTenPromptsKeepTheUsualTime) {
  PrefillMeter meter;
  SplitMix64 random(3);
  int kept = 0;
  int all = 0;
  for (int i = 0; i < 4000; ++i) {
    const auto tokens = static_cast<std::int64_t>(20 + random.below(400));
    const double noise = 0.05 * (random.uniform() + random.uniform() + random.uniform());
    const double took = 0.01 + 0.0005 * static_cast<double>(tokens) + noise;
    if (i > 50) {
      ++all;
      kept += took <= meter.usual().seconds(tokens) ? 1 : 0;
    }
    meter.add(tokens, 0, from_seconds(took));
  }
  EXPECT_GT(kept, all * 85 / 100);
  EXPECT_LT(kept, all);
}

// Prompts of 100 tokens, one after another at 1 ms a token, of which up to four wait in the engine.
TEST(PrefillMeter, AQueueIsNoSlowMachine) {
  PrefillMeter meter;
  for (int i = 0; i < 400; ++i) {
    const std::int64_t ahead = 100 * (i % 5);
    meter.add(100, ahead, std::chrono::milliseconds(ahead + 100));
  }
  EXPECT_NEAR(meter.usual().seconds(100), 0.1, 1e-6);
  EXPECT_NEAR(meter.usual().seconds(500), 0.5, 1e-6);
  EXPECT_NEAR(meter.mean_tokens(), 100, 1e-9);
}

TEST(PrefillMeter, FollowsAChangeOfLoadAndForgetsIt) {
  PrefillMeter meter;
  for (int i = 0; i < 50; ++i) meter.add(100, 0, from_seconds(0.1));
  for (int i = 0; i < 60; ++i) meter.add(100, 0, from_seconds(0.8));
  EXPECT_GT(meter.usual().seconds(100), 0.7);
  for (int i = 0; i < 200; ++i) meter.add(100, 0, from_seconds(0.1));
  EXPECT_LT(meter.usual().seconds(100), 0.11);
}

}  // namespace
}  // namespace sluice
