#include "gateway/backbone_planner.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/check.h"
#include "serverless/preload_policy.h"

namespace sluice {

void BackbonePlanner::called(std::int32_t function, TimePoint now) {
  auto& arrivals = functions_[static_cast<std::size_t>(function)].arrivals;
  if (!arrivals) arrivals.emplace(start_, kHorizon);
  arrivals->add(now);
}

std::vector<double> BackbonePlanner::rates(TimePoint now) const {
  std::vector<double> rates(costs_.size());
  for (const Function& function : functions_) {
    if (!function.arrivals) continue;
    rates[static_cast<std::size_t>(function.backbone)] +=
        function.arrivals->expected_rate(now, kHorizon);
  }
  return rates;
}

std::vector<std::int32_t> BackbonePlanner::make_room(TimePoint now,
                                                     std::span<const Residency> residency,
                                                     std::int64_t bytes) {
  CHECK(residency.size() == costs_.size());
  const std::vector<double> rate = rates(now);
  std::vector<OffloadItem> items;
  std::vector<std::int32_t> backbones;
  for (std::size_t b = 0; b < costs_.size(); ++b) {
    if (residency[b] != Residency::kIdle) continue;
    OffloadItem item;
    item.bytes = costs_[b].bytes;
    item.value = rate[b] * to_seconds(costs_[b].load);
    items.push_back(item);
    backbones.push_back(static_cast<std::int32_t>(b));
  }
  const auto plan = offload_.plan({.items = items, .bytes_needed = bytes});
  std::vector<std::int32_t> leave;
  if (!plan) return leave;
  for (const OffloadMove& move : plan->moves) {
    leave.push_back(backbones[static_cast<std::size_t>(move.item)]);
  }
  return leave;
}

BackbonePlan BackbonePlanner::plan(TimePoint now, std::span<const Residency> residency,
                                   std::int64_t idle_bytes) {
  BackbonePlan plan;
  std::vector<Residency> left(residency.begin(), residency.end());
  std::int64_t idle = 0;
  for (std::size_t b = 0; b < costs_.size(); ++b) {
    if (left[b] == Residency::kIdle) idle += costs_[b].bytes;
  }
  if (idle > idle_bytes) {
    plan.unload = make_room(now, residency, idle - idle_bytes);
    for (const std::int32_t b : plan.unload) {
      left[static_cast<std::size_t>(b)] = Residency::kAbsent;
    }
  }
  Artifacts artifacts;
  artifacts.num_artifacts = static_cast<std::int32_t>(costs_.size());
  artifacts.num_memories = 1;
  for (std::size_t b = 0; b < costs_.size(); ++b) {
    artifacts.add(static_cast<std::int32_t>(b), 0, costs_[b].bytes, to_seconds(costs_[b].load));
  }
  PreloadPolicy preload(artifacts);
  const std::array<std::int64_t, 1> memory = {std::max<std::int64_t>(idle_bytes, 0)};
  const PreloadPlan chosen =
      preload.plan({.residency = left, .rates = rates(now), .idle_bytes = memory});
  for (const std::int32_t b : chosen.load) {
    const auto was = std::ranges::find(plan.unload, b);
    if (was == plan.unload.end()) {
      plan.load.push_back(b);
    } else {
      plan.unload.erase(was);  // the better plan keeps it
    }
  }
  plan.unload.insert(plan.unload.end(), chosen.drop.begin(), chosen.drop.end());
  return plan;
}

}  // namespace sluice
