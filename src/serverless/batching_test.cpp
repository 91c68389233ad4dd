#include "serverless/batching.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <vector>

#include "base/rng.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using testing::IsEmpty;
using testing::SizeIs;

TimePoint at_ms(std::int64_t ms) { return {milliseconds(ms)}; }

// A batch of prompts of 100 tokens each, 1 ms a token: T(b) = 100 ms x b.
WaitingBatch batch_of(std::span<const WaitingRequest> requests, std::int64_t slo_ms,
                      std::int32_t device = 0) {
  WaitingBatch batch;
  batch.device = device;
  batch.slo = milliseconds(slo_ms);
  batch.time = {0, 1e-3};
  batch.line = line_of(batch.time, 100);
  batch.requests = requests;
  return batch;
}

struct Devices {
  std::vector<std::int32_t> turns;
  std::vector<WaitingBatch> batches;

  BatchingPlan plan(std::int64_t now_ms, Batching mode = Batching::kWorkConserving) const {
    return plan_batches({at_ms(now_ms), mode, batches, turns});
  }
};

TEST(Batching, AFixedBatchGoesWhenItIsFullOrItsDelayIsOver) {
  const std::vector<WaitingRequest> two = {{at_ms(0), 100}, {at_ms(10), 100}};
  const std::vector<WaitingBatch> batches = {batch_of(two, 1000)};
  const std::vector<std::int32_t> turns = {1};  // another function's turn does not hold it
  const auto plan = [&](std::int64_t now, FixedBatch fixed) {
    return plan_batches({at_ms(now), Batching::kFixed, batches, turns, fixed});
  };
  const BatchingPlan held = plan(20, {3, milliseconds(500)});
  EXPECT_THAT(held.dispatches, IsEmpty());
  EXPECT_EQ(held.wake_at, at_ms(500));
  EXPECT_EQ(plan(500, {3, milliseconds(500)}).dispatches.at(0).requests, 2);
  EXPECT_EQ(plan(20, {2, milliseconds(500)}).dispatches.at(0).requests, 2);
  EXPECT_EQ(plan(20, {1, Duration(0)}).dispatches.at(0).requests, 1);
}

TEST(PrefillLineTest, Equation2) {
  const PrefillLine line{0.5, 0.1};
  EXPECT_DOUBLE_EQ(line.seconds(1), 0.5);
  EXPECT_DOUBLE_EQ(line.seconds(4), 0.8);
  EXPECT_EQ(line.max_requests(milliseconds(2500)), 21);
  EXPECT_EQ(line.max_requests(milliseconds(499)), 1);
  EXPECT_EQ((PrefillLine{0.1, 0.3}).max_requests(milliseconds(1000)), 4);
  EXPECT_GT((PrefillLine{0.1, 0}).max_requests(milliseconds(1000)), 1000);
}

// Equation 2 knows requests and not their lengths: a batch of one long and one short prompt takes
// as long as its tokens.
TEST(PrefillLineTest, LineIsOffForOtherLengths) {
  const PrefillTime time{0.002, 1e-3};
  const PrefillLine line = line_of(time, 100);
  EXPECT_DOUBLE_EQ(line.seconds(3), time.seconds(300));
  EXPECT_GT(time.seconds(1000), 9 * line.seconds(1));
}

TEST(BatchingTest, LoneRequestOnAnIdleMachine) {
  const std::vector<WaitingRequest> one = {{at_ms(0), 100}};
  const Devices devices{{0}, {batch_of(one, 1000)}};
  EXPECT_THAT(devices.plan(0).dispatches, SizeIs(1));
  // As printed, it waits for d = 1000 - 100 ms.
  const BatchingPlan held = devices.plan(0, Batching::kFillOrExpire);
  EXPECT_THAT(held.dispatches, IsEmpty());
  EXPECT_EQ(held.wake_at, at_ms(900));
  EXPECT_THAT(devices.plan(899, Batching::kFillOrExpire).dispatches, IsEmpty());
  EXPECT_THAT(devices.plan(900, Batching::kFillOrExpire).dispatches, SizeIs(1));
}

