#include "scheduler/step_time_correction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <vector>

#include "base/rng.h"
#include "tests/support/predictor_curve.h"

namespace sluice {
namespace {

constexpr std::int32_t kMostTokens = 1024;

TimeBudget profiled(double margin = 1.1) {
  TimeBudget budget;
  StepTimePredictor& p = budget.predictor;
  p = predictor_of_curve({{0, 8e6}, {256, 20e6}, {1024, 80e6}});
  p.decode_context_ns = 100;
  p.chunk_work_ns = 20;
  p.chunk_context_ns = 500;
  budget.margin = margin;
  return budget;
}

// Decodes and a chunk, of any lengths.
StepFeatures random_step(SplitMix64& random) {
  StepFeatures f;
  const auto up_to = [&](std::uint64_t most) {
    return static_cast<std::int32_t>(1 + random.below(most));
  };
  for (std::int32_t i = up_to(32); i > 0; --i) f.add_decode(up_to(4000));
  f.add_chunk(up_to(6000), up_to(900), false);
  return f;
}

using Machine = std::function<double(const StepFeatures&)>;

double mean_error(const StepTimeCorrection& correction, const Machine& machine) {
  SplitMix64 random(77);
  double sum = 0;
  for (int i = 0; i < 300; ++i) {
    const StepFeatures f = random_step(random);
    sum += std::abs(correction.time_ns(f) / machine(f) - 1);
  }
  return sum / 300;
}

StepTimeCorrection after(const TimeBudget& budget, const Machine& machine, int steps) {
  StepTimeCorrection correction(budget, kMostTokens);
  SplitMix64 random(3);
  for (int i = 0; i < steps; ++i) {
    const StepFeatures f = random_step(random);
    correction.observe(f, {}, machine(f));
  }
  return correction;
}

TEST(StepTimeCorrectionTest, KnowsNothingAtFirst) {
  const TimeBudget budget = profiled(1.07);
  const StepTimeCorrection correction(budget, kMostTokens);
  EXPECT_DOUBLE_EQ(correction.margin(), 1.07);
  EXPECT_EQ(mean_error(correction, [&](const auto& f) { return budget.predictor.time_ns(f); }), 0);
}

TEST(StepTimeCorrectionTest, AMachineThatIsFasterOrSlowerIsLearnt) {
  const TimeBudget budget = profiled();
  for (const double factor : {0.6, 0.9, 1.0, 1.2, 2.0}) {
    const Machine machine = [&](const auto& f) { return factor * budget.predictor.time_ns(f); };
    EXPECT_LT(mean_error(after(budget, machine, 400), machine), 0.02) << factor;
  }
}

// Each part of the law is off by a factor of its own, and one range of tokens besides.
TEST(StepTimeCorrectionTest, ErrorsOfEachPartAreLearnt) {
  const TimeBudget budget = profiled();
  const StepTimePredictor& p = budget.predictor;
  const Machine machine = [&](const StepFeatures& f) {
    const double bend = f.tokens > 400 && f.tokens <= 480 ? 1.25 : 1;
    return 0.9 * bend * p.linear_ns(f) + 1.5 * p.decode_attention_ns(f) +
           1.3 * p.chunk_attention_ns(f);
  };
  EXPECT_GT(mean_error(after(budget, machine, 0), machine), 0.08);
  EXPECT_LT(mean_error(after(budget, machine, 3000), machine), 0.02);
  StepFeatures slow;
  for (int i = 0; i < 16; ++i) slow.add_decode(1000);
  slow.add_chunk(2000, 434, false);
  EXPECT_NEAR(after(budget, machine, 3000).time_ns(slow) / machine(slow), 1, 0.04);
}

// Steps are filled up to the limit, as plans do.
TEST(StepTimeCorrectionTest, TheMarginIsAsWideAsTheNoise) {
  TimeBudget budget = profiled(1.3);
  budget.longest_step = std::chrono::milliseconds(50);
  double before = 0.99;
  for (const double jitter : {0.0, 0.05, 0.2}) {
    SplitMix64 random(9);
    StepTimeCorrection correction(budget, kMostTokens);
    int too_long = 0;
    double margins = 0;
    constexpr int kSteps = 20'000;
    for (int i = -2000; i < kSteps; ++i) {
      StepFeatures f;
      for (int k = 0; k < 16; ++k) f.add_decode(static_cast<std::int32_t>(random.below(4000)));
      const auto context = static_cast<std::int32_t>(random.below(6000));
      const ChunkChoice choice{context, 16, 1000, false};
      f.add_chunk(context, correction.best_chunk(f, choice, 50e6 / correction.margin()), false);
      const double ns = budget.predictor.time_ns(f) * (1 + jitter * (2 * random.uniform() - 1));
      too_long += i >= 0 && ns > 50e6 ? 1 : 0;
      margins += i >= 0 ? correction.margin() / kSteps : 0;
      correction.observe(f, {}, ns);
    }
    EXPECT_LT(too_long, kSteps * 15 / 1000) << jitter;
    EXPECT_GT(margins, before);
    EXPECT_LT(margins, 1.005 + 1.25 * jitter);
    before = margins;
  }
}

// However noisy the machine is, a third of the limit at most is kept for the noise.
TEST(StepTimeCorrectionTest, WithoutAProfileTheMarginHasALimit) {
  TimeBudget budget;
  budget.costs = StepCosts{.pair_tokens = 1e-4, .position_reads = 2e-5, .window = 0};
  budget.decode_steps = 3;
  budget.margin = 1.25;
  StepTimeCorrection correction(budget, kMostTokens);
  SplitMix64 random(5);
  double widest = 0;
  for (int i = 0; i < 500; ++i) {
    StepFeatures decodes;
    decodes.add_decode(100);
    StepFeatures f = decodes;
    f.add_chunk(0, 16 + static_cast<std::int32_t>(random.below(32)), false);
    correction.observe(f, decodes, 1e6 * (1 + 4 * random.uniform()) * f.tokens);
    correction.observe(decodes, decodes, 1e7);
    widest = std::max(widest, correction.margin());
  }
  EXPECT_DOUBLE_EQ(widest, 1.5);
}

// A stream on a machine without a profile, and prompts beside it.
struct StreamAndPrompts {
  StepTimeCorrection correction = [] {
    TimeBudget budget;
    budget.costs = StepCosts{.pair_tokens = 1e-4, .position_reads = 2e-5, .window = 0};
    budget.decode_steps = 3;
    budget.margin = 1.25;
    return StepTimeCorrection(budget, kMostTokens);
  }();
  SplitMix64 random{5};
  int steps = 0;
  int too_long = 0;

