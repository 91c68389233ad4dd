// The transfers of the simulated executor: directions, batches, and the link that ranks share.
#include "sim/simulated_executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "sim/hardware.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;

// A step of 10 ms, for 2 ms of which ranks use the link between them.
class LinkCost final : public StepCost {
 public:
  std::int32_t num_stages() const override { return 1; }
  void stage_times(const BatchPlan&, std::span<Duration> stages) override {
    stages[0] = milliseconds(10);
  }
  Duration send_time(const BatchPlan&) const override { return Duration(0); }
  Duration collective_time(const BatchPlan&) override { return milliseconds(2); }
};

BatchPlan moves(TransferId first, int loads, int saves) {
  BatchPlan plan;
  for (int i = 0; i < loads; ++i) plan.transfers.push_back({first++, TransferKind::kLoadBlock});
  for (int i = 0; i < saves; ++i) plan.transfers.push_back({first++, TransferKind::kSaveBlock});
  return plan;
}

std::vector<TransferId> ended_at(SimulatedExecutor& executor, Duration now) {
  executor.set_now(now);
  std::vector<TransferResult> results;
  EXPECT_TRUE(executor.poll(results).has_value());
  std::vector<TransferId> ids;
  for (const TransferResult& each : results) ids.push_back(each.id);
  return ids;
}

TEST(SimulatedTier, DirectionsRunAtOnceAndACopyPaysItsLatencyOnce) {
  LinkCost cost;
  const TierCost tier{.latency = 1e-3, .bytes_per_second = 1e9, .block_bytes = 2e6};
  SimulatedExecutor executor(cost, 0, 0, {}, tier);
  ASSERT_TRUE(executor.submit(moves(1, 2, 1)).has_value());
  EXPECT_EQ(executor.transfer_done_at(), milliseconds(3));
  EXPECT_THAT(ended_at(executor, milliseconds(2)), testing::IsEmpty());
  EXPECT_THAT(ended_at(executor, milliseconds(3)), testing::UnorderedElementsAre(1, 3));
  EXPECT_THAT(ended_at(executor, milliseconds(5)), testing::ElementsAre(2));
  EXPECT_EQ(executor.transfer_done_at(), std::nullopt);
  // Later plans wait for their direction.
  ASSERT_TRUE(executor.submit(moves(4, 1, 0)).has_value());
  ASSERT_TRUE(executor.submit(moves(5, 1, 1)).has_value());
  EXPECT_THAT(ended_at(executor, milliseconds(8)), testing::UnorderedElementsAre(4, 6));
  EXPECT_THAT(ended_at(executor, milliseconds(11)), testing::ElementsAre(5));
}

TEST(SimulatedTier, BlocksWaitWhileRanksUseTheirLink) {
  for (const bool shared : {false, true}) {
    LinkCost cost;
    const TierCost tier{.bytes_per_second = 1e9, .block_bytes = 4e6, .shares_collectives = shared};
    SimulatedExecutor executor(cost, 0, 0, {}, tier);
    BatchPlan plan = moves(1, 2, 0);
    plan.rows.push_back({.sequence = 1, .query_len = 1});
    plan.token_ids = {1};
    ASSERT_TRUE(executor.submit(plan).has_value());
    EXPECT_EQ(executor.transfer_done_at(), milliseconds(shared ? 6 : 4));
    EXPECT_THAT(ended_at(executor, milliseconds(shared ? 10 : 8)), testing::ElementsAre(1, 2));
  }
}

// The paper's two points (Aqua, section 5.1) between two A100: 50 GB/s and 200 GB/s.
TEST(SimulatedTier, ASmallCopyOverNvlinkIsSlowForItsBytes) {
  const GpuSpec gpu = find_gpu("a100-80g").value();
  const auto rate = [&](double bytes) {
    const TierCost cost = tier_cost(gpu, "nvlink", bytes).value();
    return bytes / (cost.latency + bytes / cost.bytes_per_second) / 1e9;
  };
  EXPECT_NEAR(rate(4e6), 50, 5);
  EXPECT_NEAR(rate(64e6), 200, 20);
}

TEST(SimulatedTier, LinksAreNamed) {
  const GpuSpec gpu = find_gpu("l40s").value();
  EXPECT_NEAR(tier_cost(gpu, "pcie", 1).value().bytes_per_second, 24e9, 1);
  EXPECT_NEAR(tier_cost(gpu, "2.5", 1).value().bytes_per_second, 2.5e9, 1);
  EXPECT_EQ(tier_cost(gpu, "free", 1e6).value().block_bytes, 0);
  EXPECT_THAT(tier_cost(gpu, "nvlink", 1).error().message,
              testing::HasSubstr("l40s has no NVLink"));
  for (const char* const wrong : {"disk", "", "0", "-1", "nan", "inf", "2.5GB"}) {
    EXPECT_THAT(tier_cost(gpu, wrong, 1).error().message, testing::HasSubstr("is no link"));
    EXPECT_FALSE(free_tier_cost(wrong).has_value());
  }
}

}  // namespace
}  // namespace sluice
