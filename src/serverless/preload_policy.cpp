#include "serverless/preload_policy.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"

namespace sluice {
namespace {

std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }

constexpr double kFree = 1e100;     // the density of a gain that costs nothing
constexpr double kRounding = 1e-8;  // densities that differ by less count as equal
constexpr std::size_t kWordBits = 64;

double density_of(double gain, double part) {
  if (!(gain > 0)) return 0;
  return part > 0 ? std::min(gain / part, kFree) : kFree;
}

}  // namespace

// Positions of `keys`, grouped by key.
PreloadPolicy::Groups PreloadPolicy::group(std::span<const std::int32_t> keys,
                                           std::int32_t num_groups) {
  Groups groups;
  groups.first.assign(index(num_groups) + 1, 0);
  for (const std::int32_t key : keys) ++groups.first[index(key) + 1];
  for (std::size_t g = 1; g < groups.first.size(); ++g) groups.first[g] += groups.first[g - 1];
  groups.list.resize(keys.size());
  std::vector<std::int32_t> next = groups.first;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    groups.list[index(next[index(keys[i])]++)] = static_cast<std::int32_t>(i);
  }
  return groups;
}

PreloadPolicy::PreloadPolicy(const Artifacts& artifacts, double keep_bonus)
    : artifacts_(artifacts), keep_bonus_(keep_bonus) {
  const auto num_placements = static_cast<std::int32_t>(artifacts.placements.size());
  std::vector<std::int32_t> artifact_of;
  std::vector<std::int32_t> owner_of(artifacts.needs.size());  // of each need
  most_saved_.assign(index(artifacts.num_artifacts), 0);
  for (std::int32_t p = 0; p < num_placements; ++p) {
    const Placement& one = placement(p);
    std::fill_n(owner_of.begin() + one.first_need, one.num_needs, p);
    artifact_of.push_back(one.artifact);
    num_needs_.push_back(one.num_needs);
    if (one.num_needs == 0) roots_.push_back(p);
    double& most = most_saved_[index(one.artifact)];
    most = std::max(most, one.saved_s);
  }
  placements_of_ = group(artifact_of, artifacts.num_artifacts);
  dependents_of_ = group(artifacts.needs, num_placements);
  for (std::int32_t& dependent : dependents_of_.list) dependent = owner_of[index(dependent)];
  for (std::int32_t a = 0; a < artifacts.num_artifacts; ++a) {
    const auto first = std::ssize(needs_of_artifact_.list);
    needs_of_artifact_.first.push_back(static_cast<std::int32_t>(first));
    for (const std::int32_t p : placements_of_.of(a)) {
      for (const std::int32_t need : needs_of(p)) {
        const auto known =
            std::span(needs_of_artifact_.list).subspan(static_cast<std::size_t>(first));
        const std::int32_t needed = artifact_of[index(need)];
        if (std::ranges::find(known, needed) == known.end())
          needs_of_artifact_.list.push_back(needed);
      }
    }
    add_copies(a);
    order_.push_back(a);
  }
  needs_of_artifact_.first.push_back(static_cast<std::int32_t>(needs_of_artifact_.list.size()));
  rank_ = order_;
  on_path_.assign(order_.size(), 0);
}

void PreloadPolicy::add_copies(std::int32_t artifact) {
  std::vector<std::int32_t> placements(placements_of_.of(artifact).begin(),
                                       placements_of_.of(artifact).end());
  const auto key = [&](std::int32_t p) {
    return std::pair(placement(p).bytes, placement(p).saved_s);
  };
  std::ranges::stable_sort(placements, {}, key);
  for (std::size_t i = 0; i < placements.size(); ++i) {
    const Placement& one = placement(placements[i]);
    const auto bytes = static_cast<double>(one.bytes);
    if (i == 0 || key(placements[i]) != key(placements[i - 1])) {
      copies_.push_back({density_of(one.saved_s, bytes), bytes, artifact, 0});
    }
    memory_of_copy_.push_back(one.memory);
    copies_.back().end = static_cast<std::int32_t>(memory_of_copy_.size());
  }
}