  // Returns the tokens of the prompt.
  std::int32_t step(bool with_prompt, std::int32_t context, double slowness) {
    StepFeatures decodes;
    decodes.add_decode(1000);
    StepFeatures f = decodes;
    if (with_prompt) {
      std::int32_t tokens = 16;
      if (correction.known()) {
        tokens = correction.best_chunk(decodes, {context, 16, 1500, false},
                                       correction.decode_limit_ns(decodes) / correction.margin());
      }
      f.add_chunk(context, std::max(tokens, 16), false);
    }
    const double exact = (44e6 + 0.55e6 * f.tokens + 20 * f.chunk_work) * slowness;
    const double ns = exact * (0.95 + 0.1 * random.uniform());
    ++steps;
    too_long += ns > 3 * 44.55e6 * slowness ? 1 : 0;
    correction.observe(f, decodes, ns);
    return f.chunk_tokens;
  }
  // A prompt of 1,500 tokens, and then 20 steps of the stream alone. Returns the prompt's steps.
  int prompt() {
    int count = 0;
    for (std::int32_t context = 0; context < 1500; ++count) context += step(true, context, 1);
    for (int i = 0; i < 20; ++i) step(false, 0, 1);
    return count;
  }
};

TEST(StepTimeCorrectionTest, WithoutAProfileASlowTimeIsForgotten) {
  StreamAndPrompts machine;
  for (int i = 0; i < 5; ++i) machine.prompt();
  machine.steps = machine.too_long = 0;
  int usual = 0;
  for (int i = 0; i < 40; ++i) usual += machine.prompt();
  usual /= 40;
  EXPECT_LE(machine.too_long, machine.steps / 25);
  for (std::int32_t i = 0; i < 30; ++i) machine.step(true, 50 * i, 2);
  EXPECT_LE(machine.prompt(), 2 * usual);
  machine.prompt();
  machine.prompt();
  EXPECT_LE(machine.prompt(), usual * 4 / 3);
}

TEST(StepTimeCorrectionTest, AnOutlierTeachesLittle) {
  TimeBudget budget = profiled();
  budget.longest_step = std::chrono::milliseconds(40);
  const Machine machine = [&](const auto& f) { return budget.predictor.time_ns(f); };
  StepTimeCorrection correction = after(budget, machine, 500);
  const double margin = correction.margin();
  SplitMix64 random(5);
  const StepFeatures f = random_step(random);
  correction.observe(f, {}, 20 * machine(f));
  EXPECT_LT(mean_error(correction, machine), 0.01);
  EXPECT_LT(correction.margin(), margin + 0.02);
}

TEST(StepTimeCorrectionTest, StepsWithoutChunksBesideDecodesLeaveTheMarginAlone) {
  TimeBudget budget = profiled();
  budget.longest_step = std::chrono::milliseconds(8);
  StepTimeCorrection correction(budget, kMostTokens);
  StepFeatures decodes;
  decodes.add_decode(1000);
  StepFeatures prompt;
  prompt.add_chunk(0, 500, false);
  for (int i = 0; i < 100; ++i) {
    correction.observe(decodes, {}, 9e6);
    correction.observe(prompt, {}, 90e6);
  }
  EXPECT_DOUBLE_EQ(correction.margin(), 1.1);
}

TEST(StepTimeCorrectionTest, NothingIsLearntWhenItShouldNotBe) {
  TimeBudget budget = profiled();
  const Machine machine = [&](const auto& f) { return budget.predictor.time_ns(f); };
  StepTimeCorrection correction = after(budget, [](const auto&) { return 0.0; }, 100);
  EXPECT_EQ(mean_error(correction, machine), 0);
  budget.learn = false;
  correction = after(budget, [](const auto&) { return 1e9; }, 100);
  EXPECT_EQ(mean_error(correction, machine), 0);
  EXPECT_DOUBLE_EQ(correction.margin(), 1.1);
}

// Whatever was learnt, a chunk that is chosen fits, and one that is not chosen does not, or makes
// less of the time.
TEST(StepTimeCorrectionTest, TheBestChunkFitsAndMakesTheMostOfTheTime) {
  SplitMix64 random(13);
  for (const std::int32_t tile : {1, 64}) {
    TimeBudget budget = profiled();
    budget.predictor.tile = tile;
    StepTimeCorrection correction(budget, kMostTokens);
    for (int i = 0; i < 400; ++i) {
      const StepFeatures f = random_step(random);
      correction.observe(f, {}, budget.predictor.time_ns(f) * (0.5 + random.uniform()));
      StepFeatures decodes;
      for (int k = 0; k < 8; ++k) decodes.add_decode(500);
      const ChunkChoice choice{700, 16, 800, true};
      const double limit = 10e6 + 70e6 * random.uniform();
      const std::int32_t best = correction.best_chunk(decodes, choice, limit);
      const auto time_with = [&](std::int32_t count) {
        StepFeatures step = decodes;
        step.add_chunk(700, count, count == choice.most);
        return correction.time_ns(step);
      };
      if (best == 0) {
        EXPECT_GT(time_with(choice.least), limit);
        continue;
      }
      ASSERT_LE(time_with(best), limit);
      if (best == choice.most) continue;
      EXPECT_TRUE(tile == 1 || best == choice.least || (8 + best) % tile == 0);
      EXPECT_GT(time_with(choice.most), limit);
      for (std::int32_t end = tile == 1 ? 8 : 56; end < choice.most; end += tile == 1 ? 16 : tile) {
        const double ns = time_with(end);
        if (end <= best || ns > limit) continue;
        EXPECT_GE(ns * best, time_with(best) * end) << best << " or " << end;
      }
    }
  }
}

// A tile that is much slower than the law says is left out, though it would fit.
TEST(StepTimeCorrectionTest, ASlowTileIsAvoidedOnceItIsKnown) {
  TimeBudget budget = profiled(1);
  budget.predictor = predictor_of_curve({{0, 10e6}, {1024, 80e6}});
  budget.predictor.tile = 128;
  const Machine machine = [&](const StepFeatures& f) {
    return budget.predictor.time_ns(f) * (f.tokens > 512 && f.tokens <= 640 ? 1.4 : 1);
  };
  StepFeatures decodes;
  for (int i = 0; i < 8; ++i) decodes.add_decode(500);
  const ChunkChoice choice{0, 16, 1000, false};
  // A step of 640 tokens takes 54 ms by the law, and 75 in truth.
  for (const double limit : {55e6, 58e6, 76e6}) {
    const bool both = limit > 70e6;
    EXPECT_EQ(StepTimeCorrection(budget, kMostTokens).best_chunk(decodes, choice, limit),
              (both ? 896 : 640) - 8);
    EXPECT_EQ(after(budget, machine, 3000).best_chunk(decodes, choice, limit),
              (both ? 896 : 512) - 8);
  }
}

}  // namespace
}  // namespace sluice
