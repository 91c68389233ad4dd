#include "function_sim/function_cluster.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace sluice {
namespace {

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

}  // namespace

FunctionCluster::FunctionCluster(const CatalogSpec& spec, std::vector<std::int64_t> capacity)
    : catalog_(spec), capacity_(std::move(capacity)), preload_(catalog_.artifacts()) {
  const Artifacts& artifacts = catalog_.artifacts();
  CHECK(std::ssize(capacity_) == artifacts.num_memories);
  const auto count = static_cast<std::int32_t>(artifacts.placements.size());
  states_.resize(at(count));
  used_.resize(capacity_.size());
  in_use_.resize(capacity_.size());
  in_.resize(capacity_.size());
  needed_by_.resize(at(count));
  host_copy_.assign(at(artifacts.num_artifacts), -1);
  rates_.resize(at(artifacts.num_artifacts));
  for (std::int32_t p = 0; p < count; ++p) {
    in_[at(placement(p).memory)].push_back(p);
    if (placement(p).memory < spec.hosts) host_copy_[at(placement(p).artifact)] = p;
    for (const std::int32_t need : artifacts.needs_of(placement(p))) {
      needed_by_[at(need)].push_back(p);
    }
  }
  for (std::int32_t f = 0; f < std::ssize(spec.functions); ++f) {
    for (std::int32_t place = 0; place < places(); ++place) {
      add_closure(catalog_.instance(f, place), closures_.emplace_back());
    }
  }
}

// Each behind all that it needs.
void FunctionCluster::add_closure(std::int32_t p, std::vector<std::int32_t>& closure) const {
  if (std::ranges::find(closure, p) != closure.end()) return;
  for (const std::int32_t need : catalog_.artifacts().needs_of(placement(p))) {
    add_closure(need, closure);
  }
  closure.push_back(p);
}

const std::vector<std::int32_t>& FunctionCluster::closure(std::int32_t function,
                                                          std::int32_t place) const {
  return closures_[at(function) * catalog_.places().size() + at(place)];
}

double FunctionCluster::load_seconds(std::int32_t p) const {
  const std::int32_t copy = host_copy_[at(placement(p).artifact)];
  const bool spared = copy >= 0 && copy != p && state(copy).loaded;
  return std::max(0.0, placement(p).saved_s - (spared ? placement(copy).saved_s : 0));
}

TimePoint FunctionCluster::plan_start(std::int32_t function, std::int32_t place, TimePoint now,
                                      FunctionRef<void(std::int32_t, TimePoint)> visit) const {
  TimePoint ready = now;
  for (const std::int32_t p : closure(function, place)) {
    if (state(p).loaded) ready = std::max(ready, state(p).ready_at);
  }
  for (const std::int32_t p : closure(function, place)) {
    if (state(p).loaded) continue;
    ready = ready + from_seconds(load_seconds(p));
    visit(p, ready);
  }
  return ready;
}

Duration FunctionCluster::start_delay(std::int32_t function, std::int32_t place,
                                      TimePoint now) const {
  return plan_start(function, place, now, [](std::int32_t, TimePoint) {}) - now;
}

StartParts FunctionCluster::start_parts(std::int32_t function, std::int32_t place) const {
  StartParts parts;
  for (const std::int32_t p : closure(function, place)) {
    if (state(p).loaded) continue;
    switch (catalog_.kind(placement(p).artifact)) {
      case ArtifactKind::kWorker: parts.libraries += load_seconds(p); break;
      case ArtifactKind::kBackbone:
      case ArtifactKind::kBackbonePages: parts.backbone += load_seconds(p); break;
      case ArtifactKind::kAdapter: parts.adapter += load_seconds(p); break;
      case ArtifactKind::kKernels:
      case ArtifactKind::kInstance: parts.kernels += load_seconds(p); break;
    }
  }
  return parts;
}

std::int64_t FunctionCluster::idle_bytes(std::int32_t memory) const {
  return used_[at(memory)] - in_use_[at(memory)];
}

std::int64_t FunctionCluster::free_bytes(std::int32_t place) const {
  const std::int32_t memory = catalog_.places()[at(place)];
  return capacity_[at(memory)] - used_[at(memory)];
}

std::int64_t FunctionCluster::missing_bytes(std::int32_t function, std::int32_t place) const {
  std::int64_t bytes = 0;
  for (const std::int32_t p : closure(function, place)) {
    const bool is_there = state(p).loaded || placement(p).memory != catalog_.places()[at(place)];
    bytes += is_there ? 0 : placement(p).bytes;
  }
  return bytes;
}

bool FunctionCluster::fits(std::int32_t function, std::int32_t place) const {
  std::vector<std::int64_t> more(capacity_.size());
  // Idle artifacts that it needs become used too.
  for (const std::int32_t p : closure(function, place)) {
    if (state(p).users == 0) more[at(placement(p).memory)] += placement(p).bytes;
  }
  for (std::size_t m = 0; m < more.size(); ++m) {
    if (more[m] > capacity_[m] - in_use_[m]) return false;
  }
  return true;
}

void FunctionCluster::load(std::int32_t p, TimePoint ready_at) {
  CHECK(!state(p).loaded);
  state(p).loaded = true;
  state(p).ready_at = ready_at;
  used_[at(placement(p).memory)] += placement(p).bytes;
}

// With all that needs it.
void FunctionCluster::drop(std::int32_t p) {
  if (!state(p).loaded) return;
  CHECK(state(p).users == 0);
  for (const std::int32_t dependent : needed_by_[at(p)]) drop(dependent);
  state(p).loaded = false;
  used_[at(placement(p).memory)] -= placement(p).bytes;
}

