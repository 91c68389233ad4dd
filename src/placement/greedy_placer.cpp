#include "placement/greedy_placer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include "base/rng.h"

namespace sluice {
namespace {

// The objective first. Beyond it, the squared distances from the means: an exchange that only
// brings servers nearer to the mean opens the way for one that lowers a maximum.
struct Score {
  std::int64_t objective = 0;
  double spread = 0;
  friend bool operator<(const Score& a, const Score& b) {
    if (a.objective != b.objective) return a.objective < b.objective;
    return a.spread < b.spread * (1 - 1e-9);
  }
};

// A larger cluster has more exchanges, and each is worth trying more often.
std::int64_t most_tries(const Cluster& cluster) {
  const std::int64_t gpus = std::int64_t{cluster.servers} * cluster.gpus_per_server;
  return std::min(kMaxTries, 1500 * gpus * gpus);
}

class Search {
 public:
  explicit Search(const Cluster& cluster)
      : cluster_(cluster), loads_(servers()), max_tries_(most_tries(cluster)) {
    placement_.counts.assign(servers(), std::vector<std::int32_t>(cluster.kinds.size()));
    for (const ModelKind& kind : cluster.kinds) {
      const double shards = static_cast<double>(kind.count) * kind.gpus;
      mean_spare_ += shards * static_cast<double>(kind.spare_mb) / cluster.servers;
      mean_producers_ += (kind.is_producer() ? shards : -shards) / cluster.servers;
    }
  }

  Status fill();
  void improve();
  void improve_again();
  ModelPlacement take() { return std::move(placement_); }

 private:
  std::size_t servers() const { return static_cast<std::size_t>(cluster_.servers); }
  void add(std::size_t server, std::size_t kind, std::int32_t models);
  std::int32_t free_gpus(std::size_t server) const {
    return cluster_.gpus_per_server - loads_[server].gpus;
  }
  double distance(const ServerLoad& load) const;
  Score score() const;
  bool place_one(std::size_t kind);
  bool exchange_with(std::size_t first);
  enum class Accept : std::uint8_t { kBetter, kAny };
  bool try_exchange(std::size_t first, std::size_t second, std::size_t given,
                    std::optional<std::size_t> taken, Accept accept = Accept::kBetter);
  void kick(SplitMix64& rng);
  void restart_from(const ModelPlacement& placement);
  std::vector<std::size_t> worst_servers() const;

