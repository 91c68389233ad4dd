#include "scheduler/time_budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/rng.h"
#include "tests/support/predictor_curve.h"
#include "tests/support/scheduler_harness.h"

namespace sluice {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// A token costs 100 us, a step 1 ms, a thousand positions seen by one token 50 us.
TimeBudget budget_of(Duration tbt) {
  TimeBudget time;
  time.predictor = predictor_of_curve({{0, 1e6}, {100, 11e6}});
  time.predictor.decode_context_ns = 50;
  time.predictor.chunk_work_ns = 50;
  time.tbt = tbt;
  time.longest_step = tbt;
  time.shortest_step = tbt / 4;
  time.min_chunk = 4;
  time.learn = false;
  return time;
}

HarnessOptions options_with(const TimeBudget& time) {
  HarnessOptions options;
  options.token_budget = 256;
  options.max_model_len = 4096;
  options.block_size = 16;
  options.num_blocks = 3000;
  options.time_budget = time;
  return options;
}

// A step that takes as long as predicted, times `factor`. The plan stays readable until the next.
const BatchPlan& timed_step(SchedulerHarness& h, double factor = 1) {
  const BatchPlan& plan = h.plan();
  const double ns =
      h.scheduler_options.time_budget->predictor.time_ns(step_features(plan)) * factor;
  h.now = h.now + Duration(static_cast<Duration::rep>(ns));
  h.commit();
  return plan;
}

// The tokens of the plan's only chunk; 0 without one.
std::int32_t chunk_of(const BatchPlan& plan) {
  std::int32_t chunk = 0;
  for (const PlanRow& row : plan.rows) {
    if (row.query_len > 1) {
      EXPECT_EQ(chunk, 0);
      chunk = row.query_len;
    }
  }
  return chunk;
}

TEST(TimeBudgetTest, ChunksShrinkAsTheirAttentionGrowsAndStepsTakeEquallyLong) {
  SchedulerHarness h(options_with(budget_of(milliseconds(10))));
  h.add(8, 200);
  timed_step(h);
  timed_step(h);
  h.add(3000, 1);
  std::vector<std::int32_t> chunks;
  while (true) {
    const BatchPlan& plan = timed_step(h);
    const std::int32_t chunk = chunk_of(plan);
    if (chunk == 0 || plan.rows.back().num_logits > 0) break;
    const double ns = h.scheduler_options.time_budget->predictor.time_ns(step_features(plan));
    EXPECT_LE(ns, 10e6);
    EXPECT_GT(ns, 9.5e6);
    if (!chunks.empty()) {
      EXPECT_LE(chunk, chunks.back());
    }
    chunks.push_back(chunk);
  }
  ASSERT_GT(chunks.size(), 30U);
  EXPECT_GT(chunks.front(), 2 * chunks.back());
}

TEST(TimeBudgetTest, WithoutStreamsTheTokenBudgetAloneHolds) {
  SchedulerHarness h(options_with(budget_of(milliseconds(10))));
  h.add(1000, 4);
  EXPECT_EQ(h.step(), "1:256@0");
  EXPECT_EQ(h.step(), "1:256@256");
}

TEST(TimeBudgetTest, AStepThatTookTooLongIsMadeUpFor) {
  SchedulerHarness h(options_with(budget_of(milliseconds(10))));
  h.add(8, 200);
  timed_step(h);
  timed_step(h);
  h.add(3000, 1);
  const std::int32_t usual = chunk_of(timed_step(h));
  timed_step(h, 2.2);
  // 12 ms too long; the stream was 9 ms ahead.
  const std::int32_t after = chunk_of(timed_step(h));
  EXPECT_LT(after, usual * 4 / 5);
  EXPECT_GE(after, usual / 2);
  // From then on each step takes the whole TBT again.
  const BatchPlan& plan = timed_step(h);
  const double ns = h.scheduler_options.time_budget->predictor.time_ns(step_features(plan));
  EXPECT_LE(ns, 10e6);
  EXPECT_GT(ns, 9.5e6);
}

TEST(TimeBudgetTest, SlackThatStreamsHaveGatheredIsKeptForLaterAndNotSpentAtOnce) {
  SchedulerHarness h(options_with(budget_of(milliseconds(10))));
  h.add(8, 200);
  for (int i = 0; i < 50; ++i) timed_step(h);  // 1.1 ms each: far ahead
  h.add(3000, 1);
  const std::int32_t usual = chunk_of(timed_step(h));
  EXPECT_LE(usual, 90);
  // A hiccup of four deadlines costs nothing now.
  timed_step(h, 5);
  EXPECT_GT(chunk_of(timed_step(h)), usual * 9 / 10);
}

TEST(TimeBudgetTest, AStreamThatIsVeryLateDoesNotStopPrompts) {
  SchedulerHarness h(options_with(budget_of(milliseconds(20))));
  h.add(8, 100);
  timed_step(h);
  h.now = h.now + std::chrono::seconds(5);
  h.add(1000, 1);
  const BatchPlan& plan = timed_step(h);
  const double ns = h.scheduler_options.time_budget->predictor.time_ns(step_features(plan));
  EXPECT_LE(ns, 5e6);  // a quarter of the TBT
  EXPECT_GT(ns, 4.5e6);
}

TEST(TimeBudgetTest, AGoalThatCannotBeKeptStillLeavesEachPromptItsLeastChunk) {
  SchedulerHarness h(options_with(budget_of(microseconds(100))));
  h.add(8, 1000);
  timed_step(h);
  const Sequence& prompt = h.add(400, 1);
  int steps = 0;
  while (prompt.state != SequenceState::kFinished) {
    timed_step(h);
    ++steps;
  }
  EXPECT_EQ(steps, 100);  // 400 tokens, 4 a step
}

TEST(TimeBudgetTest, AChunkThatIsCutEndsAtATile) {
  TimeBudget time = budget_of(milliseconds(10));
  time.predictor.tile = 16;
  time.predictor.tile_ns = 2e5;
  SchedulerHarness h(options_with(time));
  for (int i = 0; i < 3; ++i) h.add(8, 200);
  timed_step(h);
  timed_step(h);
  h.add(2000, 1);
  for (int i = 0; i < 20; ++i) {
    const BatchPlan& plan = timed_step(h);
    EXPECT_EQ(plan.token_ids.size() % 16, 0U) << "step " << i;
  }
}

TEST(TimeBudgetTest, ASecondPromptJoinsOnlyWhenItsLeastChunkFits) {
  SchedulerHarness h(options_with(budget_of(milliseconds(10))));
  h.add(8, 200);
  timed_step(h);
  timed_step(h);
  h.add(60, 1);
  h.add(60, 1);
  EXPECT_EQ(SchedulerHarness::describe(timed_step(h)), "1:1@9 2:60@0 3:27@0");
  h.add(86, 1);
  h.add(60, 1);
  // 33 tokens end the third; of the fourth so many that no four tokens of a fifth would fit.
  const BatchPlan& plan = timed_step(h);
  EXPECT_EQ(SchedulerHarness::describe(plan), "1:1@10 3:33@27 4:54@0");
}

TEST(TimeBudgetTest, StepsInFlightTakeTheirTimeFirst) {
  TimeBudget time = budget_of(milliseconds(10));
  time.longest_step = milliseconds(30);
  HarnessOptions options = options_with(time);
  options.max_in_flight = 2;
  SchedulerHarness h(options);
  h.add(8, 200);
  h.step();
  h.step();
  h.add(3000, 1);
  const std::int32_t first = chunk_of(h.plan());
  // Planned at the same moment after it. The stream's next token is due 10 ms later, and the step
  // before takes all the time until then.
  const BatchPlan& next = h.plan();
  EXPECT_GT(first, 150);
  EXPECT_LT(chunk_of(next), 90);
  EXPECT_LE(time.predictor.time_ns(step_features(next)), 10e6);
}

// A machine that is slower or faster than its profile, and than the margin allows for: chunks are
// as long as they should be after some steps, with a step in flight too.
TEST(TimeBudgetTest, MeasuredStepsCorrectThePredictor) {
  for (const int in_flight : {1, 2}) {
    for (const double factor : {0.7, 1.0, 1.4}) {
      TimeBudget time = budget_of(milliseconds(10));
      time.learn = true;
      HarnessOptions options = options_with(time);
      options.max_in_flight = in_flight;
      SchedulerHarness h(options);
      h.add(8, 400);
      for (int i = 0; i < 8; ++i) h.add(3000, 1);
      double device_free = 0;
      std::vector<double> took;
      for (int i = 0; i < 350; ++i) {
        while (h.planned - h.committed < static_cast<std::size_t>(in_flight)) {
          ASSERT_FALSE(h.plan().empty());
        }
        const BatchPlan& plan = h.plans[h.committed % h.plans.size()];
        const double ns = factor * time.predictor.time_ns(step_features(plan));
        // The device begins with a step when it has ended the one before.
        const auto start =
            std::max(device_free, static_cast<double>(plan.planned_at.since_start.count()));
        device_free = start + ns;
        h.now = TimePoint{Duration(static_cast<Duration::rep>(device_free))};
        if (i >= 200 && step_features(plan).chunk_tokens > 0) took.push_back(ns);
        h.commit();
      }
      ASSERT_GT(took.size(), 50U);
      std::sort(took.begin(), took.end());
      EXPECT_LE(took[took.size() * 98 / 100], 10.1e6) << factor << ", in flight " << in_flight;
      EXPECT_GT(took[took.size() / 2], 9.3e6) << factor << ", in flight " << in_flight;
    }
  }
}

// Random lives: streams come and go, steps take longer or shorter than predicted. Every step's
// prediction is within the limit computed here from the streams' deadlines, unless its only chunk
// is the least there may be.
TEST(TimeBudgetTest, PredictionsKeepTheLimitWhateverHappens) {
  SplitMix64 random(5);
  int least_chunks = 0;
  int checked = 0;
  for (int life = 0; life < 12; ++life) {
    TimeBudget time = budget_of(Duration(2'000'000 + static_cast<int>(random.below(20'000'000))));
    time.margin = 1 + 0.3 * random.uniform();
    time.predictor.tile = 1 + static_cast<std::int32_t>(random.below(20));
    time.predictor.tile_ns = 1e5 * random.uniform();
    time.min_chunk = 1 + static_cast<std::int32_t>(random.below(30));
    SchedulerHarness h(options_with(time));
    for (int step = 0; step < 150; ++step) {
      if (random.below(12) == 0) {
        const auto answer = static_cast<std::int32_t>(1 + random.below(80));
        h.add(static_cast<std::int32_t>(1 + random.below(600)), answer);
      }
      if (!h.scheduler.has_work()) continue;
      const TimePoint start = h.now;
      const BatchPlan& plan = timed_step(h, 0.5 + random.uniform());
      StepFeatures f;
      Duration slack = milliseconds(1'000'000);
      int chunks = 0;
      int decodes = 0;
      for (const PlanRow& row : plan.rows) {
        const Sequence& s = *h.sequences[row.sequence - 1];
        if (row.context_len < s.prompt_len) {
          f.add_chunk(row.context_len, row.query_len, row.num_logits > 0);
          ++chunks;
          continue;
        }
        f.add_decode(row.context_len);
        ++decodes;
        slack = std::min(slack, s.first_token + time.tbt * row.output_index - start);
      }
      if (chunks == 0 || decodes == 0) continue;
      ++checked;
      const bool least = chunks == 1 && f.chunk_tokens <= time.min_chunk;
      least_chunks += least ? 1 : 0;
      if (!least) {
        ASSERT_LE(time.predictor.time_ns(f) * time.margin, time.limit_ns(slack) * (1 + 1e-9));
      }
    }
    h.run_to_end();
  }
  EXPECT_GT(checked, 400);
  EXPECT_GT(least_chunks, 5);
  EXPECT_LT(least_chunks, checked / 2);
}

TEST(TimeBudgetTest, PoliciesThatCannotPlanByTimeSaySo) {
  std::vector<std::string_view> by_time;
  for (const std::string_view name : policy_names()) {
    if (make_policy(name).value()->plans_by_time()) by_time.push_back(name);
  }
  EXPECT_EQ(by_time, (std::vector<std::string_view>{"stall-free", "vtc", "fair"}));
}

TEST(TimeBudgetTest, ALimitOfStepsHoldsWithoutStreamsToo) {
  SchedulerHarness h(options_with(budget_of(milliseconds(50))));
  h.add(1000, 4);
  EXPECT_EQ(chunk_of(timed_step(h)), 256);
  h.scheduler.limit_step(milliseconds(8));
  const BatchPlan& plan = timed_step(h);
  const double ns = h.scheduler_options.time_budget->predictor.time_ns(step_features(plan));
  EXPECT_LE(ns, 8e6);
  EXPECT_GT(ns, 7.5e6);
  // Shorter than the goal's, too.
  h.add(8, 200);
  while (h.scheduler.num_waiting() > 0) timed_step(h);
  h.add(3000, 1);
  timed_step(h);
  EXPECT_LE(h.scheduler_options.time_budget->predictor.time_ns(step_features(timed_step(h))), 8e6);
  h.scheduler.limit_step(std::chrono::nanoseconds(1));
  EXPECT_EQ(chunk_of(timed_step(h)), 4);  // min_chunk
  h.scheduler.limit_step(Duration::max());
  EXPECT_GT(chunk_of(timed_step(h)), 100);
}

// A machine that reads its weights while it computes, and whose times are not known before.
double machine_ns(const StepFeatures& f) {
  return std::max(9e6, 6e5 * f.tokens) + 200 * (f.decode_context + f.chunk_context) +
         60 * f.chunk_work;
}

TimeBudget without_goal() {
  TimeBudget time;
  time.costs = StepCosts{.pair_tokens = 1e-4, .position_reads = 2e-5, .window = 0};
  time.decode_steps = 3;
  time.margin = 1.25;
  return time;
}

TEST(TimeBudgetTest, ALimitOfStepsHoldsFromTheFirstStepOn) {
  SchedulerHarness h(options_with(without_goal()));
  h.scheduler.limit_step(milliseconds(60));
  h.add(3000, 1);
  std::int32_t longest = 0;
  for (int i = 0; i < 15; ++i) {
    const BatchPlan& plan = h.plan();
    const double ns = machine_ns(step_features(plan));
    if (i == 0) {
      EXPECT_EQ(chunk_of(plan), without_goal().min_chunk);
    }
    EXPECT_LE(ns, 60e6) << i;
    longest = std::max(longest, chunk_of(plan));
    h.now = h.now + Duration(static_cast<Duration::rep>(ns));
    h.commit();
  }
  EXPECT_GE(longest, 50) << "the chunks use the time that there is";
}

TEST(TimeBudgetTest, WithoutGoalOrProfileStreamsWaitAtMostThreeDecodeSteps) {
  SchedulerHarness h(options_with(without_goal()));
  double slower = 1;
  const auto timed = [&]() -> const BatchPlan& {
    const BatchPlan& plan = h.plan();
    h.now = h.now + Duration(static_cast<Duration::rep>(slower * machine_ns(step_features(plan))));
    h.commit();
    return plan;
  };
  h.add(40, 2000);
  for (int i = 0; i < 4; ++i) timed();
  for (int round = 0; round < 3; ++round) {
    slower = round == 2 ? 2 : 1;
    h.add(1500, 1);
    int steps = 0;
    int too_long = 0;
    std::int32_t longest = 0;
    for (bool ended = false; !ended; ++steps) {
      const BatchPlan& plan = timed();
      const std::int32_t chunk = chunk_of(plan);
      longest = std::max(longest, chunk);
      ended = plan.rows.size() > 1 && plan.rows.back().num_logits > 0;
      const double limit = 3 * machine_ns(decode_features(plan));
      too_long += chunk > 16 && machine_ns(step_features(plan)) > limit ? 1 : 0;
    }
    EXPECT_LE(too_long, round == 2 ? 4 : 1);
    EXPECT_GT(longest, 25) << "the chunks use the time that there is";
    EXPECT_LE(steps, round == 2 ? 110 : 75) << "round " << round << ", longest chunk " << longest;
    for (int i = 0; i < 10; ++i) timed();
  }
}

// Many prompts that arrive at once are not cut into the least chunks because nothing is known yet.
TEST(TimeBudgetTest, WithoutGoalTheFirstBurstGetsLongChunksToo) {
  SchedulerHarness h(options_with(without_goal()));
  for (int i = 0; i < 12; ++i) h.add(200, 50);
  int steps = 0;
  while (h.scheduler.num_waiting() > 0 && steps < 1000) {
    const BatchPlan& plan = h.plan();
    h.now = h.now + Duration(static_cast<Duration::rep>(machine_ns(step_features(plan))));
    h.commit();
    ++steps;
  }
  EXPECT_LE(steps, 12 * 200 / 20);
}

}  // namespace
}  // namespace sluice
