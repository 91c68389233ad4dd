#include "placement/server_patterns.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <ranges>
#include <utility>

namespace sluice {

ServerPatterns::ServerPatterns(Cluster cluster) : cluster_(std::move(cluster)) {
  for (std::size_t k = 0; k < cluster_.kinds.size(); ++k) {
    const ModelKind& kind = cluster_.kinds[k];
    Class made{.kinds = {k},
               .count = kind.count,
               .gpus = kind.gpus,
               .spare_mb = kind.gpus * kind.spare_mb,
               .producers = kind.is_producer() ? kind.gpus : -kind.gpus};
    const auto same = std::ranges::find_if(classes_, [&](const Class& c) {
      return c.gpus == made.gpus && c.spare_mb == made.spare_mb && c.producers == made.producers;
    });
    if (same == classes_.end()) {
      classes_.push_back(std::move(made));
    } else {
      same->kinds.push_back(k);
      same->count += kind.count;
    }
  }
  // Large groups first: they leave the fewest choices.
  std::ranges::stable_sort(classes_, std::greater(), &Class::gpus);
}

std::optional<ServerPatterns> ServerPatterns::list(Cluster cluster, const PlacementLimits& limits) {
  ServerPatterns made(std::move(cluster));
  made.most_ = {made.cluster_.gpus_per_server, limits.spare_mb, limits.producers};
  Totals all;
  for (const Class& c : made.classes_) {
    all.gpus += std::int64_t{c.count} * c.gpus;
    all.spare_mb += c.count * c.spare_mb;
    all.producers += std::int64_t{c.count} * c.producers;
  }
  const std::int64_t others = made.cluster_.servers - 1;
  made.least_ = {all.gpus - others * made.most_.gpus, all.spare_mb - others * made.most_.spare_mb,
                 all.producers - others * made.most_.producers};
  Pattern pattern(made.classes_.size());
  if (!made.extend(0, pattern, {})) return std::nullopt;
  made.covers_all_ = std::ranges::all_of(
      std::views::iota(std::size_t{0}, made.classes_.size()), [&](std::size_t c) {
        return made.classes_[c].count == 0 ||
               std::ranges::any_of(made.patterns_, [&](const Pattern& p) { return p[c] > 0; });
      });
  return made;
}

// Tries each number of models of the classes from `place` on. False: there are too many patterns.
bool ServerPatterns::extend(std::size_t place, Pattern& pattern, const Totals& held) {
  if (++visited_ > kMaxVisited) return false;
  if (place == classes_.size()) {
    keep(pattern, held);
    return patterns_.size() <= kMaxPatterns;
  }
  const Class& c = classes_[place];
  Totals more = held;
  for (std::int32_t n = 0; n <= c.count && more.gpus <= most_.gpus; ++n) {
    pattern[place] = n;
    if (!extend(place + 1, pattern, more)) return false;
    more.gpus += c.gpus;
    more.spare_mb += c.spare_mb;
    more.producers += c.producers;
  }
  pattern[place] = 0;
  return true;
}

void ServerPatterns::keep(const Pattern& pattern, const Totals& held) {
  if (held.gpus < least_.gpus || held.spare_mb < least_.spare_mb ||
      held.producers < least_.producers || held.spare_mb > most_.spare_mb ||
      held.producers > most_.producers) {
    return;
  }
  patterns_.push_back(pattern);
  reaches_ = reaches_ || held.producers == most_.producers;
}

std::string ServerPatterns::program() const {
  std::string rows;
  std::string integers;
  CbcSum servers;
  for (std::size_t p = 0; p < patterns_.size(); ++p) {
    servers.add(1, fmt::format("x{}", p));
    integers += fmt::format(" x{}{}", p, p % 8 == 7 ? "\n" : "");
  }
  rows += servers.line("servers", "=", cluster_.servers);
  for (std::size_t c = 0; c < classes_.size(); ++c) {
    if (classes_[c].count == 0) continue;
    CbcSum models;
    for (std::size_t p = 0; p < patterns_.size(); ++p) {
      models.add(patterns_[p][c], fmt::format("x{}", p));
    }
    rows += models.line(fmt::format("models{}", c), "=", classes_[c].count);
  }
  // Any solution will do, so the objective is constant.
  return fmt::format("Minimize\n obj: 0 x0\nSubject To\n{}General\n{}\nEnd\n", rows, integers);
}

Result<std::optional<ModelPlacement>> ServerPatterns::placement_of(
    const CbcSolution& solution) const {
  if (!solution.holds) return std::optional<ModelPlacement>();
  ModelPlacement placement;
  std::vector<std::int32_t> left;
  for (const ModelKind& kind : cluster_.kinds) left.push_back(kind.count);
  for (const auto& [name, value] : solution.values) {
    std::size_t index = patterns_.size();
    const char* const end = name.data() + name.size();
    if (name.starts_with('x')) std::from_chars(name.data() + 1, end, index);
    if (index >= patterns_.size()) {
      return internal_error(fmt::format("CBC's solution names '{}', which is no variable", name));
    }
    ASSIGN_OR_RETURN(const std::int32_t times, cbc_count(name, value, cluster_.servers));
    for (std::int32_t i = 0; i < times; ++i) {
      std::vector<std::int32_t>& counts = placement.counts.emplace_back(left.size());
      for (std::size_t c = 0; c < classes_.size(); ++c) {
        std::int32_t wanted = patterns_[index][c];
        for (const std::size_t kind : classes_[c].kinds) {
          const std::int32_t taken = std::min(wanted, left[kind]);
          counts[kind] = taken;
          left[kind] -= taken;
          wanted -= taken;
        }
      }
    }
  }
  if (check_placement(cluster_, placement)) return std::optional(std::move(placement));
  if (solution.optimal) return internal_error("CBC's optimal solution breaks a constraint");
  return std::optional<ModelPlacement>();
}

}  // namespace sluice
