#include "gateway/artifact_planner.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "base/check.h"
#include "serverless/preload_policy.h"

namespace sluice {
namespace {

std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }

// The share of calls that find no process of their function.
double cold_share(const Arrivals& arrivals, double rate, Duration idle) {
  if (arrivals.gaps().count() >= Arrivals::kEnoughGaps) {
    return 1 - arrivals.gaps().probability_within(Duration(0), idle);
  }
  return std::exp(-rate * to_seconds(idle));
}

}  // namespace

void ArtifactPlanner::called(std::int32_t function, TimePoint now) {
  auto& arrivals = functions_[index(function)].arrivals;
  if (!arrivals) arrivals.emplace(start_, kHorizon);
  arrivals->add(now);
}

// Each item stands behind the one that it needs.
std::vector<ArtifactPlanner::Item> ArtifactPlanner::items(TimePoint now,
                                                          const ArtifactState& state) const {
  CHECK(state.backbones.size() == backbones_.size());
  std::vector<Item> items;
  for (std::int32_t b = 0; b < std::ssize(backbones_); ++b) {
    items.push_back({Kind::kBackbone, b, -1, backbones_[index(b)], 0, state.backbones[index(b)]});
  }
  std::vector<double> cold(backbones_.size());  // of each backbone's functions
  for (std::int32_t f = 0; f < std::ssize(functions_); ++f) {
    const Function& function = functions_[index(f)];
    if (!function.arrivals) continue;
    const double rate = function.arrivals->expected_rate(now, kHorizon);
    const double cold_rate = rate * cold_share(*function.arrivals, rate, function.idle);
    items[index(function.backbone)].rate += rate;
    cold[index(function.backbone)] += cold_rate;
    const auto adapter = state.adapters.find(f);
    if (adapter == state.adapters.end()) continue;
    items.push_back(
        {Kind::kAdapter, f, -1, adapter->second.use, cold_rate, adapter->second.residency});
  }
  for (std::int32_t b = 0; b < std::ssize(state.worker_uses); ++b) {
    if (state.worker_uses[index(b)].bytes == 0) continue;
    items.push_back({Kind::kWorkers, b, b, state.worker_uses[index(b)], cold[index(b)],
                     state.workers[index(b)] ? Residency::kIdle : Residency::kAbsent});
  }
  return items;
}

void ArtifactPlanner::add_to(ArtifactPlan::Set& set, const Item& item) {
  switch (item.kind) {
    case Kind::kBackbone: return set.backbones.push_back(item.number);
    case Kind::kWorkers: return set.workers.push_back(item.number);
    case Kind::kAdapter: return set.adapters.push_back(item.number);
  }
}

std::int64_t ArtifactPlanner::idle_bytes(const ArtifactState& state) const {
  std::int64_t bytes = 0;
  for (std::size_t b = 0; b < backbones_.size(); ++b) {
    if (state.backbones[b] == Residency::kIdle) bytes += backbones_[b].bytes;
    if (b < state.workers.size() && state.workers[b]) bytes += state.worker_uses[b].bytes;
  }
  for (const auto& [function, adapter] : state.adapters) {
    if (adapter.residency == Residency::kIdle) bytes += adapter.use.bytes;
  }
  return bytes;
}

// Positions of items that leave so that `bytes` become free; none if they do not free enough.
std::vector<std::int32_t> ArtifactPlanner::leave(const std::vector<Item>& items,
                                                 std::int64_t bytes) {
  std::vector<OffloadItem> loaded;
  std::vector<std::int32_t> positions;
  std::vector<std::int32_t> offload_of(items.size(), -1);
  for (std::size_t i = 0; i < items.size(); ++i) {
    const Item& item = items[i];
    if (item.residency == Residency::kAbsent) continue;
    OffloadItem one;
    one.bytes = item.use.bytes;
    one.value = item.rate * to_seconds(item.use.saves);
    one.in_use = item.residency == Residency::kInUse;
    one.needs = item.needs < 0 ? -1 : offload_of[index(item.needs)];
    offload_of[i] = static_cast<std::int32_t>(loaded.size());
    loaded.push_back(one);
    positions.push_back(static_cast<std::int32_t>(i));
  }
  const auto plan = offload_.plan({.items = loaded, .bytes_needed = bytes});
  std::vector<std::int32_t> leave;
  if (!plan) return leave;
  for (const OffloadMove& move : plan->moves) leave.push_back(positions[index(move.item)]);
  return leave;
}

ArtifactPlan::Set ArtifactPlanner::make_room(TimePoint now, const ArtifactState& state,
                                             std::int64_t bytes) {
  const std::vector<Item> all = items(now, state);
  ArtifactPlan::Set set;
  for (const std::int32_t i : leave(all, bytes)) add_to(set, all[index(i)]);
  return set;
}

ArtifactPlan ArtifactPlanner::plan(TimePoint now, const ArtifactState& state, std::int64_t room) {
  std::vector<Item> all = items(now, state);
  std::vector<Residency> before;
  for (const Item& item : all) before.push_back(item.residency);
  const std::int64_t idle = idle_bytes(state);
  if (idle > room) {
    for (const std::int32_t i : leave(all, idle - room)) {
      all[index(i)].residency = Residency::kAbsent;
    }
  }
  Artifacts artifacts;
  artifacts.num_artifacts = static_cast<std::int32_t>(all.size());
  artifacts.num_memories = 1;
  std::vector<Residency> residency;
  std::vector<double> rates;
  for (std::int32_t i = 0; i < std::ssize(all); ++i) {
    const Item& item = all[index(i)];
    const double saves = to_seconds(item.use.saves);
    if (item.needs < 0) {
      artifacts.add(i, 0, item.use.bytes, saves);
    } else {
      artifacts.add(i, 0, item.use.bytes, saves, {item.needs});
    }
    residency.push_back(item.residency);
    rates.push_back(item.rate);
  }
  PreloadPolicy preload(artifacts);
  const std::array<std::int64_t, 1> memory = {std::max<std::int64_t>(room, 0)};
  const PreloadPlan chosen =
      preload.plan({.residency = residency, .rates = rates, .idle_bytes = memory});
  for (const std::int32_t i : chosen.load) all[index(i)].residency = Residency::kIdle;
  for (const std::int32_t i : chosen.drop) all[index(i)].residency = Residency::kAbsent;
  ArtifactPlan plan;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool was = before[i] != Residency::kAbsent;
    const bool is = all[i].residency != Residency::kAbsent;
    if (was != is) add_to(is ? plan.load : plan.unload, all[i]);
  }
  return plan;
}

}  // namespace sluice
