#include "serverless/preload_policy.h"

#include <algorithm>

#include "base/check.h"

namespace sluice {
namespace {

std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }

constexpr double kFree = 1e100;     // the density of a gain that costs nothing
constexpr double kRounding = 1e-8;  // densities that differ by less count as equal

double density_of(double gain, double part) {
  if (!(gain > 0)) return 0;
  return part > 0 ? std::min(gain / part, kFree) : kFree;
}

// Positions 0 .. keys.size() - 1 grouped by key, as offsets and a list.
template <class KeyOf>
void group(std::size_t count, std::size_t groups, const KeyOf& key_of,
           std::vector<std::int32_t>& first, std::vector<std::int32_t>& list) {
  first.assign(groups + 1, 0);
  for (std::size_t i = 0; i < count; ++i) ++first[key_of(i) + 1];
  for (std::size_t g = 0; g < groups; ++g) first[g + 1] += first[g];
  list.resize(count);
  for (std::size_t i = count; i-- > 0;) {
    // Fills each group from its end; the offsets are restored below.
    list[index(--first[key_of(i) + 1])] = static_cast<std::int32_t>(i);
  }
  for (std::size_t g = 0; g < groups; ++g) first[g] = first[g + 1];
  first[groups] = static_cast<std::int32_t>(count);
}

}  // namespace

PreloadPolicy::PreloadPolicy(const Artifacts& artifacts, double keep_bonus)
    : artifacts_(artifacts), keep_bonus_(keep_bonus) {
  const auto& placements = artifacts.placements;
  group(
      placements.size(), index(artifacts.num_artifacts),
      [&](std::size_t i) { return index(placements[i].artifact); }, first_of_artifact_,
      of_artifact_);
  group(
      artifacts.needs.size(), placements.size(),
      [&](std::size_t i) { return index(artifacts.needs[i]); }, first_dependent_, dependents_);
  std::vector<std::int32_t> owners;  // of the needs
  best_possible_.assign(index(artifacts.num_artifacts), 0);
  for (std::size_t i = 0; i < placements.size(); ++i) {
    const Placement& placement = placements[i];
    owners.insert(owners.end(), index(placement.num_needs), static_cast<std::int32_t>(i));
    saved_per_byte_.push_back(density_of(placement.saved_s, static_cast<double>(placement.bytes)));
    double& best = best_possible_[index(placement.artifact)];
    best = std::max(best, placement.saved_s);
  }
  CHECK(owners.size() == artifacts.needs.size());
  for (std::int32_t& dependent : dependents_) dependent = owners[index(dependent)];
}

void PreloadPolicy::prepare(const PreloadView& view) {
  CHECK(view.residency.size() == artifacts_.placements.size());
  CHECK(view.rates.size() == index(artifacts_.num_artifacts));
  CHECK(view.idle_bytes.size() == index(artifacts_.num_memories));
  part_per_byte_.clear();
  for (const std::int64_t idle : view.idle_bytes) {
    part_per_byte_.push_back(1 / static_cast<double>(std::max<std::int64_t>(idle, 1)));
  }
  bound_.assign(view.rates.size(), 0);
  for (std::size_t i = 0; i < artifacts_.placements.size(); ++i) {
    const Placement& placement = artifacts_.placements[i];
    const auto idle =
        static_cast<double>(std::max<std::int64_t>(view.idle_bytes[index(placement.memory)], 1));
    const double bonus = view.residency[i] == Residency::kIdle ? 1 + keep_bonus_ : 1;
    double& bound = bound_[index(placement.artifact)];
    bound = std::max(bound, saved_per_byte_[i] * idle * bonus);
  }
  for (std::size_t a = 0; a < bound_.size(); ++a) {
    // A little more than the density that a bundle computes, whatever the rounding.
    bound_[a] = std::min(bound_[a] * view.rates[a] * (1 + 1e-9), kFree * 2);
  }
}

void PreloadPolicy::push(std::int32_t artifact, double density) {
  key_[index(artifact)] = density;
  heap_.push_back({density, artifact});
  std::push_heap(heap_.begin(), heap_.end());
}

// A run's state before anything is taken: all that is in use.
void PreloadPolicy::start(const PreloadView& view) {
  const auto& placements = artifacts_.placements;
  taken_.assign(placements.size(), 0);
  missing_.resize(placements.size());
  saved_.assign(view.rates.size(), 0);
  left_.assign(view.idle_bytes.begin(), view.idle_bytes.end());
  for (std::size_t i = 0; i < placements.size(); ++i) {
    missing_[i] = 0;
    for (const std::int32_t need : artifacts_.needs_of(placements[i])) {
      missing_[i] += 1 - taken_[index(need)];
    }
    if (view.residency[i] != Residency::kInUse) continue;
    CHECK(missing_[i] == 0);
    taken_[i] = 1;
    double& saved = saved_[index(placements[i].artifact)];
    saved = std::max(saved, placements[i].saved_s);
  }
  key_.assign(view.rates.size(), -1);
  heap_.clear();
  for (std::size_t a = 0; a < view.rates.size(); ++a) {
    if (!(bound_[a] > 0) || saved_[a] >= best_possible_[a]) continue;
    key_[a] = bound_[a];
    heap_.push_back({bound_[a], static_cast<std::int32_t>(a)});
  }
  std::make_heap(heap_.begin(), heap_.end());
}

