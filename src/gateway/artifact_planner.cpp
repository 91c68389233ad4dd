#include "gateway/artifact_planner.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <tuple>
#include <utility>

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
  for (const auto& [f, use] : state.instances) {
    const Function& function = functions_[index(f)];
    const double rate = function.arrivals ? function.arrivals->expected_rate(now, kHorizon) : 0;
    items.push_back({Kind::kInstance, f, function.backbone, use, rate, Residency::kIdle});
  }
  for (std::int32_t f = 0; f < std::ssize(functions_); ++f) {
    const Function& function = functions_[index(f)];
    if (!function.arrivals) continue;
    const double rate = function.arrivals->expected_rate(now, kHorizon);
    const double cold_rate = rate * cold_share(*function.arrivals, rate, function.idle);
    items[index(function.backbone)].rate += rate;
    cold[index(function.backbone)] += cold_rate;
    const auto adapter = state.adapters.find(f);
    if (adapter == state.adapters.end()) continue;
    items.push_back({state.copies ? Kind::kCopy : Kind::kAdapter, f,
                     state.copies ? function.backbone : -1, adapter->second.use, cold_rate,
                     adapter->second.residency});
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
    case Kind::kAdapter:
    case Kind::kCopy: return set.adapters.push_back(item.number);
    case Kind::kInstance: return set.instances.push_back(item.number);
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

// Positions of items that leave so that `bytes` become free; absent if they do not free enough.
std::optional<std::vector<std::int32_t>> ArtifactPlanner::leave(const std::vector<Item>& items,
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
  if (!plan) return std::nullopt;
  std::vector<std::int32_t> leave;
  for (const OffloadMove& move : plan->moves) leave.push_back(positions[index(move.item)]);
  return leave;
}

std::optional<ArtifactPlan::Set> ArtifactPlanner::make_room(TimePoint now,
                                                            const ArtifactState& state,
                                                            std::int64_t bytes) {
  const std::vector<Item> all = items(now, state);
  const auto leaving = leave(all, bytes);
  if (!leaving) return std::nullopt;
  ArtifactPlan::Set set;
  for (const std::int32_t i : *leaving) add_to(set, all[index(i)]);
  return set;
}

void ArtifactPlanner::fit(const MachineArtifacts& machine, std::vector<Item>& items) {
  const std::int64_t idle = idle_bytes(machine.state);
  if (idle <= machine.idle_bytes) return;
  const auto leaving = leave(items, idle - machine.idle_bytes);
  if (!leaving) return;
  for (const std::int32_t i : *leaving) items[index(i)].residency = Residency::kAbsent;
}

namespace {

// Numbers of artifacts. The same one has the same number on each machine; `machine`: of one that
// spares the same to no call elsewhere, else -1.
class ArtifactNumbers {
 public:
  std::int32_t of(int kind, std::int32_t number, std::int32_t machine) {
    const auto next = static_cast<std::int32_t>(numbers_.size());
    return numbers_.try_emplace({kind, number, machine}, next).first->second;
  }
  std::int32_t size() const { return static_cast<std::int32_t>(numbers_.size()); }

 private:
  std::map<std::tuple<int, std::int32_t, std::int32_t>, std::int32_t> numbers_;
};

}  // namespace

std::vector<ArtifactPlan> ArtifactPlanner::plan(TimePoint now,
                                                std::span<const MachineArtifacts> machines) {
  const auto takers = std::ranges::count_if(machines, &MachineArtifacts::takes);
  const bool any_takes = takers > 0;
  const auto starters = static_cast<double>(any_takes ? takers : std::ssize(machines));
  std::vector<std::vector<Item>> all;
  std::vector<std::vector<Residency>> before;
  Artifacts artifacts;
  artifacts.num_memories = static_cast<std::int32_t>(machines.size());
  ArtifactNumbers numbers;
  std::vector<Item*> placed;  // of each placement
  std::vector<Residency> residency;
  std::vector<double> rates;
  std::vector<std::int64_t> memory;
  all.reserve(machines.size());
  for (const MachineArtifacts& machine : machines) {
    std::vector<Item>& here = all.emplace_back(items(now, machine.state));
    before.emplace_back();
    for (const Item& item : here) before.back().push_back(item.residency);
    fit(machine, here);
    std::vector<std::int32_t> placement_of(here.size(), -1);
    for (std::size_t i = 0; i < here.size(); ++i) {
      Item& item = here[i];
      const bool is_absent = item.residency == Residency::kAbsent;
      // A call that starts elsewhere is spared nothing by what is here, except for its adapter.
      const bool spares = !any_takes || machine.takes || item.kind == Kind::kAdapter;
      if (is_absent && !spares) continue;
      const std::int32_t need = item.needs < 0 ? -1 : placement_of[index(item.needs)];
      if (item.needs >= 0 && need < 0) continue;
      const bool is_backbone = item.kind == Kind::kBackbone;
      if (is_backbone && !machine.state.possible.empty() &&
          !machine.state.possible[index(item.number)]) {
        continue;
      }
      const auto where = static_cast<std::int32_t>(all.size()) - 1;
      const bool is_copy = item.kind == Kind::kCopy;
      const std::int32_t number =
          numbers.of(static_cast<int>(item.kind), item.number, is_copy ? where : -1);
      rates.resize(index(numbers.size()));
      rates[index(number)] = is_copy ? item.rate / starters : item.rate;
      const double saves = spares ? to_seconds(item.use.saves) : 0;
      placement_of[i] = need < 0 ? artifacts.add(number, where, item.use.bytes, saves)
                                 : artifacts.add(number, where, item.use.bytes, saves, {need});
      placed.push_back(&item);
      residency.push_back(item.residency);
    }
    memory.push_back(std::max<std::int64_t>(machine.idle_bytes, 0));
  }
  artifacts.num_artifacts = numbers.size();
  PreloadPolicy preload(artifacts);
  const PreloadPlan chosen =
      preload.plan({.residency = residency, .rates = rates, .idle_bytes = memory});
  for (const std::int32_t i : chosen.load) placed[index(i)]->residency = Residency::kIdle;
  for (const std::int32_t i : chosen.drop) placed[index(i)]->residency = Residency::kAbsent;
  std::vector<ArtifactPlan> plans(machines.size());
  for (std::size_t m = 0; m < machines.size(); ++m) {
    for (std::size_t i = 0; i < all[m].size(); ++i) {
      const bool was = before[m][i] != Residency::kAbsent;
      const bool is = all[m][i].residency != Residency::kAbsent;
      if (was != is) add_to(is ? plans[m].load : plans[m].unload, all[m][i]);
    }
  }
  return plans;
}

}  // namespace sluice
