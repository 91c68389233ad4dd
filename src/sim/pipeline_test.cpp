// When stages run and why they stand idle.
#include "sim/pipeline.h"

#include <gtest/gtest.h>

#include <vector>

#include "sim/step_cost.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;

const BatchPlan& decodes() {
  static const BatchPlan plan = sample_step(4, 100, 0, 0);
  return plan;
}

const BatchPlan& prompt(std::int32_t tokens) {
  static std::vector<BatchPlan> plans(4096);
  BatchPlan& plan = plans[static_cast<std::size_t>(tokens)];
  if (plan.empty()) plan = sample_step(0, 0, tokens, 0);
  return plan;
}

// Starts micro-batches as the replica does: at once while there is room, else when the oldest ends.
class Driver {
 public:
  explicit Driver(std::int32_t stages) : pipeline(stages), stages_(stages) {}

  Duration run(const BatchPlan& plan, std::vector<Duration> times, Duration send = Duration(0)) {
    if (pipeline.in_flight() == stages_) {
      now = std::max(now, ends_[ends_.size() - static_cast<std::size_t>(stages_)]);
      pipeline.finish();
    }
    now = std::max(now, pipeline.ready_at());
    ends_.push_back(pipeline.start(plan, now, times, send));
    return ends_.back();
  }

  Pipeline pipeline;
  Duration now{0};

 private:
  std::int32_t stages_;
  std::vector<Duration> ends_;
};

TEST(Pipeline, OneStageHasNoBubbles) {
  Driver driver(1);
  for (int i = 1; i <= 10; ++i) {
    EXPECT_EQ(driver.run(i % 2 == 0 ? decodes() : prompt(100 * i), {milliseconds(10)}),
              milliseconds(10 * i));
  }
  const PipelineTimes& times = driver.pipeline.times();
  EXPECT_EQ(times.busy, milliseconds(100));
  EXPECT_EQ(times.bubbles() + times.link + times.unfilled, Duration(0));
}

TEST(Pipeline, EqualMicroBatchesHaveNoBubblesOnceItIsFull) {
  Driver driver(3);
  Duration end{0};
  for (int i = 0; i < 30; ++i) {
    end = driver.run(decodes(), {milliseconds(5), milliseconds(5), milliseconds(5)});
  }
  EXPECT_EQ(end, milliseconds(5 * 30 + 10));
  EXPECT_EQ(driver.pipeline.times().bubbles(), Duration(0));
  EXPECT_EQ(driver.pipeline.times().unfilled, Duration(0));
  EXPECT_EQ(driver.pipeline.times().busy, milliseconds(3 * 5 * 30));
}

// Two stages; micro-batches of 10 and 30 ms take turns. While the long one is in the first stage,
// the second is done with the short one for 20 ms, and the other way round.
TEST(Pipeline, UnequalMicroBatchesWaitForEachOther) {
  const auto bubbles = [](const BatchPlan& a, const BatchPlan& b) {
    Driver driver(2);
    for (int i = 0; i < 10; ++i) {
      driver.run(a, {milliseconds(10), milliseconds(10)});
      driver.run(b, {milliseconds(30), milliseconds(30)});
    }
    EXPECT_EQ(driver.pipeline.times().link, Duration(0));
    EXPECT_EQ(driver.pipeline.times().unfilled, Duration(0));
    return driver.pipeline.times();
  };
  // 19 times a stage waits 20 ms: 10 times the second one for a long micro-batch, 9 times the
  // first one for a long one to leave.
  const Duration all = milliseconds(19 * 20);
  EXPECT_EQ(bubbles(prompt(100), prompt(300)).prefill_lengths, all);
  EXPECT_EQ(bubbles(decodes(), prompt(300)).prefill_decode, all);
  EXPECT_EQ(bubbles(decodes(), decodes()).context, all);
  EXPECT_EQ(bubbles(prompt(300), prompt(300)).context, all);
  EXPECT_EQ(bubbles(prompt(100), prompt(300)).bubbles(), all);
}

TEST(Pipeline, TheLinkIsACauseOfItsOwn) {
  Driver driver(2);
  for (int i = 0; i < 10; ++i) {
    driver.run(decodes(), {milliseconds(10), milliseconds(10)}, milliseconds(3));
  }
  // The first stage waits until a micro-batch has crossed the link and left the second one.
  EXPECT_EQ(driver.pipeline.times().bubbles(), Duration(0));
  EXPECT_GT(driver.pipeline.times().link, milliseconds(8 * 3 / 2));
  EXPECT_EQ(driver.pipeline.times().unfilled, Duration(0));
}

// One micro-batch at a time: the other stage has nothing to run, which is no bubble.
TEST(Pipeline, APipelineThatIsNotFilledHasNoBubbles) {
  Pipeline pipeline(2);
  const std::vector<Duration> times = {milliseconds(10), milliseconds(10)};
  Duration now{0};
  for (int i = 0; i < 5; ++i) {
    now = pipeline.start(decodes(), now, times, Duration(0));
    pipeline.finish();
  }
  EXPECT_EQ(pipeline.times().bubbles(), Duration(0));
  EXPECT_EQ(pipeline.times().unfilled, milliseconds(4 * 20));
}

// Falcon-180B in the paper: a prompt of 4k tokens beside decodes.
TEST(Pipeline, APromptBesideDecodesLeavesTheirDifference) {
  Driver driver(2);
  driver.run(decodes(), {milliseconds(100), milliseconds(100)});
  driver.run(prompt(4000), {milliseconds(575), milliseconds(575)});
  driver.run(decodes(), {milliseconds(100), milliseconds(100)});
  EXPECT_EQ(driver.pipeline.times().prefill_decode, milliseconds(475));
}

}  // namespace
}  // namespace sluice
