#include "serverless/preload_policy.h"

#include <algorithm>
#include <array>

#include "base/check.h"

namespace sluice {
namespace {

std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }

constexpr double kFree = 1e100;  // the density of a gain that costs nothing
constexpr double kNoChain = -2;
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
      position_of_);
  slot_of_.resize(placements.size());
  for (std::size_t s = 0; s < position_of_.size(); ++s) {
    slot_of_[index(position_of_[s])] = static_cast<std::int32_t>(s);
  }
  std::vector<std::int32_t> owners;  // of needs_
  best_possible_.assign(index(artifacts.num_artifacts), 0);
  for (std::size_t s = 0; s < placements.size(); ++s) {
    const Placement& placement = placements[index(position_of_[s])];
    slots_.push_back({placement.saved_s, placement.bytes, placement.memory, placement.artifact,
                      static_cast<std::int32_t>(needs_.size()), placement.num_needs});
    Needs missing{placement.num_needs, 0};
    for (const std::int32_t need : artifacts.needs_of(placement)) {
      needs_.push_back(slot_of_[index(need)]);
      owners.push_back(static_cast<std::int32_t>(s));
      if (placements[index(need)].num_needs > 0) ++missing.deep;
    }
    needs_at_start_.push_back(missing);
    saved_per_byte_.push_back(density_of(placement.saved_s, static_cast<double>(placement.bytes)));
    double& best = best_possible_[index(placement.artifact)];
    best = std::max(best, placement.saved_s);
  }
  CHECK(needs_.size() == artifacts.needs.size());
  group(
      needs_.size(), placements.size(), [&](std::size_t i) { return index(needs_[i]); },
      first_dependent_, dependents_);
  for (std::int32_t& dependent : dependents_) dependent = owners[index(dependent)];
}

std::span<const std::int32_t> PreloadPolicy::needs_of(std::int32_t slot) const {
  const Slot& one = slots_[index(slot)];
  return std::span(needs_).subspan(index(one.first_need), index(one.num_needs));
}

std::span<const std::int32_t> PreloadPolicy::dependents_of(std::int32_t slot) const {
  const std::int32_t first = first_dependent_[index(slot)];
  return std::span(dependents_)
      .subspan(index(first), index(first_dependent_[index(slot) + 1] - first));
}