bool PreloadPolicy::is_idle(const PreloadView& view, std::int32_t p) const {
  return view.residency[index(p)] == Residency::kIdle;
}

void PreloadPolicy::prepare(const PreloadView& view) {
  CHECK(view.residency.size() == artifacts_.placements.size());
  CHECK(view.rates.size() == index(artifacts_.num_artifacts));
  CHECK(view.idle_bytes.size() == index(artifacts_.num_memories));
  std::vector<double> memory_bytes;
  part_per_byte_.clear();
  for (const std::int64_t idle : view.idle_bytes) {
    memory_bytes.push_back(static_cast<double>(std::max<std::int64_t>(idle, 1)));
    part_per_byte_.push_back(1 / memory_bytes.back());
  }
  idle_.clear();
  in_use_.clear();
  for (std::int32_t p = 0; p < std::ssize(view.residency); ++p) {
    if (view.residency[index(p)] == Residency::kIdle) idle_.push_back(p);
    if (view.residency[index(p)] == Residency::kInUse) in_use_.push_back(p);
  }
  bound_.assign(view.rates.size(), 0);
  least_part_.assign(view.rates.size(), kFree);
  std::size_t begin = 0;
  for (const Copies& copies : copies_) {
    double memory = 0;  // the largest one
    for (std::size_t i = begin; i < index(copies.end); ++i) {
      memory = std::max(memory, memory_bytes[index(memory_of_copy_[i])]);
    }
    begin = index(copies.end);
    double& bound = bound_[index(copies.artifact)];
    bound = std::max(bound, copies.saved_per_byte * memory);
    double& part = least_part_[index(copies.artifact)];
    part = std::min(part, copies.bytes / memory);
  }
  for (const std::int32_t p : idle_) {
    const Placement& one = placement(p);
    const double part = static_cast<double>(one.bytes) * part_per_byte_[index(one.memory)];
    double& bound = bound_[index(one.artifact)];
    bound = std::max(bound, density_of(one.saved_s, part) * (1 + keep_bonus_));
  }
  for (std::size_t a = 0; a < bound_.size(); ++a) {
    // A little more than the density that a bundle computes, whatever the rounding.
    bound_[a] = std::min(bound_[a] * view.rates[a] * (1 + 1e-9), kFree * 2);
    least_part_[a] *= 1 - 1e-9;
  }
  // Rates change little from plan to plan, so the artifacts are nearly sorted.
  std::ranges::sort(order_, [&](std::int32_t a, std::int32_t b) {
    return bound_[index(a)] != bound_[index(b)] ? bound_[index(a)] > bound_[index(b)] : a < b;
  });
  for (std::size_t r = 0; r < order_.size(); ++r) {
    rank_[index(order_[r])] = static_cast<std::int32_t>(r);
  }
}

// A run's state before anything is taken: all that is in use.
void PreloadPolicy::start(const PreloadView& view) {
  state_.assign(artifacts_.placements.size(), State::kWaiting);
  missing_ = num_needs_;
  first_ready_.assign(view.rates.size(), -1);
  next_ready_.resize(state_.size());
  saved_.assign(view.rates.size(), 0);
  left_.assign(view.idle_bytes.begin(), view.idle_bytes.end());
  open_.assign(view.rates.size() / kWordBits + 1, 0);
  first_word_ = 0;
  deferred_.clear();
  deferred_density_.assign(view.rates.size(), -1);
  for (const std::int32_t p : roots_) make_ready(p);
  for (const std::int32_t p : in_use_) {
    CHECK(missing_[index(p)] == 0);
    mark_taken(p);
  }
  for (std::int32_t a = 0; a < artifacts_.num_artifacts; ++a) open(a);
}

// The artifact becomes a candidate at its bound.
void PreloadPolicy::open(std::int32_t artifact) {
  deferred_density_[index(artifact)] = -1;
  if (saved_[index(artifact)] >= most_saved_[index(artifact)]) return;
  const std::size_t rank = index(rank_[index(artifact)]);
  open_[rank / kWordBits] |= std::uint64_t{1} << rank % kWordBits;
  first_word_ = std::min(first_word_, rank / kWordBits);
}

