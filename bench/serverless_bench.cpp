// Time of the policies of src/serverless: each alone, and one decision round of all of them, for
// 1,000 functions on 8 backbones and 16 devices.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <deque>
#include <vector>

#include "base/rng.h"
#include "serverless/arrival_rate.h"
#include "serverless/batching.h"
#include "serverless/instance_scaler.h"
#include "serverless/offload_policy.h"
#include "serverless/preload_policy.h"

namespace {

using namespace sluice;

constexpr std::int32_t kFunctions = 1000;
constexpr std::int32_t kDevices = 16;
constexpr std::int32_t kBackbones = 8;
constexpr std::int64_t kGigabyte = 1'000'000'000;

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

// Hosts of eight devices of 48 GB each, backbones of 13 GB, adapters of 20 to 200 MB, and a live
// instance (kernels, KV) of 473 MB for each function and device.
struct Cluster {
  Artifacts artifacts;
  std::vector<Residency> residency;
  std::vector<double> rates;
  std::vector<std::int64_t> idle;

  Cluster() {
    SplitMix64 random(1);
    const std::int32_t hosts = kDevices / 8;
    artifacts.num_memories = hosts + kDevices;
    idle.assign(at(hosts), 64 * kGigabyte);
    idle.resize(at(artifacts.num_memories), 44 * kGigabyte);
    std::vector<std::int32_t> workers;
    for (std::int32_t h = 0; h < hosts; ++h) {
      workers.push_back(artifacts.add(artifacts.num_artifacts++, h, kGigabyte / 5, 3));
      rates.push_back(0);
    }
    std::vector<std::vector<std::int32_t>> backbone_on;
    for (std::int32_t b = 0; b < kBackbones; ++b) add_backbone(hosts, workers, backbone_on);
    for (std::int32_t f = 0; f < kFunctions; ++f) {
      const double rate = 0.2 * random.uniform() * random.uniform();
      const auto bytes = static_cast<std::int64_t>(20'000'000 + random.below(180'000'000));
      const auto& backbones = backbone_on[random.below(kBackbones)];
      const std::int32_t adapter = artifacts.num_artifacts++;
      const std::int32_t instance = artifacts.num_artifacts++;
      rates.push_back(rate);
      rates.push_back(rate);
      rates[at(artifacts.placements[at(backbones[0])].artifact)] += rate;
      for (std::int32_t d = 0; d < kDevices; ++d) {
        const std::int32_t one = artifacts.add(adapter, hosts + d, bytes, 0.3, {backbones[at(d)]});
        artifacts.add(instance, hosts + d, 473'000'000, 1.5, {one});
      }
      for (std::int32_t h = 0; h < hosts; ++h) rates[at(h)] += rate;
    }
    artifacts.check_integrity();
    residency.assign(artifacts.placements.size(), Residency::kAbsent);
  }

  void add_backbone(std::int32_t hosts, const std::vector<std::int32_t>& workers,
                    std::vector<std::vector<std::int32_t>>& backbone_on) {
    const std::int32_t artifact = artifacts.num_artifacts++;
    rates.push_back(0);
    for (std::int32_t h = 0; h < hosts; ++h) artifacts.add(artifact, h, 13 * kGigabyte, 5);
    backbone_on.emplace_back();
    for (std::int32_t d = 0; d < kDevices; ++d) {
      backbone_on.back().push_back(
          artifacts.add(artifact, hosts + d, 13 * kGigabyte, 8, {workers[at(d / 8)]}));
    }
  }

  PreloadView view() const { return {residency, rates, idle}; }