// The seconds that the i-th member of bundle_ saves beyond what is there and what members before it
// save. Bundles have few members, so pairs are compared: of two placements of one artifact, the
// better one counts.
double PreloadPolicy::saved_by_member(std::size_t i) const {
  const Placement& placement = artifacts_.placements[index(bundle_[i])];
  double before = saved_[index(placement.artifact)];
  for (std::size_t j = 0; j < i; ++j) {
    const Placement& other = artifacts_.placements[index(bundle_[j])];
    if (other.artifact == placement.artifact) before = std::max(before, other.saved_s);
  }
  return std::max(placement.saved_s - before, 0.0);
}

PreloadPolicy::Bundle PreloadPolicy::evaluate(const PreloadView& view, std::int32_t placement) {
  bundle_.clear();
  bundle_.push_back(placement);
  double part = 0;
  double gain = 0;
  bool fits = true;
  bool all_loaded = true;
  std::size_t charged = 0;
  while (fits && charged < bundle_.size()) {
    const std::size_t member = index(bundle_[charged]);
    const Placement& one = artifacts_.placements[member];
    part += static_cast<double>(one.bytes) * part_per_byte_[index(one.memory)];
    gain += view.rates[index(one.artifact)] * saved_by_member(charged);
    std::int64_t& left = left_[index(one.memory)];
    left -= one.bytes;
    fits = left >= 0;
    all_loaded = all_loaded && view.residency[member] == Residency::kIdle;
    ++charged;
    if (missing_[member] == 0) continue;
    for (const std::int32_t need : artifacts_.needs_of(one)) {
      if (taken_[index(need)] != 0) continue;
      if (std::ranges::find(bundle_, need) == bundle_.end()) bundle_.push_back(need);
    }
  }
  for (std::size_t i = 0; i < charged; ++i) {
    const Placement& one = artifacts_.placements[index(bundle_[i])];
    left_[index(one.memory)] += one.bytes;
  }
  if (!fits) return {};
  const double density = density_of(gain, part);
  return {all_loaded ? density * (1 + keep_bonus_) : density, placement};
}

// The same for a placement that needs nothing more.
PreloadPolicy::Bundle PreloadPolicy::evaluate_alone(const PreloadView& view,
                                                    std::int32_t placement) const {
  const Placement& one = artifacts_.placements[index(placement)];
  if (left_[index(one.memory)] < one.bytes) return {};
  const std::size_t artifact = index(one.artifact);
  const double gain = view.rates[artifact] * (one.saved_s - saved_[artifact]);
  const double density =
      density_of(gain, static_cast<double>(one.bytes) * part_per_byte_[index(one.memory)]);
  const bool is_loaded = view.residency[index(placement)] == Residency::kIdle;
  return {is_loaded ? density * (1 + keep_bonus_) : density, placement};
}

// 0: the placement needs nothing more; 1: what it needs itself needs nothing more; 2: else.
int PreloadPolicy::depth_of(std::int32_t placement) const {
  if (missing_[index(placement)] == 0) return 0;
  for (const std::int32_t need : artifacts_.needs_of(artifacts_.placements[index(placement)])) {
    if (taken_[index(need)] == 0 && missing_[index(need)] != 0) return 2;
  }
  return 1;
}

// No bundle is denser than the entry's key, so the search ends where that is reached. Deep bundles,
// such as an instance with its adapter and one more copy of its backbone, cost most time and are
// looked at only where there is nothing else.
PreloadPolicy::Bundle PreloadPolicy::best_of(const PreloadView& view, const Entry& entry) {
  Bundle best;
  for (int depth = 0; depth < 2 || (depth == 2 && !(best.density > 0)); ++depth) {
    for (std::int32_t i = first_of_artifact_[index(entry.artifact)];
         i < first_of_artifact_[index(entry.artifact) + 1]; ++i) {
      const std::int32_t placement = of_artifact_[index(i)];
      if (taken_[index(placement)] != 0 || depth_of(placement) != depth) continue;
      const double saved = artifacts_.placements[index(placement)].saved_s;
      if (saved <= saved_[index(entry.artifact)]) continue;
      const Bundle bundle =
          depth == 0 ? evaluate_alone(view, placement) : evaluate(view, placement);
      if (bundle.density > best.density) best = bundle;
      if (best.density >= entry.density * (1 - kRounding)) return best;
    }
  }
  return best;
}