void PreloadPolicy::defer(Candidate candidate) {
  deferred_density_[index(candidate.artifact)] = candidate.density;
  deferred_.push_back(candidate);
  std::push_heap(deferred_.begin(), deferred_.end());
}

// The densest open artifact.
PreloadPolicy::Candidate PreloadPolicy::next_open() {
  while (first_word_ < open_.size() && open_[first_word_] == 0) ++first_word_;
  if (first_word_ == open_.size()) return {};
  const auto bit = static_cast<std::size_t>(std::countr_zero(open_[first_word_]));
  const std::int32_t artifact = order_[first_word_ * kWordBits + bit];
  return {bound_[index(artifact)], artifact};
}

// The density of the next candidate, which is at the front of deferred_ or of open_ then.
double PreloadPolicy::next_density() {
  while (!deferred_.empty() &&
         deferred_density_[index(deferred_.front().artifact)] != deferred_.front().density) {
    std::pop_heap(deferred_.begin(), deferred_.end());  // opened or deferred again since
    deferred_.pop_back();
  }
  const double open = next_open().density;
  return deferred_.empty() ? open : std::max(open, deferred_.front().density);
}

PreloadPolicy::Candidate PreloadPolicy::pop() {
  const double density = next_density();
  if (!deferred_.empty() && deferred_.front().density == density) {
    std::pop_heap(deferred_.begin(), deferred_.end());
    const Candidate candidate = deferred_.back();
    deferred_.pop_back();
    deferred_density_[index(candidate.artifact)] = -1;
    return candidate;
  }
  const Candidate candidate = next_open();
  if (candidate.artifact >= 0) open_[first_word_] &= open_[first_word_] - 1;
  return candidate;
}

// Ready placements stay in the order of the list, so that equal memories fill up one by one.
void PreloadPolicy::make_ready(std::int32_t p) {
  state_[index(p)] = State::kReady;
  std::int32_t* link = &first_ready_[index(placement(p).artifact)];
  while (*link >= 0 && *link < p) link = &next_ready_[index(*link)];
  next_ready_[index(p)] = *link;
  *link = p;
}

// Its dependents may be denser now, and so may the artifact's better placements.
void PreloadPolicy::mark_taken(std::int32_t p) {
  state_[index(p)] = State::kTaken;
  const std::int32_t artifact = placement(p).artifact;
  saved_[index(artifact)] = std::max(saved_[index(artifact)], placement(p).saved_s);
  open(artifact);
  for (const std::int32_t dependent : dependents_of_.of(p)) {
    const bool is_ready = --missing_[index(dependent)] == 0;
    const State state = state_[index(dependent)];
    if (state == State::kTaken || state == State::kNoRoom) continue;
    if (is_ready) make_ready(dependent);
    open(placement(dependent).artifact);
  }
}

void PreloadPolicy::take_bundle() {
  for (const std::int32_t member : bundle_) {
    mark_taken(member);
    left_[index(placement(member).memory)] -= placement(member).bytes;
  }
}

