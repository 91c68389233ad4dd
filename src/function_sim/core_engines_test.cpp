#include "function_sim/core_engines.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>

namespace sluice {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// Milliseconds since the start.
TimePoint at(double ms) { return TimePoint() + from_seconds(1e-3 * ms); }

// A step takes 1 ms and 1 ms more for each decode; a token of a prompt 0.1 ms.
ModelTimes plain_model() {
  ModelTimes times;
  times.decode_step_s = 1e-3;
  times.decode_sequence_s = 1e-3;
  times.prefill.token_s = 1e-4;
  return times;
}

class CoreEnginesTest : public testing::Test {
 protected:
  void submit(double ms, std::int32_t function, std::int32_t prompt, std::int32_t output) {
    run_until(at(ms));
    engines_.submit(at(ms), function, {next_call_++, prompt, output, at(ms) + milliseconds(250)});
  }
  // Ends all steps up to `until`.
  void run_until(TimePoint until) {
    while (const auto end = engines_.next_end()) {
      if (*end > until) return;
      std::vector<CoreEngines::Event> events;
      engines_.end_step(*end, events);
      for (const CoreEngines::Event& event : events) {
        const double ms = 1e3 * to_seconds(end->since_start);
        if (event.first) first_[event.call] = ms;
        if (event.last) last_[event.call] = ms;
      }
    }
  }
  void run() { run_until(at(1e9)); }

