#include "sim/simulated_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "profile/test_profiles.h"
#include "sim/step_cost.h"

namespace sluice {
namespace {

using testing::HasSubstr;
using Budget = SimulatedMachineOptions::Budget;

Deployment deployment(std::string_view gpu = "h100", std::string_view model = "llama-3-8b") {
  Deployment d;
  d.gpu = find_gpu(gpu).value();
  d.model = find_model_shape(model).value();
  d.host = find_host_stack("native").value();
  return d;
}

SimulatedMachineOptions options(Budget budget, std::optional<double> slo_ms = {}) {
  SimulatedMachineOptions options;
  options.budget = budget;
  options.tbt_slo_ms = slo_ms;
  return options;
}

// The step that budgets are chosen by.
Duration reference_step(const SimulatedMachine& machine, std::int32_t budget) {
  return step_latency(*machine.cost, sample_step(32, 4096, budget - 32, 4096 - budget));
}

TEST(SimulatedMachine, MemoryIsWhatTheDeploymentLeaves) {
  const Deployment d = deployment();
  const SimulatedMachine machine = make_machine(d, options(Budget::kTokens)).value();
  const ReplicaOptions& replica = machine.options.replica;
  EXPECT_EQ(machine.gpu, "h100");
  EXPECT_EQ(machine.model, "llama-3-8b");
  EXPECT_EQ(replica.token_budget, 512);
  EXPECT_EQ(replica.num_blocks,
            plan_memory(d, max_step_tokens(replica), replica.max_model_len, replica.block_size)
                .value()
                .num_blocks);
  EXPECT_TRUE(check_replica_options(replica));
  EXPECT_FALSE(machine.tbt_slo);
}

TEST(SimulatedMachine, AutoIsTheLargestBudgetWithinTheSlo) {
  const SimulatedMachine machine = make_machine(deployment(), options(Budget::kAuto, 50)).value();
  const std::int32_t budget = machine.options.replica.token_budget;
  EXPECT_EQ(machine.tbt_slo, std::chrono::milliseconds(50));
  EXPECT_LE(reference_step(machine, budget), *machine.tbt_slo);
  EXPECT_GT(reference_step(machine, budget + 128), *machine.tbt_slo);
  const auto none = make_machine(deployment(), options(Budget::kAuto, 1));
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message, HasSubstr("no budget meets 1.0 ms"));
}

TEST(SimulatedMachine, AFactorCountsReferenceDecodes) {
  SimulatedMachineOptions by_factor = options(Budget::kTokens);
  by_factor.tbt_slo_factor = 5;
  const SimulatedMachine machine = make_machine(deployment(), by_factor).value();
  EXPECT_NEAR(to_milliseconds(*machine.tbt_slo), 5 * to_milliseconds(machine.reference_decode),
              1e-3);
}

TEST(SimulatedMachine, TimeBudgetsComeFromAFittedPredictor) {
  SimulatedMachineOptions by_time = options(Budget::kTime, 50);
  by_time.predictor.learns = false;
  const SimulatedMachine machine = make_machine(deployment(), by_time).value();
  ASSERT_TRUE(machine.options.replica.time_budget);
  EXPECT_FALSE(machine.options.replica.time_budget->learn);
  EXPECT_EQ(machine.options.replica.time_budget->tbt, std::chrono::milliseconds(50));
  ASSERT_TRUE(machine.predictor);
  EXPECT_LT(machine.predictor->median, 0.05);  // the measurements' noise
}

TEST(SimulatedMachine, ErrorsNameTheOption) {
  Deployment split = deployment();
  split.tp = 3;
  const auto uneven = make_machine(split, options(Budget::kTokens));
  ASSERT_FALSE(uneven);
  EXPECT_THAT(uneven.error().message, HasSubstr("--tp, --pp: "));
  const auto large = make_machine(deployment("a40", "falcon-180b"), options(Budget::kTokens));
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().code, ErrorCode::kResourceExhausted);
}

TEST(SimulatedMachine, AProfiledMachineHasTheProfilesPredictor) {
  MachineProfile profile = test::test_profile(0.02);
  ASSERT_TRUE(fit_profile(profile));
  SimulatedMachineOptions small = options(Budget::kTokens);
  small.simulation.replica.max_num_seqs = 8;
  small.simulation.replica.max_model_len = 1024;
  small.simulation.replica.token_budget = 128;
  const SimulatedMachine machine = make_profiled_machine(profile, small).value();
  EXPECT_EQ(machine.model, "made-up");
  EXPECT_EQ(machine.host_stack, "measured");
  EXPECT_EQ(machine.options.replica.num_blocks, 8 * 1024 / 16 + 1);
  small.kv_tokens = 160;
  EXPECT_EQ(make_profiled_machine(profile, small).value().options.replica.num_blocks, 11);
  for (const std::int64_t tokens : {std::int64_t{0}, std::int64_t{15}, std::int64_t{1} << 40}) {
    small.kv_tokens = tokens;
    const auto refused = make_profiled_machine(profile, small);
    ASSERT_FALSE(refused) << tokens;
    EXPECT_THAT(refused.error().message, HasSubstr("--kv-tokens"));
  }
}

TEST(SimulatedMachine, ATierHasPagesForItsTokens) {
  SimulatedMachineOptions with = options(Budget::kTokens);
  with.tier_link = "nvlink";
  const SimulatedMachine machine = make_machine(deployment(), with).value();
  const ReplicaOptions& replica = machine.options.replica;
  EXPECT_EQ(replica.tier_pages, 16 * replica.num_blocks);
  EXPECT_EQ(replica.tier.block_bytes, 16.0 * 32 * 2 * 8 * 128 * 2);  // layers, K and V, heads
  with.tier_tokens = 160'000;
  EXPECT_EQ(make_machine(deployment(), with).value().options.replica.tier_pages, 10'000);
  with.tier_tokens = 3;
  EXPECT_THAT(make_machine(deployment(), with).error().message, HasSubstr("--kv-tier-tokens"));
  with.tier_link = "";
  EXPECT_THAT(make_machine(deployment(), with).error().message, HasSubstr("give --kv-tier"));
  with.tier_link = "nvlink";
  EXPECT_THAT(make_machine(deployment("l40s", "llama-3-8b"), with).error().message,
              HasSubstr("no NVLink"));
}

}  // namespace
}  // namespace sluice