// The density of a placement with all that it still needs, which bundle_ has then; -1 if there is
// no room.
double PreloadPolicy::evaluate(const PreloadView& view, std::int32_t p) {
  bundle_.assign(1, p);
  double part = 0;
  double gain = 0;
  bool all_idle = true;
  for (std::size_t i = 0; i < bundle_.size(); ++i) {
    const std::int32_t member = bundle_[i];
    const Placement& one = placement(member);
    std::int64_t bytes = one.bytes;
    double saved = saved_[index(one.artifact)];
    // Bundles have few members, so pairs are compared.
    for (std::size_t j = 0; j < i; ++j) {
      const Placement& other = placement(bundle_[j]);
      if (other.memory == one.memory) bytes += other.bytes;
      if (other.artifact == one.artifact) saved = std::max(saved, other.saved_s);
    }
    const std::int64_t left = left_[index(one.memory)];
    // A need that is taken later takes as much from `left` as from `bytes`, so p never fits later.
    if (one.bytes > left) state_[index(member)] = State::kNoRoom;
    if (bytes > left || state_[index(member)] == State::kNoRoom) {
      state_[index(p)] = State::kNoRoom;
      return -1;
    }
    part += static_cast<double>(one.bytes) * part_per_byte_[index(one.memory)];
    gain += view.rates[index(one.artifact)] * std::max(one.saved_s - saved, 0.0);
    all_idle = all_idle && is_idle(view, member);
    if (state_[index(member)] == State::kReady) continue;
    for (const std::int32_t need : needs_of(member)) {
      if (state_[index(need)] == State::kTaken) continue;
      if (std::ranges::find(bundle_, need) == bundle_.end()) bundle_.push_back(need);
    }
  }
  const double density = density_of(gain, part);
  return all_idle ? density * (1 + keep_bonus_) : density;
}

// The first placement of a list of ready ones that is still ready and has room. Those before it
// leave the list.
std::int32_t PreloadPolicy::first_with_room(std::int32_t& link) const {
  for (; link >= 0; link = next_ready_[index(link)]) {
    const bool has_room = left_[index(placement(link).memory)] >= placement(link).bytes;
    if (state_[index(link)] == State::kReady && has_room) break;
  }
  return link;
}

PreloadPolicy::Choice PreloadPolicy::best_ready(const PreloadView& view, std::int32_t artifact) {
  Choice best;
  const double saved = saved_[index(artifact)];
  for (std::int32_t* link = &first_ready_[index(artifact)]; first_with_room(*link) >= 0;
       link = &next_ready_[index(*link)]) {
    if (placement(*link).saved_s <= saved) continue;
    const double density = evaluate(view, *link);
    if (density > best.density) best = {density, *link};
  }
  return best;
}

// Something that the placement needs waits itself.
bool PreloadPolicy::needs_waiting(std::int32_t p) const {
  return std::ranges::any_of(
      needs_of(p), [&](std::int32_t need) { return state_[index(need)] == State::kWaiting; });
}

// Deep bundles, such as an instance with its adapter and one more copy of its backbone, are looked
// at only where there is nothing else. With many placements, the first one that fits and is not
// loaded stands for the others that are not loaded: they differ by the sizes of their memories.
PreloadPolicy::Choice PreloadPolicy::best_waiting(const PreloadView& view, std::int32_t artifact) {
  Choice best;
  const double saved = saved_[index(artifact)];
  const auto placements = placements_of_.of(artifact);
  for (const bool deep : {false, true}) {
    bool found = false;
    for (const std::int32_t p : placements) {
      if (state_[index(p)] != State::kWaiting || placement(p).saved_s <= saved) continue;
      if ((found && !is_idle(view, p)) || needs_waiting(p) != deep) continue;
      const double density = evaluate(view, p);
      if (density > best.density) best = {density, p};
      found = found || (placements.size() > kFewPlacements && density >= 0 && !is_idle(view, p));
    }
    if (best.density > 0) break;
  }
  return best;
}

// The artifact has a ready placement with room that others need.
bool PreloadPolicy::has_ready_copy(std::int32_t artifact) {
  for (std::int32_t* link = &first_ready_[index(artifact)]; first_with_room(*link) >= 0;
       link = &next_ready_[index(*link)]) {
    if (!dependents_of_.of(*link).empty()) return true;
  }
  return false;
}

// At most the gain, and at least the part, of a placement that is not ready with all that it still
// needs. It takes one of its needs along or more.
PreloadPolicy::Worth PreloadPolicy::worth_with_needs(const PreloadView& view,
                                                     std::int32_t artifact) {
  const double saved = std::max(most_saved_[index(artifact)] - saved_[index(artifact)], 0.0);
  double gain = view.rates[index(artifact)] * saved;
  double part = kFree;
  on_path_[index(artifact)] = 1;
  for (const std::int32_t need : needs_of_artifact_.of(artifact)) {
    if (on_path_[index(need)] != 0) continue;  // copies of an artifact may need each other
    const Worth worth = worth_with_needs(view, need);
    gain += worth.gain;
    part = std::min(part, has_ready_copy(need) ? least_part_[index(need)] : worth.part);
  }
  on_path_[index(artifact)] = 0;
  return {gain, least_part_[index(artifact)] + part};
}