double FunctionCluster::value(std::int32_t p) const {
  return rates_[at(placement(p).artifact)] * load_seconds(p);
}

void FunctionCluster::make_room(std::int32_t memory, std::int64_t bytes) {
  const std::int64_t missing = used_[at(memory)] + bytes - capacity_[at(memory)];
  if (missing <= 0) return;
  std::vector<OffloadItem> items;
  std::vector<std::int32_t> placements;
  std::vector<std::int32_t> item_of(states_.size(), -1);
  for (const std::int32_t p : in_[at(memory)]) {
    if (!state(p).loaded) continue;
    OffloadItem item;
    item.bytes = placement(p).bytes;
    item.value = value(p);
    item.in_use = state(p).users > 0;
    // The last need is the nearest: an adapter stands behind the kernels, and needs the weights.
    for (const std::int32_t need : catalog_.artifacts().needs_of(placement(p))) {
      if (placement(need).memory == memory) item.needs = item_of[at(need)];
    }
    item_of[at(p)] = static_cast<std::int32_t>(items.size());
    items.push_back(item);
    placements.push_back(p);
  }
  const auto plan = offload_.plan({.items = items, .bytes_needed = missing});
  CHECK(plan.has_value());
  for (const OffloadMove& move : plan->moves) drop(placements[at(move.item)]);
  ++offloads_;
}

TimePoint FunctionCluster::start(std::int32_t function, std::int32_t place, TimePoint now) {
  // Before room is made, which may drop a copy in host memory that spares a read.
  std::vector<std::pair<std::int32_t, TimePoint>> loads;
  const TimePoint ready = plan_start(function, place, now, [&](std::int32_t p, TimePoint ready_at) {
    loads.emplace_back(p, ready_at);
  });
  std::vector<std::int64_t> more(capacity_.size());
  // In use before room is made, so that it does not leave itself.
  for (const std::int32_t p : closure(function, place)) {
    const Placement& one = placement(p);
    if (state(p).users++ == 0 && state(p).loaded) in_use_[at(one.memory)] += one.bytes;
    if (!state(p).loaded) more[at(one.memory)] += one.bytes;
  }
  for (std::int32_t m = 0; m < std::ssize(more); ++m) {
    if (more[at(m)] > 0) make_room(m, more[at(m)]);
  }
  for (const auto& [p, ready_at] : loads) {
    load(p, ready_at);
    in_use_[at(placement(p).memory)] += placement(p).bytes;
  }
  return ready;
}

void FunctionCluster::end(std::int32_t function, std::int32_t place, Keeps keeps) {
  const std::vector<std::int32_t>& used = closure(function, place);
  for (const std::int32_t p : used) {
    CHECK(state(p).users > 0);
    if (--state(p).users == 0) in_use_[at(placement(p).memory)] -= placement(p).bytes;
  }
  if (keeps == Keeps::kAll) return;
  const std::int32_t memory = catalog_.places()[at(place)];
  for (std::size_t i = used.size(); i-- > 0;) {
    const std::int32_t p = used[i];
    const bool process = catalog_.kind(placement(p).artifact) == ArtifactKind::kInstance;
    if (keeps == Keeps::kAllButProcess && !process) continue;
    if (placement(p).memory == memory && state(p).users == 0) drop(p);
  }
}

void FunctionCluster::set_rates(std::span<const double> function_rates) {
  rates_ = catalog_.rates(function_rates);
}

void FunctionCluster::preload(TimePoint now, std::span<const ArtifactKind> kinds) {
  std::vector<double> rates = rates_;
  for (std::int32_t a = 0; a < std::ssize(rates); ++a) {
    if (std::ranges::find(kinds, catalog_.kind(a)) == kinds.end()) rates[at(a)] = 0;
  }
  std::vector<Residency> residency;
  for (const State& one : states_) {
    residency.push_back(!one.loaded     ? Residency::kAbsent
                        : one.users > 0 ? Residency::kInUse
                                        : Residency::kIdle);
  }
  std::vector<std::int64_t> idle;
  for (std::size_t m = 0; m < capacity_.size(); ++m) idle.push_back(capacity_[m] - in_use_[m]);
  const PreloadPlan plan =
      preload_.plan({.residency = residency, .rates = rates, .idle_bytes = idle});
  for (const std::int32_t p : plan.drop) drop(p);
  for (const std::int32_t p : plan.load) {
    TimePoint since = now;
    for (const std::int32_t need : catalog_.artifacts().needs_of(placement(p))) {
      since = std::max(since, state(need).ready_at);
    }
    load(p, since + from_seconds(load_seconds(p)));
    ++loads_;
  }
}

void FunctionCluster::check_integrity() const {
  std::vector<std::int64_t> used(capacity_.size());
  std::vector<std::int64_t> in_use(capacity_.size());
  for (std::int32_t p = 0; p < std::ssize(states_); ++p) {
    if (!state(p).loaded) {
      CHECK(state(p).users == 0);
      continue;
    }
    used[at(placement(p).memory)] += placement(p).bytes;
    if (state(p).users > 0) in_use[at(placement(p).memory)] += placement(p).bytes;
    for (const std::int32_t need : catalog_.artifacts().needs_of(placement(p))) {
      CHECK(state(need).loaded && state(need).users >= 0);
    }
  }
  for (std::size_t m = 0; m < capacity_.size(); ++m) {
    CHECK(used[m] == used_[m] && in_use[m] == in_use_[m] && used[m] <= capacity_[m]);
  }
}

}  // namespace sluice