void PreloadPolicy::prepare(const PreloadView& view) {
  CHECK(view.residency.size() == slots_.size());
  CHECK(view.rates.size() == index(artifacts_.num_artifacts));
  CHECK(view.idle_bytes.size() == index(artifacts_.num_memories));
  memory_bytes_.clear();
  part_per_byte_.clear();
  for (const std::int64_t idle : view.idle_bytes) {
    memory_bytes_.push_back(static_cast<double>(std::max<std::int64_t>(idle, 1)));
    part_per_byte_.push_back(1 / memory_bytes_.back());
  }
  bound_.assign(view.rates.size(), 0);
  for (std::size_t a = 0; a < bound_.size(); ++a) {
    double bound = 0;
    for (std::size_t s = index(first_of_artifact_[a]); s < index(first_of_artifact_[a + 1]); ++s) {
      bound = std::max(bound, saved_per_byte_[s] * memory_bytes_[index(slots_[s].memory)]);
    }
    bound_[a] = bound;
  }
  idle_.clear();
  in_use_.clear();
  is_idle_.assign(slots_.size(), 0);
  for (std::size_t i = 0; i < view.residency.size(); ++i) {
    if (view.residency[i] == Residency::kAbsent) continue;
    const std::int32_t slot = slot_of_[i];
    if (view.residency[i] == Residency::kInUse) {
      in_use_.push_back(slot);
      continue;
    }
    idle_.push_back(slot);
    is_idle_[index(slot)] = 1;
    const Slot& one = slots_[index(slot)];
    double& bound = bound_[index(one.artifact)];
    bound = std::max(
        bound, saved_per_byte_[index(slot)] * memory_bytes_[index(one.memory)] * (1 + keep_bonus_));
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

// Placements that need this one miss less now, and those that need them may become less deep.
void PreloadPolicy::mark_taken(std::int32_t slot) {
  taken_[index(slot)] = 1;
  const bool was_deep = missing_[index(slot)].missing != 0;
  for (const std::int32_t dependent : dependents_of(slot)) {
    Needs& needs = missing_[index(dependent)];
    --needs.missing;
    if (was_deep) --needs.deep;
    if (needs.missing != 0 || taken_[index(dependent)] != 0) continue;
    for (const std::int32_t next : dependents_of(dependent)) --missing_[index(next)].deep;
  }
}

// A run's state before anything is taken: all that is in use.
void PreloadPolicy::start(const PreloadView& view) {
  taken_.assign(slots_.size(), 0);
  taken_order_.clear();
  missing_ = needs_at_start_;
  saved_.assign(view.rates.size(), 0);
  left_.assign(view.idle_bytes.begin(), view.idle_bytes.end());
  for (const std::int32_t slot : in_use_) {
    CHECK(missing_[index(slot)].missing == 0);
    mark_taken(slot);
    double& saved = saved_[index(slots_[index(slot)].artifact)];
    saved = std::max(saved, slots_[index(slot)].saved_s);
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
  const Slot& one = slots_[index(bundle_[i])];
  double before = saved_[index(one.artifact)];
  for (std::size_t j = 0; j < i; ++j) {
    const Slot& other = slots_[index(bundle_[j])];
    if (other.artifact == one.artifact) before = std::max(before, other.saved_s);
  }
  return std::max(one.saved_s - before, 0.0);
}

PreloadPolicy::Bundle PreloadPolicy::evaluate(const PreloadView& view, std::int32_t slot) {
  bundle_.clear();
  bundle_.push_back(slot);
  double part = 0;
  double gain = 0;
  bool fits = true;
  bool all_loaded = true;
  std::size_t charged = 0;
  while (fits && charged < bundle_.size()) {
    const std::int32_t member = bundle_[charged];
    const Slot& one = slots_[index(member)];
    part += static_cast<double>(one.bytes) * part_per_byte_[index(one.memory)];
    gain += view.rates[index(one.artifact)] * saved_by_member(charged);
    std::int64_t& left = left_[index(one.memory)];
    left -= one.bytes;
    fits = left >= 0;
    all_loaded = all_loaded && is_idle_[index(member)] != 0;
    ++charged;
    if (missing_[index(member)].missing == 0) continue;
    for (const std::int32_t need : needs_of(member)) {
      if (taken_[index(need)] != 0) continue;
      if (std::ranges::find(bundle_, need) == bundle_.end()) bundle_.push_back(need);
    }
  }
  for (std::size_t i = 0; i < charged; ++i) {
    const Slot& one = slots_[index(bundle_[i])];
    left_[index(one.memory)] += one.bytes;
  }
  if (!fits) return {};
  const double density = density_of(gain, part);
  return {all_loaded ? density * (1 + keep_bonus_) : density, slot};
}

// The same for one that needs exactly one more, which in turn needs exactly one more, and so on.
// Most placements are such; kNoChain: this one is not.
PreloadPolicy::Bundle PreloadPolicy::evaluate_chain(const PreloadView& view,
                                                    std::int32_t slot) const {
  constexpr std::size_t kLongest = 4;
  std::array<const Slot*, kLongest> chain{};
  std::size_t length = 0;
  double part = 0;
  double gain = 0;
  bool all_loaded = true;
  for (std::int32_t member = slot;;) {
    const std::int32_t missing = missing_[index(member)].missing;
    if (length == kLongest || missing > 1) return {kNoChain, slot};
    const Slot& one = slots_[index(member)];
    std::int64_t bytes = one.bytes;
    for (std::size_t i = 0; i < length; ++i) {
      if (chain[i]->artifact == one.artifact) return {kNoChain, slot};
      if (chain[i]->memory == one.memory) bytes += chain[i]->bytes;
    }
    if (left_[index(one.memory)] < bytes) return {};
    chain[length++] = &one;
    part += static_cast<double>(one.bytes) * part_per_byte_[index(one.memory)];
    gain +=
        view.rates[index(one.artifact)] * std::max(one.saved_s - saved_[index(one.artifact)], 0.0);
    all_loaded = all_loaded && is_idle_[index(member)] != 0;
    if (missing == 0) break;
    const std::int32_t* need = &needs_[index(one.first_need)];
    while (taken_[index(*need)] != 0) ++need;
    member = *need;
  }
  const double density = density_of(gain, part);
  return {all_loaded ? density * (1 + keep_bonus_) : density, slot};
}

// 0: the placement needs nothing more; 1: what it needs itself needs nothing more; 2: else.
int PreloadPolicy::depth_of(std::int32_t slot) const {
  const Needs& needs = missing_[index(slot)];
  if (needs.missing == 0) return 0;
  return needs.deep == 0 ? 1 : 2;
}

PreloadPolicy::Bundle PreloadPolicy::evaluate_at(const PreloadView& view, std::int32_t slot) {
  const Bundle chain = evaluate_chain(view, slot);
  return chain.density == kNoChain ? evaluate(view, slot) : chain;
}

// No bundle is denser than the entry's key, so the search ends where that is reached. Deep bundles,
// such as an instance with its adapter and one more copy of its backbone, cost most time and are
// looked at only where there is nothing else.
PreloadPolicy::Bundle PreloadPolicy::best_of(const PreloadView& view, const Entry& entry) {
  Bundle best;
  const double enough = entry.density * (1 - kRounding);
  const double saved = saved_[index(entry.artifact)];
  for (std::vector<std::int32_t>& slots : by_depth_) slots.clear();
  for (std::int32_t slot = first_of_artifact_[index(entry.artifact)];
       slot < first_of_artifact_[index(entry.artifact) + 1]; ++slot) {
    if (taken_[index(slot)] != 0 || slots_[index(slot)].saved_s <= saved) continue;
    const int depth = depth_of(slot);
    if (depth > 0) {
      by_depth_[static_cast<std::size_t>(depth - 1)].push_back(slot);
      continue;
    }
    const Bundle bundle = evaluate_at(view, slot);
    if (bundle.density > best.density) best = bundle;
    if (best.density >= enough) return best;
  }
  for (const std::vector<std::int32_t>& slots : by_depth_) {
    const Bundle deeper = best_of_slots(view, slots, enough);
    if (deeper.density > best.density) best = deeper;
    if (best.density > 0) break;
  }
  return best;
}

// With many placements, the first one that fits and is not loaded stands for the others that are
// not loaded: they differ by the sizes of their memories only.
PreloadPolicy::Bundle PreloadPolicy::best_of_slots(const PreloadView& view,
                                                   std::span<const std::int32_t> slots,
                                                   double enough) {
  Bundle best;
  bool found = false;
  for (const std::int32_t slot : slots) {
    if (found && is_idle_[index(slot)] == 0) continue;
    const Bundle bundle = evaluate_at(view, slot);
    if (bundle.density > best.density) best = bundle;
    if (best.density >= enough) break;
    found =
        found || (slots.size() > kFewPlacements && bundle.slot >= 0 && is_idle_[index(slot)] == 0);
  }
  return best;
}

// Raises the key of a placement's artifact to what the placement is worth now.
void PreloadPolicy::look_again(const PreloadView& view, std::int32_t slot) {
  const std::size_t a = index(slots_[index(slot)].artifact);
  if (taken_[index(slot)] != 0 || slots_[index(slot)].saved_s <= saved_[a]) return;
  const double density = evaluate_at(view, slot).density;
  if (density > 0 && key_[a] < density) push(static_cast<std::int32_t>(a), density);
}

// Takes all of bundle_, and looks again at the placements that need less now.
void PreloadPolicy::take_bundle(const PreloadView& view) {
  const std::size_t first = taken_order_.size();
  for (const std::int32_t member : bundle_) {
    const Slot& one = slots_[index(member)];
    mark_taken(member);
    taken_order_.push_back(member);
    left_[index(one.memory)] -= one.bytes;
    double& saved = saved_[index(one.artifact)];
    saved = std::max(saved, one.saved_s);
  }
  // evaluate() changes bundle_.
  for (std::size_t i = first; i < taken_order_.size(); ++i) {
    const std::int32_t member = taken_order_[i];
    const std::int32_t artifact = slots_[index(member)].artifact;
    if (saved_[index(artifact)] < best_possible_[index(artifact)] &&
        key_[index(artifact)] < bound_[index(artifact)]) {
      push(artifact, bound_[index(artifact)]);
    }
    for (const std::int32_t dependent : dependents_of(member)) look_again(view, dependent);
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
    evaluate(view, best.slot);  // fills bundle_
    take_bundle(view);
  }
  double value = 0;
  for (std::size_t a = 0; a < saved_.size(); ++a) value += view.rates[a] * saved_[a];
  return value;
}

double PreloadPolicy::run(const PreloadView& view, std::int32_t first) {
  start(view);
  if (first >= 0) {
    if (taken_[index(first)] != 0 || evaluate(view, first).slot < 0) return -1;
    take_bundle(view);
  }
  return run_greedy(view);
}

PreloadPlan PreloadPolicy::plan(const PreloadView& view) {
  prepare(view);
  const std::size_t count = slots_.size();
  double best = run(view, -1);
  best_taken_ = taken_;
  best_order_ = taken_order_;
  // A plan that moves something must be worth the move, as a placement must.
  const double enough = idle_.empty() ? 1 : 1 + keep_bonus_;
  double least = best * enough;
  const std::size_t starts = std::min(count, kEffort / std::max<std::size_t>(count, 1));
  for (std::size_t i = 0; i < starts; ++i) {
    // Spread over all placements if there are more of them than starts.
    const double value = run(view, slot_of_[i * count / starts]);
    if (value <= least) continue;
    best = value;
    least = value;
    best_taken_ = taken_;
    best_order_ = taken_order_;
  }
  PreloadPlan plan = result(view);
  plan.value = best;
  return plan;
}

PreloadPlan PreloadPolicy::result(const PreloadView& view) {
  left_.assign(view.idle_bytes.begin(), view.idle_bytes.end());
  PreloadPlan plan;
  for (const std::int32_t slot : best_order_) {
    left_[index(slots_[index(slot)].memory)] -= slots_[index(slot)].bytes;
    if (is_idle_[index(slot)] == 0) plan.load.push_back(position_of_[index(slot)]);
  }
  std::ranges::sort(plan.load);
  for (const std::int32_t slot : idle_) {
    if (best_taken_[index(slot)] != 0) continue;
    // Loaded and not worth its place: it stays while there is room for it and all that it needs.
    const bool has_needs = std::ranges::all_of(
        needs_of(slot), [&](std::int32_t need) { return best_taken_[index(need)] != 0; });
    std::int64_t& left = left_[index(slots_[index(slot)].memory)];
    if (has_needs && left >= slots_[index(slot)].bytes) {
      left -= slots_[index(slot)].bytes;
      best_taken_[index(slot)] = 1;
    } else {
      plan.drop.push_back(position_of_[index(slot)]);
    }
  }
  std::ranges::reverse(plan.drop);
  return plan;
}

}  // namespace sluice