PreloadPolicy::Choice PreloadPolicy::best_of(const PreloadView& view, const Candidate& candidate) {
  const Choice ready = best_ready(view, candidate.artifact);
  const double enough = candidate.density * (1 - kRounding);
  if (ready.density >= enough) return ready;
  const Worth worth = worth_with_needs(view, candidate.artifact);
  if (worth.part >= kFree) return ready;  // nothing that it needs has room
  const double bonus = idle_.empty() ? 1 : 1 + keep_bonus_;
  const double bound = density_of(worth.gain, worth.part) * bonus * (1 + kRounding);
  if (bound <= ready.density) return ready;
  if (bound < enough && bound < next_density()) return {bound, -1};
  const Choice waiting = best_waiting(view, candidate.artifact);
  return waiting.density > ready.density ? waiting : ready;
}

// Candidates' densities are upper bounds: bound_ is the density without needs, and a bundle's
// density is at most that of its densest member, which has been taken or looked at before.
double PreloadPolicy::run_greedy(const PreloadView& view) {
  for (Candidate next = pop(); next.density > 0; next = pop()) {
    const Choice best = best_of(view, next);
    if (!(best.density > 0)) continue;  // and it will not fit later: less and less is left
    if (best.placement < 0 || best.density < next_density() * (1 - kRounding)) {
      defer({best.density, next.artifact});
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
    if (state_[index(first)] == State::kTaken || evaluate(view, first) < 0) return -1;
    take_bundle();
  }
  return run_greedy(view);
}

PreloadPlan PreloadPolicy::plan(const PreloadView& view) {
  prepare(view);
  const std::size_t count = artifacts_.placements.size();
  double best = run(view, -1);
  best_state_ = state_;
  // A plan that moves something must be worth the move, as a placement must.
  const double enough = idle_.empty() ? 1 : 1 + keep_bonus_;
  double least = best * enough;
  const std::size_t starts = std::min(count, kEffort / std::max<std::size_t>(count, 1));
  for (std::size_t i = 0; i < starts; ++i) {
    // Spread over all placements if there are more of them than starts.
    const double value = run(view, static_cast<std::int32_t>(i * count / starts));
    if (value <= least) continue;
    best = value;
    least = value;
    best_state_ = state_;
  }
  PreloadPlan plan = result(view);
  plan.value = best;
  return plan;
}

PreloadPlan PreloadPolicy::result(const PreloadView& view) {
  left_.assign(view.idle_bytes.begin(), view.idle_bytes.end());
  PreloadPlan plan;
  for (std::int32_t p = 0; p < std::ssize(best_state_); ++p) {
    if (best_state_[index(p)] != State::kTaken) continue;
    if (view.residency[index(p)] == Residency::kInUse) continue;
    left_[index(placement(p).memory)] -= placement(p).bytes;
    if (!is_idle(view, p)) plan.load.push_back(p);
  }
  for (const std::int32_t p : idle_) {
    if (best_state_[index(p)] == State::kTaken) continue;
    // Loaded and not worth its place: it stays while there is room for it and all that it needs.
    const bool has_needs = std::ranges::all_of(
        needs_of(p), [&](std::int32_t need) { return best_state_[index(need)] == State::kTaken; });
    std::int64_t& left = left_[index(placement(p).memory)];
    if (has_needs && left >= placement(p).bytes) {
      left -= placement(p).bytes;
      best_state_[index(p)] = State::kTaken;
    } else {
      plan.drop.push_back(p);
    }
  }
  std::ranges::reverse(plan.drop);
  return plan;
}

}  // namespace sluice
