#include "sim/simulated_capacity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace sluice {
namespace {

SimulatedLoad small_load() {
  SimulatedLoadOptions options;
  options.lengths = "fixed:512,32";
  options.num_requests = 60;
  options.context = 8192;
  return SimulatedLoad::make(options).value();
}

Deployment deployment(std::string_view model) {
  Deployment d;
  d.gpu = find_gpu("a100-80g").value();
  d.model = find_model_shape(model).value();
  d.host = find_host_stack("native").value();
  return d;
}

CapacityOptions coarse() {
  CapacityOptions options;
  options.resolution = 0.2;
  options.max_probes = 10;
  return options;
}

TEST(SimulatedCapacity, TheRateMeetsTheObjectiveAndTheNextOneFails) {
  SimulatedMachineOptions options;
  options.tbt_slo_factor = 1;
  const SimulatedMachine machine = make_machine(deployment("mistral-7b"), options).value();
  CapacityOptions capacity = coarse();
  capacity.objective.p99_tbt = *machine.tbt_slo;
  const CapacityResult result = find_simulated_capacity(machine, small_load(), capacity).value();
  EXPECT_GT(result.rate, 0.5);
  EXPECT_GT(result.failing_rate, result.rate);
  for (const CapacityProbe& probe : result.probes) {
    EXPECT_EQ(probe.met, probe.rate <= result.rate);
    EXPECT_TRUE(!probe.met || probe.p99_tbt <= *machine.tbt_slo);
  }
  const auto stopped =
      find_simulated_capacity(machine, small_load(), capacity, [](double) { return false; });
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled);
}

TEST(SimulatedCapacity, ChoicesUseEveryGpu) {
  const auto choices = deployment_choices(4);
  EXPECT_EQ(choices.size(), 6U * 6U);  // (tp, pp): 1 1, 1 2, 1 4, 2 1, 2 2, 4 1
  for (const DeploymentChoice& choice : choices) {
    EXPECT_EQ(choice.tp * choice.pp * choice.replicas, 4);
  }
}

TEST(SimulatedCapacity, TheSearchSortsTheChoicesThatFit) {
  SimulatedMachineOptions options;
  options.tbt_slo_ms = 150;
  std::size_t told = 0;
  const DeploymentSearch search =
      search_deployments(deployment("yi-34b"), 2, options, small_load(), coarse(),
                         [&](const DeploymentChoice& choice, double) {
                           told += choice.tp == 1 && choice.pp == 1 ? 1 : 0;
                           return true;
                         })
          .value();
  EXPECT_EQ(search.tried, deployment_choices(2).size());
  ASSERT_FALSE(search.found.empty());
  EXPECT_TRUE(std::is_sorted(search.found.begin(), search.found.end(),
                             [](const auto& a, const auto& b) { return a.capacity > b.capacity; }));
  EXPECT_GT(search.found.front().capacity, 0);
  for (const DeploymentChoice& choice : search.found) {
    EXPECT_EQ(choice.replicas, 2 / (choice.tp * choice.pp));
  }
  EXPECT_GT(told, 0U);
}

TEST(SimulatedCapacity, WhenNothingFitsItSaysWhy) {
  SimulatedMachineOptions options;
  options.tbt_slo_ms = 150;
  const auto search =
      search_deployments(deployment("falcon-180b"), 1, options, small_load(), coarse());
  ASSERT_FALSE(search);
  EXPECT_EQ(search.error().code, ErrorCode::kResourceExhausted);
}

}  // namespace
}  // namespace sluice