TEST(BatchingTest, FullBatchGoesAtOnce) {
  // B = 10; with 9 requests the delay is 1000 - 900 ms.
  const std::vector<WaitingRequest> ten(10, {at_ms(0), 100});
  const std::vector<WaitingRequest> nine(9, {at_ms(0), 100});
  Devices devices{{0}, {batch_of(ten, 1000)}};
  ASSERT_THAT(devices.plan(0, Batching::kFillOrExpire).dispatches, SizeIs(1));
  EXPECT_EQ(devices.plan(0, Batching::kFillOrExpire).dispatches[0].requests, 10);
  devices.batches = {batch_of(nine, 1000)};
  const auto wake_at = devices.plan(0, Batching::kFillOrExpire).wake_at;
  EXPECT_NEAR(to_milliseconds(wake_at->since_start), 100, 1e-5);
}

TEST(BatchingTest, Equation5OrdersTurns) {
  // M = 3 on device 0. Margins: 2000 - (100 + 3 x 100) = 1600; 1000 - (0 + 300) = 700;
  // 1500 - (900 + 300) = 300 ms.
  const std::vector<WaitingRequest> young = {{at_ms(900), 100}};
  const std::vector<WaitingRequest> new_one = {{at_ms(1000), 100}};
  const std::vector<WaitingRequest> old = {{at_ms(100), 100}};
  Devices devices{{0}, {batch_of(young, 2000), batch_of(new_one, 1000), batch_of(old, 1500)}};
  const BatchingPlan first = devices.plan(1000);
  ASSERT_THAT(first.dispatches, SizeIs(1));  // one has the turn
  EXPECT_EQ(first.dispatches[0].batch, 2);
  EXPECT_NEAR(first.dispatches[0].margin_s, 0.3, 1e-9);
  devices.batches.pop_back();
  devices.turns = {1};
  EXPECT_THAT(devices.plan(1000).dispatches, IsEmpty());
  devices.turns = {0};
  EXPECT_EQ(devices.plan(1000).dispatches[0].batch, 1);
}

TEST(BatchingTest, DevicesHaveTurnsOfTheirOwn) {
  const std::vector<WaitingRequest> one = {{at_ms(0), 100}};
  const Devices devices{{0, 0, 1},
                        {batch_of(one, 500, 0), batch_of(one, 500, 1), batch_of(one, 500, 2)}};
  EXPECT_THAT(devices.plan(0).dispatches, SizeIs(2));
}

TEST(BatchingTest, CertainMissesAreRefusedEarly) {
  // At 950 ms: the first misses by its age, the second by its length, the third meets its SLO.
  const std::vector<WaitingRequest> requests = {
      {at_ms(0), 100}, {at_ms(900), 960}, {at_ms(950), 100}};
  Devices devices{{0}, {batch_of(requests, 1000)}};
  BatchingPlan plan = devices.plan(950);
  ASSERT_THAT(plan.refusals, SizeIs(2));
  EXPECT_EQ(plan.refusals[1].request, 1);
  ASSERT_THAT(plan.dispatches, SizeIs(1));
  EXPECT_EQ(plan.dispatches[0].first, 2);
  EXPECT_EQ(plan.dispatches[0].requests, 1);
  // The time that a cold instance still needs counts too.
  devices.batches[0].ready_in = milliseconds(901);
  plan = devices.plan(950);
  EXPECT_THAT(plan.refusals, SizeIs(3));
  // At the edge it is not certain.
  const std::vector<WaitingRequest> edge = {{at_ms(0), 100}};
  devices.batches = {batch_of(edge, 1000)};
  EXPECT_THAT(devices.plan(900).refusals, IsEmpty());
  EXPECT_THAT(devices.plan(901).refusals, SizeIs(1));
}