  // The state after the plan.
  void apply(const PreloadPlan& plan) {
    for (const std::int32_t placement : plan.load) residency[at(placement)] = Residency::kIdle;
    for (const std::int32_t placement : plan.drop) residency[at(placement)] = Residency::kAbsent;
  }
};

void BM_Preload(benchmark::State& state) {
  Cluster cluster;
  PreloadPolicy policy(cluster.artifacts);
  const bool again = state.range(0) == 1;
  const PreloadPlan first = policy.plan(cluster.view());
  if (again) cluster.apply(first);
  for (auto _ : state) benchmark::DoNotOptimize(policy.plan(cluster.view()));
  state.counters["placements"] = static_cast<double>(cluster.artifacts.placements.size());
  state.counters["loads"] = static_cast<double>(first.load.size());
}
BENCHMARK(BM_Preload)->Arg(0)->Arg(1)->Unit(benchmark::kMicrosecond);

// One device's memory with `items` items: a backbone for each 50 of them.
std::vector<OffloadItem> device_items(std::int64_t items) {
  SplitMix64 random(2);
  std::vector<OffloadItem> result;
  std::int32_t backbone = -1;
  for (std::int64_t i = 0; i < items; ++i) {
    OffloadItem item;
    if (i % 50 == 0) {
      backbone = static_cast<std::int32_t>(i);
      item.bytes = 13 * kGigabyte;
      item.value = 1;
    } else {
      item.bytes = static_cast<std::int64_t>(random.below(400'000'000));
      item.value = random.uniform();
      item.needs = backbone;
      item.in_use = random.below(10) == 0;
    }
    item.value_after = {0, item.value * 0.2, item.value * 0.6};
    result.push_back(item);
  }
  return result;
}

void BM_Offload(benchmark::State& state) {
  const auto items = device_items(state.range(0));
  OffloadPolicy policy;
  const OffloadView view{items, 8 * kGigabyte, {0, 100 * kGigabyte, 4 * kGigabyte}};
  for (auto _ : state) benchmark::DoNotOptimize(policy.plan(view));
}
BENCHMARK(BM_Offload)->Arg(100)->Arg(1000)->Unit(benchmark::kMicrosecond);

// Every function with one waiting request, so that all of them are looked at.
struct Queues {
  std::vector<WaitingRequest> requests{{TimePoint{}, 300}};
  std::vector<WaitingBatch> batches;
  std::vector<std::int32_t> turns = std::vector<std::int32_t>(kDevices, 0);

  Queues() {
    SplitMix64 random(3);
    for (std::int32_t f = 0; f < kFunctions; ++f) {
      WaitingBatch batch{f,
                         f % kDevices,
                         std::chrono::milliseconds(2500 + random.below(1000)),
                         {0.01, 2e-4},
                         {0.07, 0.06},
                         Duration(0),
                         requests};
      batches.push_back(batch);
    }
  }
};

void BM_Batching(benchmark::State& state) {
  const Queues queues;
  const TimePoint now{std::chrono::milliseconds(500)};
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        plan_batches({now, Batching::kWorkConserving, queues.batches, queues.turns}));
  }
}
BENCHMARK(BM_Batching)->Unit(benchmark::kMicrosecond);

// Rates and scalers of all functions.
struct Functions {
  std::vector<Arrivals> arrivals;
  std::vector<InstanceScaler> scalers;

  Functions() {
    for (std::int32_t f = 0; f < kFunctions; ++f) {
      arrivals.emplace_back(TimePoint{}, std::chrono::seconds(60));
      scalers.emplace_back(scaler_options_for(std::chrono::seconds(300)), TimePoint{}, 1);
      for (int i = 1; i <= 10; ++i) {
        arrivals.back().add({std::chrono::seconds(i)});
        scalers.back().record({std::chrono::seconds(i)}, f % 5);
      }
    }
  }

  double decide(TimePoint now) {
    double sum = 0;
    for (const Arrivals& one : arrivals) sum += one.expected_rate(now, std::chrono::seconds(10));
    for (InstanceScaler& one : scalers) sum += one.decide(now, 1).instances;
    return sum;
  }
};

void BM_RatesAndScaling(benchmark::State& state) {
  Functions functions;
  for (auto _ : state) benchmark::DoNotOptimize(functions.decide({std::chrono::seconds(11)}));
}
BENCHMARK(BM_RatesAndScaling)->Unit(benchmark::kMicrosecond);

// All of the above once: a plan of the machine as it is loaded now, an offload on one device,
// batches, rates and scaling.
void BM_AllPolicies(benchmark::State& state) {
  Cluster cluster;
  PreloadPolicy preload(cluster.artifacts);
  cluster.apply(preload.plan(cluster.view()));
  OffloadPolicy offload;
  const auto items = device_items(100);
  const OffloadView view{items, 8 * kGigabyte, {0, 100 * kGigabyte, 4 * kGigabyte}};
  const Queues queues;
  Functions functions;
  const TimePoint now{std::chrono::milliseconds(500)};
  for (auto _ : state) {
    benchmark::DoNotOptimize(functions.decide({std::chrono::seconds(11)}));
    benchmark::DoNotOptimize(preload.plan(cluster.view()));
    benchmark::DoNotOptimize(offload.plan(view));
    benchmark::DoNotOptimize(
        plan_batches({now, Batching::kWorkConserving, queues.batches, queues.turns}));
  }
}
BENCHMARK(BM_AllPolicies)->Unit(benchmark::kMicrosecond);

}  // namespace