// Takes all of bundle_, and looks again at the artifacts whose placements need less now.
void PreloadPolicy::take_bundle() {
  for (const std::int32_t member : bundle_) {
    const Placement& placement = artifacts_.placements[index(member)];
    const std::size_t artifact = index(placement.artifact);
    taken_[index(member)] = 1;
    left_[index(placement.memory)] -= placement.bytes;
    saved_[artifact] = std::max(saved_[artifact], placement.saved_s);
  }
  const auto look_again = [&](std::int32_t artifact) {
    const std::size_t a = index(artifact);
    if (saved_[a] < best_possible_[a] && key_[a] < bound_[a]) push(artifact, bound_[a]);
  };
  for (const std::int32_t member : bundle_) {
    look_again(artifacts_.placements[index(member)].artifact);
    for (std::int32_t i = first_dependent_[index(member)]; i < first_dependent_[index(member) + 1];
         ++i) {
      const std::int32_t dependent = dependents_[index(i)];
      --missing_[index(dependent)];
      if (taken_[index(dependent)] != 0) continue;
      look_again(artifacts_.placements[index(dependent)].artifact);
    }
  }
}

// Keys are upper bounds: bound_ is the density without needs, and a bundle's density is at most
// that of its densest member, which has been taken or looked at before. A key that was lowered to a
// bundle's density is raised again when a direct need is taken.
double PreloadPolicy::run_greedy(const PreloadView& view) {
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end());
    const Entry entry = heap_.back();
    heap_.pop_back();
    if (key_[index(entry.artifact)] != entry.density) continue;  // an older entry
    key_[index(entry.artifact)] = -1;
    const Bundle best = best_of(view, entry);
    if (!(best.density > 0)) continue;  // and it will not fit later: less and less is left
    if (!heap_.empty() && best.density < heap_.front().density * (1 - kRounding)) {
      push(entry.artifact, best.density);
      continue;
    }
    evaluate(view, best.placement);  // fills bundle_
    take_bundle();
  }
  double value = 0;
  for (std::size_t a = 0; a < saved_.size(); ++a) value += view.rates[a] * saved_[a];
  return value;
}

double PreloadPolicy::run(const PreloadView& view, std::int32_t first) {
  start(view);
  if (first >= 0) {
    if (taken_[index(first)] != 0 || evaluate(view, first).placement < 0) return -1;
    take_bundle();
  }
  return run_greedy(view);
}

PreloadPlan PreloadPolicy::plan(const PreloadView& view) {
  prepare(view);
  const std::size_t count = artifacts_.placements.size();
  double best = run(view, -1);
  best_taken_ = taken_;
  // A plan that moves something must be worth the move, as a placement must.
  const bool has_idle = std::ranges::find(view.residency, Residency::kIdle) != view.residency.end();
  const double enough = has_idle ? 1 + keep_bonus_ : 1;
  double least = best * enough;
  const std::size_t starts = std::min(count, kEffort / std::max<std::size_t>(count, 1));
  for (std::size_t i = 0; i < starts; ++i) {
    // Spread over all placements if there are more of them than starts.
    const double value = run(view, static_cast<std::int32_t>(i * count / starts));
    if (value <= least) continue;
    best = value;
    least = value;
    best_taken_ = taken_;
  }
  PreloadPlan plan = result(view);
  plan.value = best;
  return plan;
}

PreloadPlan PreloadPolicy::result(const PreloadView& view) {
  const auto& placements = artifacts_.placements;
  left_.assign(view.idle_bytes.begin(), view.idle_bytes.end());
  for (std::size_t i = 0; i < placements.size(); ++i) {
    if (best_taken_[i] == 0 || view.residency[i] == Residency::kInUse) continue;
    left_[index(placements[i].memory)] -= placements[i].bytes;
  }
  PreloadPlan plan;
  for (std::size_t i = 0; i < placements.size(); ++i) {
    const auto position = static_cast<std::int32_t>(i);
    if (view.residency[i] == Residency::kAbsent) {
      if (best_taken_[i] != 0) plan.load.push_back(position);
    } else if (best_taken_[i] == 0) {
      // Loaded and not worth its place: it stays while there is room for it and all that it needs.
      const bool has_needs =
          std::ranges::all_of(artifacts_.needs_of(placements[i]),
                              [&](std::int32_t need) { return best_taken_[index(need)] != 0; });
      std::int64_t& left = left_[index(placements[i].memory)];
      if (has_needs && left >= placements[i].bytes) {
        left -= placements[i].bytes;
        best_taken_[i] = 1;
      } else {
        plan.drop.push_back(position);
      }
    }
  }
  std::ranges::reverse(plan.drop);
  return plan;
}

}  // namespace sluice
