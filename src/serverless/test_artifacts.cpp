#include "serverless/test_artifacts.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"

namespace sluice::test {
namespace {

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

}  // namespace

Instance random_instance(std::uint64_t seed) {
  SplitMix64 random(seed * 7919 + 1);
  Instance instance;
  Artifacts& artifacts = instance.artifacts;
  const auto number = [&](std::int64_t low, std::int64_t high) {
    return low +
           static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(high - low + 1)));
  };
  const auto devices = static_cast<std::int32_t>(number(1, 2));
  const auto backbones = static_cast<std::int32_t>(number(1, 2));
  artifacts.num_memories = devices + 1;  // 0 is the host's
  const std::int32_t worker = artifacts.num_artifacts++;
  const std::int32_t warm = artifacts.add(worker, 0, number(1, 20), 0.1 * random.uniform() + 0.05);
  instance.rates.push_back(0);
  for (std::int32_t b = 0; b < backbones; ++b) {
    const std::int32_t backbone = artifacts.num_artifacts++;
    const std::int64_t bytes = number(50, 200);
    const double load_s = 0.01 * static_cast<double>(bytes) * (0.5 + random.uniform());
    artifacts.add(backbone, 0, bytes, 0.6 * load_s);
    std::vector<std::int32_t> on_device;
    for (std::int32_t d = 1; d <= devices; ++d) {
      on_device.push_back(artifacts.add(backbone, d, bytes, load_s, {warm}));
    }
    instance.rates.push_back(0);
    const auto functions = number(1, 3);
    for (std::int64_t f = 0; f < functions; ++f) {
      const std::int32_t adapter = artifacts.num_artifacts++;
      const std::int64_t size = number(2, 40);
      const double rate = random.uniform() * random.uniform() * 2;
      for (std::int32_t d = 1; d <= devices; ++d) {
        artifacts.add(adapter, d, size, 0.02 * static_cast<double>(size) * (0.2 + random.uniform()),
                      {on_device[at(d - 1)]});
      }
      instance.rates[at(worker)] += rate;
      instance.rates[at(backbone)] += rate;
      instance.rates.push_back(rate);
    }
  }
  instance.idle.assign(at(artifacts.num_memories), 0);
  for (const Placement& placement : artifacts.placements) {
    instance.idle[at(placement.memory)] += placement.bytes;
  }
  for (std::int64_t& idle : instance.idle) idle = number(idle / 5, idle);
  instance.residency.assign(artifacts.placements.size(), Residency::kAbsent);
  return instance;
}

void load_some(Instance& instance, std::uint64_t seed) {
  SplitMix64 random(seed * 104'729 + 3);
  const auto& placements = instance.artifacts.placements;
  for (std::size_t i = 0; i < placements.size(); ++i) {
    const auto needs = instance.artifacts.needs_of(placements[i]);
    const auto loaded = [&](std::int32_t need) {
      return instance.residency[at(need)] != Residency::kAbsent;
    };
    if (random.below(2) == 0 || !std::ranges::all_of(needs, loaded)) continue;
    instance.residency[i] = Residency::kIdle;
    instance.idle[at(placements[i].memory)] += placements[i].bytes;
  }
  for (std::size_t i = placements.size(); i-- > 0;) {
    const auto use = [&](std::size_t one) {
      if (instance.residency[one] == Residency::kInUse) return;
      instance.residency[one] = Residency::kInUse;
      instance.idle[at(placements[one].memory)] -= placements[one].bytes;
    };
    if (instance.residency[i] == Residency::kIdle && random.below(4) == 0) use(i);
    if (instance.residency[i] != Residency::kInUse) continue;
    for (const std::int32_t need : instance.artifacts.needs_of(placements[i])) use(at(need));
  }
}

double value_of(const Instance& instance, const std::vector<bool>& placed) {
  std::vector<double> saved(instance.rates.size(), 0);
  for (std::size_t i = 0; i < placed.size(); ++i) {
    const Placement& placement = instance.artifacts.placements[i];
    double& best = saved[at(placement.artifact)];
    if (placed[i]) best = std::max(best, placement.saved_s);
  }
  double value = 0;
  for (std::size_t a = 0; a < saved.size(); ++a) value += instance.rates[a] * saved[a];
  return value;
}

void check_plan(const Instance& instance, const PreloadPlan& plan) {
  const auto& placements = instance.artifacts.placements;
  std::vector<bool> placed(placements.size());
  std::vector<std::int64_t> used(instance.idle.size(), 0);
  for (std::size_t i = 0; i < placements.size(); ++i) {
    placed[i] = instance.residency[i] != Residency::kAbsent;
    if (instance.residency[i] == Residency::kIdle)
      used[at(placements[i].memory)] += placements[i].bytes;
  }
  for (const std::int32_t drop : plan.drop) {
    ASSERT_EQ(instance.residency[at(drop)], Residency::kIdle);
    for (std::size_t i = 0; i < placements.size(); ++i) {
      if (!placed[i]) continue;
      const auto needs = instance.artifacts.needs_of(placements[i]);
      ASSERT_EQ(std::ranges::find(needs, drop), needs.end()) << i << " needs " << drop;
    }
    placed[at(drop)] = false;
    used[at(placements[at(drop)].memory)] -= placements[at(drop)].bytes;
  }
  for (const std::int32_t load : plan.load) {
    ASSERT_FALSE(placed[at(load)]);
    ASSERT_EQ(instance.residency[at(load)], Residency::kAbsent);
    for (const std::int32_t need : instance.artifacts.needs_of(placements[at(load)])) {
      ASSERT_TRUE(placed[at(need)]) << load << " before " << need;
    }
    placed[at(load)] = true;
    std::int64_t& bytes = used[at(placements[at(load)].memory)];
    bytes += placements[at(load)].bytes;
    ASSERT_LE(bytes, instance.idle[at(placements[at(load)].memory)]);
  }
  // Placements that stay because there is room for them may be worth something too.
  ASSERT_LE(plan.value, value_of(instance, placed) * (1 + 1e-9));
}

}  // namespace sluice::test