TEST(BatchingTest, DispatchedTokensLieAhead) {
  // 1 ms a token, an SLO of 1000 ms: with 700 tokens ahead there is time for three of 100.
  const std::vector<WaitingRequest> requests(5, {at_ms(0), 100});
  Devices devices{{0}, {batch_of(requests, 1000)}};
  devices.batches[0].ahead = 700;
  BatchingPlan plan = devices.plan(0);
  EXPECT_THAT(plan.refusals, IsEmpty());
  ASSERT_THAT(plan.dispatches, SizeIs(1));
  EXPECT_EQ(plan.dispatches[0].requests, 3);
  EXPECT_NEAR(plan.dispatches[0].margin_s, 0, 1e-9);
  // Those three lie ahead now, so the other two certainly miss their SLO.
  devices.batches = {batch_of(std::span(requests).first(2), 1000)};
  devices.batches[0].ahead = 1000;
  plan = devices.plan(0);
  EXPECT_THAT(plan.refusals, SizeIs(2));
  EXPECT_THAT(plan.dispatches, IsEmpty());
  // At the edge it is not certain.
  devices.batches[0].ahead = 900;
  EXPECT_THAT(devices.plan(0).refusals, IsEmpty());
  EXPECT_THAT(devices.plan(1).refusals, SizeIs(2));
}

TEST(BatchingTest, ColdFunctionIsHeldAndKeepsNoTurn) {
  const std::vector<WaitingRequest> one = {{at_ms(0), 100}};
  Devices devices{{0}, {batch_of(one, 500), batch_of(one, 2000)}};
  devices.batches[0].ready_in = milliseconds(200);
  const BatchingPlan plan = devices.plan(0);
  ASSERT_THAT(plan.dispatches, SizeIs(1));
  EXPECT_EQ(plan.dispatches[0].batch, 1);
}

TEST(BatchingTest, BatchEndsWhereItsTimeWouldPassTheSlo) {
  const std::vector<WaitingRequest> requests(20, {at_ms(0), 100});
  const Devices devices{{0}, {batch_of(requests, 1000)}};
  EXPECT_EQ(devices.plan(0).dispatches[0].requests, 10);
  const std::vector<WaitingRequest> long_one(2, {at_ms(0), 900});
  EXPECT_EQ((Devices{{0}, {batch_of(long_one, 1000)}}).plan(0).dispatches[0].requests, 1);
}

// One device serves random requests of three functions by turns. A request is overtaken only by
// requests that the stated bound allows, and none is left over.
TEST(BatchingTest, NothingWaitsWithoutEnd) {
  SplitMix64 random(5);
  const std::int64_t slo_ms[] = {60'000, 90'000, 200'000};
  std::vector<std::vector<WaitingRequest>> queues(3);
  std::int64_t now = 0;
  std::int64_t arrived = 0;
  std::int64_t served = 0;
  std::int64_t turn_ends = 0;
  while (served < 2000) {
    if (arrived < 2000) {
      queues[random.below(3)].push_back({at_ms(now), 50});
      ++arrived;
    }
    Devices devices{{now < turn_ends ? 1 : 0}, {}};
    std::vector<std::size_t> owner;
    for (std::size_t f = 0; f < 3; ++f) {
      if (queues[f].empty()) continue;
      devices.batches.push_back(batch_of(queues[f], slo_ms[f]));
      owner.push_back(f);
    }
    const BatchingPlan plan = devices.plan(now);
    ASSERT_THAT(plan.refusals, IsEmpty());
    for (const BatchDispatch& dispatch : plan.dispatches) {
      const std::size_t f = owner[static_cast<std::size_t>(dispatch.batch)];
      const std::int64_t oldest = queues[f].front().arrival.since_start / milliseconds(1);
      for (std::size_t g = 0; g < 3; ++g) {
        if (g == f || queues[g].empty()) continue;
        // At most 3 functions, and batches of at most 60 s: M (T' - T) < 3 x 60 s.
        const std::int64_t other = queues[g].front().arrival.since_start / milliseconds(1);
        EXPECT_LT(oldest - other, slo_ms[g] - slo_ms[f] + 180'000);
      }
      served += dispatch.requests;
      turn_ends = now + 50 * dispatch.requests;
      queues[f].erase(queues[f].begin(), queues[f].begin() + dispatch.requests);
    }
    now += 45;
  }
  EXPECT_EQ(arrived, served);
}

}  // namespace
}  // namespace sluice