  const ModelTimes model_ = plain_model();
  CoreEngines engines_{
      {.wake = microseconds(500), .handover = microseconds(250), .max_sequences = 4}};
  std::int32_t next_call_ = 0;
  std::map<std::int32_t, double> first_;  // by call, ms
  std::map<std::int32_t, double> last_;
};

TEST_F(CoreEnginesTest, ACallAloneWakesTheCoresAndTakesItsSteps) {
  engines_.add(0, 0, model_);
  submit(10, 0, 40, 3);
  run();
  EXPECT_NEAR(first_[0], 10 + 0.5 + 1 + 4, 1e-6);
  EXPECT_NEAR(last_[0], 15.5 + 2 * 2, 1e-6);
  EXPECT_NEAR(to_seconds(engines_.turn_time(0)), 0.0095, 1e-9);
}

TEST_F(CoreEnginesTest, TokensAreSlowerInTheFirstStepAfterARest) {
  ModelTimes cold = plain_model();
  cold.wake_token_s = 1e-4;
  engines_.add(0, 0, cold);
  submit(0, 0, CoreEngines::kStepTokens, 1);
  submit(1, 0, 40, 1);
  run();
  EXPECT_NEAR(first_[0], 0.5 + 1 + 2 * 51.2, 1e-6);
  EXPECT_NEAR(first_[1], first_[0] + 1 + 4, 1e-6);
}

TEST(CoreEnginesRestTest, ATurnIsTheSlowerTheLongerTheCoresHaveRested) {
  CoreEngines engines({.wake = milliseconds(10), .rests = {{0.1, 1}, {0.3, 3}}});
  ModelTimes model = plain_model();
  model.wake_token_s = 1e-3;
  engines.add(0, 0, model);
  double ended = 0;
  const auto extra_after = [&](double rest_ms) {
    const double now = ended + rest_ms;
    engines.submit(at(now), 0, {0, 10, 1, at(now) + milliseconds(250)});
    std::vector<CoreEngines::Event> events;
    const TimePoint end = *engines.next_end();
    engines.end_step(end, events);
    ended = 1e3 * to_seconds(end - TimePoint());
    return ended - now - 2;  // a step with 10 tokens takes 2 ms
  };
  EXPECT_NEAR(extra_after(0), 60, 1e-6) << "the first turn comes after the longest rest";
  EXPECT_NEAR(extra_after(50), 20, 1e-6);
  EXPECT_NEAR(extra_after(200), 40, 1e-6);
  EXPECT_NEAR(extra_after(5000), 60, 1e-6);
}

// Its prompt finds another function's data in the caches.
TEST_F(CoreEnginesTest, TokensAreSlowerInTheFirstStepAfterAnotherFunction) {
  ModelTimes cold = plain_model();
  cold.wake_token_s = 1e-3;
  cold.handover_token_s = 1e-4;
  engines_.add(0, 0, model_);
  engines_.add(1, 1, cold);
  submit(0, 0, 100, 1);
  submit(1, 1, 40, 1);
  run();
  EXPECT_NEAR(first_[0], 0.5 + 1 + 10, 1e-6);
  EXPECT_NEAR(first_[1], first_[0] + 0.25 + 1 + 2 * 4, 1e-6);
}

TEST_F(CoreEnginesTest, ALargerMarginMakesChunksShorter) {
  ModelTimes noisy = plain_model();
  noisy.step_margin = 1.5;
  engines_.add(0, 0, noisy);
  submit(0, 0, 10, 100);  // first token at 2.5 ms, then a step of 2 ms each
  submit(3, 0, 100, 1);
  run();
  // From 4.5 ms on, a step takes up to 6 ms / 1.5 and so has 20 tokens.
  EXPECT_NEAR(first_[1], 4.5 + 5 * 4, 1e-6);
}

TEST_F(CoreEnginesTest, APromptBesideDecodesIsCutToThreeTimesTheirStepLessTheMargin) {
  engines_.add(0, 0, model_);
  submit(0, 0, 10, 100);  // first token at 2.5 ms, then a step of 2 ms each
  submit(3, 0, 100, 1);
  run();
  // From 4.5 ms on, a step takes up to 6 ms / 1.25 and so has 28 tokens: 28 + 28 + 28 + 16.
  EXPECT_NEAR(first_[1], 4.5 + 3 * 4.8 + 3.6, 1e-6);
}

TEST_F(CoreEnginesTest, TheFirstChunkHasALeastLength) {
  ModelTimes slow = plain_model();
  slow.prefill.token_s = 1e-3;
  engines_.add(0, 0, slow);
  submit(0, 0, 1, 100);  // first token at 2.5 ms, then a step of 2 ms each
  submit(3, 0, 40, 1);
  submit(3, 0, 40, 1);
  run();
  // 16 + 16 + 8 tokens: no token of the second prompt is worth a split.
  EXPECT_NEAR(first_[1], 4.5 + 18 + 18 + 10, 1e-6);
  EXPECT_NEAR(first_[2], first_[1] + 18 + 18 + 10, 1e-6);
}

TEST_F(CoreEnginesTest, OtherWorkMakesTheStepThatComputesLonger) {
  engines_.add(0, 0, model_);
  engines_.disturb(milliseconds(7));  // no step computes
  submit(10, 0, 40, 1);
  engines_.disturb(milliseconds(2));
  run();
  EXPECT_NEAR(first_[0], 10 + 0.5 + 1 + 4 + 2, 1e-6);
  EXPECT_NEAR(to_seconds(engines_.turn_time(0)), 0.0075, 1e-9);
}

TEST_F(CoreEnginesTest, AStepHasAtMostSoManyTokensAndSequences) {
  engines_.add(0, 0, model_);
  submit(0, 0, CoreEngines::kStepTokens + 10, 1);
  for (int i = 0; i < 4; ++i) submit(0, 0, 1, 2);
  run();
  EXPECT_NEAR(first_[0], 0.5 + 1 + 51.2 + 1 + 1.3, 1e-6);
  EXPECT_NEAR(first_[3], first_[0], 1e-6);
  // The fifth one finds a place after the first one has left.
  EXPECT_GT(first_[4], first_[0] + 1);
}

TEST_F(CoreEnginesTest, PairsOfPositionsMakeLongPromptsSlower) {
  ModelTimes pairs = plain_model();
  pairs.prefill_pair_s = 1e-6;
  engines_.add(0, 0, pairs);
  submit(0, 0, 100, 1);
  run();
  EXPECT_NEAR(first_[0], 0.5 + 1 + 10 + 1e-3 * 100 * 101 / 2, 1e-6);
}

TEST_F(CoreEnginesTest, AnotherTenantsPromptInterruptsAStreamAtTheBorderOfAStep) {
  engines_.add(0, 0, model_);
  engines_.add(1, 1, model_);
  submit(0, 0, 10, 1000);
  submit(100.2, 1, 40, 1);
  run();
  // The stream has had 100 ms of turns, the other tenant none: it computes after the step.
  EXPECT_NEAR(first_[1], 100.5 + 0.25 + 5, 1e-6);
  EXPECT_NEAR(last_[0], 2.5 + 2 * 999 + 0.25 + 5 + 0.25, 1e-6);
}

// The gateway's ledger divides the cores: turn times of tenants that always have work differ by
// their credit of 250 ms at most.
TEST_F(CoreEnginesTest, TenantsHaveEqualSharesWhateverTheirFunctions) {
  engines_.add(0, 0, model_);
  for (std::int32_t f = 1; f < 4; ++f) engines_.add(f, 1, model_);
  for (std::int32_t f = 0; f < 4; ++f) submit(0, f, 10, 100000);
  run_until(at(20000));
  const double one = to_seconds(engines_.turn_time(0));
  double other = 0;
  for (std::int32_t f = 1; f < 4; ++f) {
    EXPECT_GT(to_seconds(engines_.turn_time(f)), 2) << "a sibling has turns, too";
    other += to_seconds(engines_.turn_time(f));
  }
  EXPECT_NEAR(one + other, 20, 0.01);
  EXPECT_NEAR(one, other, 0.3);
}

TEST_F(CoreEnginesTest, AProcessThatStartsAgainKeepsItsTurnTime) {
  engines_.add(0, 0, model_);
  submit(0, 0, 10, 1);
  run();
  engines_.remove(0);
  engines_.add(0, 0, model_);
  submit(100, 0, 10, 1);
  run();
  EXPECT_NEAR(to_seconds(engines_.turn_time(0)), 0.005, 1e-9);
  EXPECT_EQ(to_seconds(engines_.turn_time(7)), 0);
}

}  // namespace
}  // namespace sluice