  const Cluster& cluster_;
  ModelPlacement placement_;
  std::vector<ServerLoad> loads_;
  double mean_spare_ = 0;
  double mean_producers_ = 0;
  std::int64_t tries_ = 0;
  std::int64_t max_tries_;
};

void Search::add(std::size_t server, std::size_t kind, std::int32_t models) {
  const ModelKind& k = cluster_.kinds[kind];
  const std::int32_t shards = models * k.gpus;
  placement_.counts[server][kind] += models;
  loads_[server].gpus += shards;
  loads_[server].spare_mb += shards * k.spare_mb;
  loads_[server].producers += k.is_producer() ? shards : -shards;
}

double Search::distance(const ServerLoad& load) const {
  const double spare = static_cast<double>(load.spare_mb) - mean_spare_;
  const double producers =
      static_cast<double>(cluster_.gpu_memory_mb) * (load.producers - mean_producers_);
  return spare * spare + producers * producers;
}

Score Search::score() const {
  Score score;
  std::int64_t spare = loads_[0].spare_mb;
  std::int32_t producers = loads_[0].producers;
  for (const ServerLoad& load : loads_) {
    spare = std::max(spare, load.spare_mb);
    producers = std::max(producers, load.producers);
    score.spread += distance(load);
  }
  score.objective = spare + cluster_.gpu_memory_mb * producers;
  return score;
}

// While servers fill, the distance decides: the maxima say little about a cluster that is half
// empty.
bool Search::place_one(std::size_t kind) {
  std::optional<std::size_t> best;
  double least = 0;
  for (std::size_t s = 0; s < servers(); ++s) {
    if (free_gpus(s) < cluster_.kinds[kind].gpus) continue;
    const double before = distance(loads_[s]);
    add(s, kind, 1);
    const double change = distance(loads_[s]) - before;
    add(s, kind, -1);
    if (best && change >= least) continue;
    best = s;
    least = change;
  }
  if (best) add(*best, kind, 1);
  return best.has_value();
}

Status Search::fill() {
  std::vector<std::size_t> order(cluster_.kinds.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    const ModelKind& x = cluster_.kinds[a];
    const ModelKind& y = cluster_.kinds[b];
    return std::tuple(-x.gpus, -std::abs(x.spare_mb)) < std::tuple(-y.gpus, -std::abs(y.spare_mb));
  });
  for (const std::size_t kind : order) {
    const ModelKind& k = cluster_.kinds[kind];
    for (std::int32_t i = 0; i < k.count; ++i) {
      if (place_one(kind)) continue;
      return resource_exhausted(fmt::format(
          "{}: no server has {} free GPUs left for its tensor-parallel group; lower a count or add "
          "servers",
          k.name, k.gpus));
    }
  }
  return {};
}

std::vector<std::size_t> Search::worst_servers() const {
  std::vector<std::size_t> order(servers());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const std::size_t shown = std::min<std::size_t>(servers(), 16);
  std::ranges::partial_sort(
      order, order.begin() + static_cast<std::ptrdiff_t>(shown),
      [&](std::size_t a, std::size_t b) { return distance(loads_[a]) > distance(loads_[b]); });
  order.resize(shown);
  const auto by_spare = std::ranges::max_element(loads_, {}, &ServerLoad::spare_mb);
  const auto by_count = std::ranges::max_element(loads_, {}, &ServerLoad::producers);
  order.push_back(static_cast<std::size_t>(by_spare - loads_.begin()));
  order.push_back(static_cast<std::size_t>(by_count - loads_.begin()));
  return order;
}

// Gives one model of `given` and takes models of `taken` of as many GPUs; without `taken`, free
// GPUs of the other server take it.
bool Search::try_exchange(std::size_t first, std::size_t second, std::size_t given,
                          std::optional<std::size_t> taken, Accept accept) {
  ++tries_;
  const std::int32_t gpus = cluster_.kinds[given].gpus;
  std::int32_t back = 0;
  if (taken) {
    back = std::max(1, gpus / cluster_.kinds[*taken].gpus);
    if (placement_.counts[second][*taken] < back) return false;
  }
  const std::int32_t returned = taken ? back * cluster_.kinds[*taken].gpus : 0;
  if (free_gpus(second) + returned < gpus || free_gpus(first) + gpus < returned) return false;
  const Score before = accept == Accept::kAny ? Score{} : score();
  const auto move = [&](std::int32_t sign) {
    add(first, given, -sign);
    add(second, given, sign);
    if (!taken) return;
    add(second, *taken, -sign * back);
    add(first, *taken, sign * back);
  };
  move(1);
  if (accept == Accept::kAny || score() < before) return true;
  move(-1);
  return false;
}

bool Search::exchange_with(std::size_t first) {
  for (std::size_t second = 0; second < servers(); ++second) {
    if (second == first) continue;
    for (std::size_t given = 0; given < cluster_.kinds.size(); ++given) {
      if (placement_.counts[first][given] == 0) continue;
      if (try_exchange(first, second, given, std::nullopt)) return true;
      for (std::size_t taken = 0; taken < cluster_.kinds.size(); ++taken) {
        if (taken != given && try_exchange(first, second, given, taken)) return true;
      }
    }
  }
  return false;
}

void Search::improve() {
  const std::int64_t bound = mean_bound_mb(cluster_);
  while (tries_ < max_tries_) {
    if (score().objective == bound) return;
    if (!std::ranges::any_of(worst_servers(), [&](std::size_t s) { return exchange_with(s); })) {
      return;
    }
  }
}

// A few exchanges between random servers, for better or worse.
void Search::kick(SplitMix64& rng) {
  constexpr int kExchanges = 4;
  const std::size_t kinds = cluster_.kinds.size();
  for (int done = 0; done < kExchanges && tries_ < max_tries_;) {
    const std::size_t first = rng.below(servers());
    const std::size_t second = rng.below(servers());
    const std::size_t given = rng.below(kinds);
    const std::size_t taken = rng.below(kinds);
    ++tries_;
    if (first == second || given == taken || placement_.counts[first][given] == 0) continue;
    if (try_exchange(first, second, given, taken, Accept::kAny)) ++done;
  }
}

void Search::restart_from(const ModelPlacement& placement) {
  placement_ = placement;
  for (std::size_t s = 0; s < servers(); ++s) loads_[s] = placement_.load(cluster_, s);
}

void Search::improve_again() {
  const std::int64_t bound = mean_bound_mb(cluster_);
  ModelPlacement best = placement_;
  Score best_score = score();
  SplitMix64 rng(1);
  while (best_score.objective > bound && tries_ < max_tries_) {
    kick(rng);
    improve();
    if (score() < best_score) {
      best = placement_;
      best_score = score();
    } else {
      restart_from(best);
    }
  }
  restart_from(best);
}

}  // namespace

Result<ModelPlacement> place_greedily(const Cluster& cluster) {
  Search search(cluster);
  RETURN_IF_ERROR(search.fill());
  search.improve();
  search.improve_again();
  return search.take();
}

}  // namespace sluice
