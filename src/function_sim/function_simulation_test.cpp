#include "function_sim/function_simulation.h"

#include <gtest/gtest.h>

#include <vector>

namespace sluice {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// One device of 100 bytes; a backbone of 40 takes 4 s from disk and 1 s more to the device, a
// worker 2 s, an adapter 0.5 s, kernels 0.25 s; a prompt 0.1 s, and a token 10 ms.
ClusterSpec small_cluster(std::int32_t models = 1) {
  ClusterSpec cluster;
  cluster.device_bytes = 100;
  cluster.host_bytes = 200;
  cluster.worker = {1, 2};
  for (std::int32_t i = 0; i < models; ++i) {
    ModelTimes model;
    model.weights.host = {40, 4};
    model.weights.device = {40, 1};
    model.instance = {3, 0.25};
    model.adapter_host = {2, 0.5};
    model.adapter_device = {2, 0};
    model.prefill = {0.1, 0};
    model.decode_step_s = 0.01;
    cluster.models.push_back(model);
  }
  return cluster;
}

std::vector<SimulatedFunction> functions_on(std::vector<std::int32_t> models) {
  std::vector<SimulatedFunction> functions;
  for (const std::int32_t model : models) {
    functions.push_back({model, 1, milliseconds(550), seconds(30)});
  }
  return functions;
}

FunctionCall call(std::int64_t second, std::int32_t function) {
  return {seconds(second), function, 10, 11};
}

SystemSpec plain(bool shares = true) {
  SystemSpec system;
  system.shares_backbones = shares;
  return system;
}

FunctionReport run(const ClusterSpec& cluster, const std::vector<SimulatedFunction>& functions,
                   const std::vector<FunctionCall>& calls, const SystemSpec& system) {
  return simulate_functions(cluster, functions, calls, system, alibaba_prices());
}

TEST(FunctionSimulationTest, AColdCallWaitsForAllThatItsInstanceNeeds) {
  const FunctionReport report =
      run(small_cluster(), functions_on({0}), {call(10, 0), call(20, 0)}, plain());
  EXPECT_EQ(report.answered, 2);
  EXPECT_EQ(report.cold, 1);
  EXPECT_EQ(report.starts, 1);
  EXPECT_EQ(report.violations, 1);
  EXPECT_NEAR(report.ttft.p99, 2 + 5 + 0.5 + 0.25 + 0.1, 1e-4);
  EXPECT_NEAR(report.ttft.mean, (7.85 + 0.1) / 2, 1e-4);
  EXPECT_NEAR(report.e2e.mean - report.ttft.mean, 0.1, 1e-4);
  EXPECT_NEAR(report.tpot_s, 0.01, 1e-9);
}

double part(const FunctionReport& report, CallPart part) {
  return report.parts[static_cast<std::size_t>(part)];
}

TEST(FunctionSimulationTest, ThePartsOfACallAddUpToItsTime) {
  // The second call comes 2 s after the first one's start began, of which 7.75 s are loads.
  const FunctionReport report =
      run(small_cluster(), functions_on({0}), {call(10, 0), call(12, 0)}, plain());
  const double share = (7.75 + 5.75) / 7.75 / 2;
  EXPECT_NEAR(part(report, CallPart::kLibraries), 2 * share, 1e-6);
  EXPECT_NEAR(part(report, CallPart::kBackbone), 5 * share, 1e-6);
  EXPECT_NEAR(part(report, CallPart::kAdapter), 0.5 * share, 1e-6);
  EXPECT_NEAR(part(report, CallPart::kKernels), 0.25 * share, 1e-6);
  EXPECT_NEAR(part(report, CallPart::kPlace), 0, 1e-6);
  EXPECT_NEAR(part(report, CallPart::kUnderWay), 0, 1e-6);
  double sum = 0;
  for (const double one : report.parts) sum += one;
  EXPECT_NEAR(sum, report.e2e.mean, 1e-4);
}

TEST(FunctionSimulationTest, AFixedBatchWaitsForOthersAndForTheBatchBeforeIt) {
  SystemSpec fixed = plain();
  fixed.batching = Batching::kFixed;
  fixed.fixed = {2, milliseconds(400)};
  const std::vector<FunctionCall> calls = {call(0, 0), call(20, 0), call(30, 0), call(30, 0)};
  const FunctionReport held = run(small_cluster(), functions_on({0}), calls, fixed);
  // A lone warm call waits for 0.4 s; two make a full batch.
  EXPECT_NEAR(held.ttft.mean, (8.25 + 0.5 + 0.1 + 0.1) / 4, 1e-4);
  fixed.fixed = {1, Duration(0)};
  fixed.refuses = false;
  const FunctionReport single = run(small_cluster(), functions_on({0}), calls, fixed);
  // The last one waits for the answer of the one before, 0.1 + 10 x 0.01 s.
  EXPECT_NEAR(single.ttft.mean, (7.85 + 0.1 + 0.1 + 0.3) / 4, 1e-4);
}

TEST(FunctionSimulationTest, OneProcessForAllFunctionsIsBilledByItsMemory) {
  const FunctionReport report = run(small_cluster(), functions_on({0, 0, 0}),
                                    {call(0, 0), call(10, 1), call(20, 2)}, *system_named("dlora"));
  EXPECT_EQ(report.starts, 1);
  EXPECT_EQ(report.cold, 0);
  EXPECT_NEAR(report.ttft.p99, 0.1, 1e-4);
  const PriceList prices = alibaba_prices();
  const double bytes = 40 + 3 + 3 * 2;  // backbone, instance, adapters
  const double units = bytes * 1e-9 * report.seconds *
                       prices.memory[static_cast<std::size_t>(MemoryKind::kDevice)].active;
  EXPECT_NEAR(report.cost, money_for(units, 0, prices), 1e-12);
}

TEST(FunctionSimulationTest, FunctionsOfOneBackboneShareIt) {
  const std::vector<FunctionCall> calls = {call(10, 0), call(20, 1)};
  const FunctionReport shared = run(small_cluster(), functions_on({0, 0}), calls, plain());
  const FunctionReport alone = run(small_cluster(), functions_on({0, 0}), calls, plain(false));
  EXPECT_NEAR(shared.ttft.p50, 7.85, 1e-4);
  EXPECT_NEAR(shared.ttft.mean, (7.85 + 0.85) / 2, 1e-4);
  EXPECT_NEAR(alone.ttft.mean, (7.85 + 5.85) / 2, 1e-4) << "the worker is there";
  EXPECT_LT(shared.cost, alone.cost);
}

// The second start finds the backbone on its way, which no device has yet.
TEST(FunctionSimulationTest, FunctionsThatStartTogetherTakeOneDevice) {
  ClusterSpec cluster = small_cluster();
  cluster.devices = 2;
  SystemSpec system = plain();
  system.always_on = true;
  const FunctionReport one = run(cluster, functions_on({0}), {call(0, 0)}, system);
  const FunctionReport two = run(cluster, functions_on({0, 0}), {call(0, 0), call(0, 1)}, system);
  EXPECT_NEAR(two.cost / two.seconds, one.cost / one.seconds, 1e-12);
}

TEST(FunctionSimulationTest, AnIdleInstanceEndsAndTheNextCallFindsWhatIsLeft) {
  const FunctionReport kept =
      run(small_cluster(), functions_on({0}), {call(10, 0), call(100, 0)}, plain());
  EXPECT_EQ(kept.starts, 2);
  EXPECT_EQ(kept.cold, 2);
  EXPECT_NEAR(kept.ttft.mean, (7.85 + 0.1) / 2, 1e-4) << "its artifacts were kept";
  SystemSpec drops = plain();
  drops.keeps = false;
  const FunctionReport dropped =
      run(small_cluster(), functions_on({0}), {call(10, 0), call(100, 0)}, drops);
  EXPECT_NEAR(dropped.ttft.mean, (7.85 + 5.85) / 2, 1e-4);
}

TEST(FunctionSimulationTest, PreloadingLoadsWhatIsCalledOftenAfterOthersHaveTakenItsPlace) {
  // Two backbones fit. The third one displaces one of them, which comes back before its next call.
  const ClusterSpec cluster = small_cluster(3);
  std::vector<FunctionCall> calls;
  for (std::int64_t i = 0; i < 20; ++i) {
    calls.push_back(call(100 * i, 0));
    calls.push_back(call(100 * i + 1, 1));
    if (i == 10) calls.push_back(call(100 * i + 2, 2));
  }
  SystemSpec system = *system_named("sluice");
  const FunctionReport with = run(cluster, functions_on({0, 1, 2}), calls, system);
  system.preloads = {};
  const FunctionReport without = run(cluster, functions_on({0, 1, 2}), calls, system);
  EXPECT_GT(with.preloads, 0);
  EXPECT_EQ(without.preloads, 0);
  EXPECT_LT(with.ttft.mean, without.ttft.mean);
}

TEST(FunctionSimulationTest, CallsThatWouldMissTheirSloAreRefused) {
  std::vector<FunctionCall> calls = {call(0, 0)};
  for (int i = 0; i < 50; ++i) {
    FunctionCall one = call(20, 0);
    one.prompt_tokens = 100;
    calls.push_back(one);
  }
  ClusterSpec cluster = small_cluster();
  cluster.models[0].prefill.token_s = 0.001;
  const FunctionReport sluice = run(cluster, functions_on({0}), calls, plain());
  EXPECT_GT(sluice.refused, 0);
  EXPECT_EQ(sluice.answered + sluice.refused, 51);
  EXPECT_LE(sluice.violations, 1) << "the cold call";
  SystemSpec patient = plain();
  patient.refuses = false;
  const FunctionReport all = run(cluster, functions_on({0}), calls, patient);
  EXPECT_EQ(all.answered, 51);
  EXPECT_GT(all.violations, 10);
}

TEST(FunctionSimulationTest, AnInstanceOfAFullDeviceWaitsForAPlace) {
  ClusterSpec cluster = small_cluster(3);
  const FunctionReport report =
      run(cluster, functions_on({0, 1, 2}), {call(0, 0), call(0, 1), call(40, 2)}, plain());
  EXPECT_EQ(report.answered, 3);
  EXPECT_GE(report.offloads, 1);
}

// Two cores, a process of 3 bytes that starts in 0.25 s, no adapter, and a backbone of 40 bytes.
ClusterSpec machine_of_cores() {
  ClusterSpec cluster = small_cluster();
  cluster.cores = 2;
  cluster.devices = 0;
  cluster.device_bytes = 0;
  cluster.worker = {};
  cluster.wake_s = 0.09;
  cluster.models[0].prefill = {};
  cluster.models[0].decode_sequence_s = 0.002;
  return cluster;
}

std::vector<SimulatedFunction> bases(std::size_t count, Duration idle) {
  return std::vector<SimulatedFunction>(count, {0, 0, Duration(0), idle});
}

TEST(FunctionSimulationTest, FunctionsOfCoresTakeTurns) {
  std::vector<SimulatedFunction> functions = bases(2, seconds(60));
  functions[1].tenant = 1;
  // Alone, a prompt takes 0.1 s and ten more tokens 0.12 s.
  const FunctionReport report = run(machine_of_cores(), functions,
                                    {call(0, 0), call(0, 1), call(10, 0), call(10, 1)}, plain());
  EXPECT_EQ(report.answered, 4);
  // Both functions wait 4 s for the backbone and then 0.25 s for their own process, so the cold
  // calls meet as those at 10 s do. The first prompt takes 0.1 s, of which 0.09 s wake the cores.
  // Then the other tenant has had less turn time.
  EXPECT_NEAR(report.ttft.mean, (4.35 + 4.36 + 0.1 + 0.11) / 4, 1e-4);
  EXPECT_NEAR(report.e2e.mean, (4.50 + 4.60 + 0.25 + 0.35) / 4, 0.02);
  EXPECT_NEAR(report.core_seconds, 2 * 2 * (0.22 + 0.13), 1e-6);
  EXPECT_NEAR(part(report, CallPart::kHttp), 0, 1e-9);
}

// 10,000 bytes of KV for a token: a call of 10 + 11 tokens computes 20 and leaves one block of 16.
TEST(FunctionSimulationTest, TheKvOfCallsStaysInTheMemoryOfTheirProcess) {
  const std::vector<FunctionCall> calls = {call(0, 0), call(10, 0), call(20, 0), call(80, 0)};
  ClusterSpec cluster = machine_of_cores();
  const auto gb_seconds = [&](std::int64_t most) {
    cluster.models[0].token_bytes = 10'000;
    cluster.models[0].kv_bytes = most;
    return run(cluster, bases(1, seconds(100)), calls, plain()).gb_seconds;
  };
  const double without = gb_seconds(0);
  const double all = gb_seconds(1 << 20) - without;
  // From the first answer at 4.47 s on: 5.6 s with one block, 10 s with two, 60 s with three, and
  // the fourth block until the report's end.
  EXPECT_NEAR(all, 160e-6 * (5.6 + 2 * 10 + 3 * 60 + 4 * 0.5), 160e-6 * 4);
  const double limited = gb_seconds(160'000) - without;
  EXPECT_NEAR(limited, 160e-6 * (5.6 + 10 + 60 + 0.5), 160e-6);
}

TEST(FunctionSimulationTest, HttpIsPartOfACallsTimes) {
  ClusterSpec cluster = machine_of_cores();
  const FunctionReport without = run(cluster, bases(1, seconds(60)), {call(0, 0)}, plain());
  cluster.http_s = 0.5;
  const FunctionReport with = run(cluster, bases(1, seconds(60)), {call(0, 0)}, plain());
  EXPECT_NEAR(with.ttft.mean, without.ttft.mean + 0.5, 1e-6);
  EXPECT_NEAR(with.e2e.mean, without.e2e.mean + 0.5, 1e-6);
  EXPECT_NEAR(part(with, CallPart::kHttp), 0.5, 1e-9);
  EXPECT_EQ(with.core_seconds, without.core_seconds);
}

TEST(FunctionSimulationTest, HttpTakesLongerTheLongerTheCoresHaveRested) {
  ClusterSpec cluster = machine_of_cores();
  std::vector<FunctionCall> calls = {call(0, 0), call(10, 0), call(10, 0)};
  calls[2].arrival += std::chrono::milliseconds(1);
  cluster.rests = {{.seconds = 0, .http_s = 0.25}, {.seconds = 1, .http_s = 0.5}};
  const FunctionReport report = run(cluster, bases(1, seconds(60)), calls, plain());
  EXPECT_NEAR(part(report, CallPart::kHttp), (0.5 + 0.5 + 0.25) / 3, 1e-9);
}

TEST(FunctionSimulationTest, ACallThatComesWhileAnotherIsComputedTakesACore) {
  ClusterSpec cluster = machine_of_cores();
  std::vector<FunctionCall> calls = {call(0, 0), call(10, 0), call(10, 0), call(20, 0)};
  calls[2].arrival += std::chrono::milliseconds(100);
  const FunctionReport without = run(cluster, bases(1, seconds(60)), calls, plain());
  cluster.call_cpu_s = 0.05;
  const FunctionReport with = run(cluster, bases(1, seconds(60)), calls, plain());
  // Only the call at 10.1 s finds a step that computes.
  EXPECT_NEAR(with.core_seconds, without.core_seconds + 2 * 0.05, 1e-6);
  EXPECT_NEAR(with.e2e.mean, without.e2e.mean + 2 * 0.05 / 4, 0.01);
}

TEST(FunctionSimulationTest, AnEndedProcessStartsAgainAndFindsItsBackbone) {
  const FunctionReport report = run(machine_of_cores(), bases(1, seconds(5)),
                                    {call(0, 0), call(100, 0), call(101, 0)}, plain());
  EXPECT_EQ(report.starts, 2);
  EXPECT_NEAR(report.ttft.mean, (4.35 + 0.35 + 0.1) / 3, 1e-4);
  // The process and the backbone, while the process lives.
  EXPECT_GT(report.gb_seconds, 43e-9 * (4 + 1));
  EXPECT_LT(report.gb_seconds, 43e-9 * (4 + 1 + 2 * 30));
}

TEST(FunctionSimulationTest, EachSystemRunsAndTheSameSeedGivesTheSameReport) {
  ClusterSpec cluster = small_cluster(2);
  cluster.devices = 2;
  CallOptions options;
  options.functions = 6;
  options.rate = 0.02;
  options.cov = 3;
  options.seconds = 1200;
  const auto calls = make_calls(options);
  ASSERT_TRUE(calls);
  for (const std::string& name : system_names()) {
    const auto system = system_named(name);
    ASSERT_TRUE(system);
    const auto functions = functions_on({0, 0, 0, 1, 1, 1});
    const FunctionReport one = run(cluster, functions, *calls, *system);
    const FunctionReport two = run(cluster, functions, *calls, *system);
    EXPECT_EQ(one.calls, std::ssize(*calls)) << name;
    EXPECT_EQ(one.calls, one.answered + one.refused + one.unplaced) << name;
    EXPECT_GT(one.cost, 0) << name;
    EXPECT_EQ(one.cost, two.cost) << name;
    EXPECT_EQ(one.ttft.p99, two.ttft.p99) << name;
  }
  EXPECT_FALSE(system_named("knative"));
}

}  // namespace
}  // namespace sluice
