// Placements against the optimum of small clusters, which exhaustive search finds, and against the
// constraints of large ones. Tests with CBC are skipped, with a message, where there is no `cbc`.
#include "placement/place_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "base/file.h"
#include "base/rng.h"
#include "placement/cbc_solver.h"
#include "placement/cluster_file.h"
#include "placement/greedy_placer.h"
#include "placement/server_patterns.h"

namespace sluice {
namespace {

using testing::HasSubstr;

Cluster random_cluster(std::uint64_t seed, std::int32_t most_servers, std::int32_t most_gpus) {
  SplitMix64 rng(seed);
  Cluster cluster;
  cluster.servers =
      1 + static_cast<std::int32_t>(rng.below(static_cast<std::uint64_t>(most_servers)));
  cluster.gpus_per_server =
      1 + static_cast<std::int32_t>(rng.below(static_cast<std::uint64_t>(most_gpus)));
  cluster.gpu_memory_mb = 80;
  std::int32_t left = cluster.servers * cluster.gpus_per_server;
  // Some clusters are all in deficit: both maxima are negative then.
  const bool deficit = rng.below(5) == 0;
  for (int k = 0; k < 4 && left > 0; ++k) {
    ModelKind kind;
    kind.name = "kind" + std::to_string(k);
    const std::int32_t most = std::min(left, cluster.gpus_per_server);
    kind.gpus = 1 << rng.below(3);
    if (kind.gpus > most) kind.gpus = 1;
    kind.count = 1 + static_cast<std::int32_t>(
                         rng.below(static_cast<std::uint64_t>(std::min(3, left / kind.gpus))));
    kind.spare_mb = static_cast<std::int64_t>(rng.below(12)) * 5 - 30;
    if (deficit) kind.spare_mb = -5 - std::abs(kind.spare_mb);
    left -= kind.count * kind.gpus;
    cluster.kinds.push_back(kind);
  }
  return cluster;
}

// The lowest objective of all placements; empty when the groups do not fit.
std::optional<std::int64_t> exhaustive(const Cluster& cluster) {
  ModelPlacement placement;
  const auto servers = static_cast<std::size_t>(cluster.servers);
  placement.counts.assign(servers, std::vector<std::int32_t>(cluster.kinds.size()));
  std::optional<std::int64_t> best;
  const std::function<void(std::size_t, std::size_t, std::int32_t)> place =
      [&](std::size_t kind, std::size_t server, std::int32_t left) {
        if (kind == cluster.kinds.size()) {
          const std::int64_t value = objective_mb(cluster, placement);
          if (!best || value < *best) best = value;
          return;
        }
        if (server == servers) {
          if (left > 0) return;
          const std::size_t next = kind + 1;
          place(next, 0, next < cluster.kinds.size() ? cluster.kinds[next].count : 0);
          return;
        }
        for (std::int32_t n = 0; n <= left; ++n) {
          placement.counts[server][kind] = n;
          if (placement.load(cluster, server).gpus <= cluster.gpus_per_server) {
            place(kind, server + 1, left - n);
          }
        }
        placement.counts[server][kind] = 0;
      };
  place(0, 0, cluster.kinds[0].count);
  return best;
}

bool has_cbc() {
  const auto run =
      run_cbc("cbc", "Minimize\n obj: x\nSubject To\n c: x >= 1\nEnd\n", std::chrono::seconds(10));
  return run && run->not_run.empty();
}

Cluster example_cluster() {
  const auto text = read_file(std::string(SLUICE_SOURCE_DIR) + "/examples/cluster-128.json",
                              kMaxClusterFileBytes);
  EXPECT_TRUE(text) << text.error().message;
  auto cluster = parse_cluster(*text, "cluster-128.json");
  EXPECT_TRUE(cluster) << cluster.error().message;
  return *std::move(cluster);
}

TEST(PlaceModelsTest, GreedyPlacementsKeepTheConstraintsAndTheBound) {
  double sum = 0;
  int compared = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const Cluster cluster = random_cluster(seed, 3, 4);
    const auto best = exhaustive(cluster);
    const auto placed = place_greedily(cluster);
    if (!placed) {
      EXPECT_THAT(placed.error().message, HasSubstr("no server has"));
      continue;
    }
    ASSERT_TRUE(best) << "seed " << seed;
    const Status checked = check_placement(cluster, *placed);
    ASSERT_TRUE(checked) << "seed " << seed << ": " << checked.error().message;
    const std::int64_t value = objective_mb(cluster, *placed);
    ASSERT_GE(value, *best) << "seed " << seed;
    ASSERT_GE(*best, mean_bound_mb(cluster)) << "seed " << seed;
    sum += static_cast<double>(value - *best) / static_cast<double>(cluster.gpu_memory_mb);
    ++compared;
  }
  ASSERT_GT(compared, 300);
  // On the mean, within a tenth of one GPU's memory of the optimum.
  EXPECT_LE(sum / compared, 0.1);
}

TEST(PlaceModelsTest, CbcFindsTheOptimum) {
  if (!has_cbc()) GTEST_SKIP() << "no `cbc` here; apt-get install coinor-cbc to run this test";
  const SystemClock clock;
  int solved = 0;
  for (std::uint64_t seed = 1000; seed < 1040; ++seed) {
    const Cluster cluster = random_cluster(seed, 3, 4);
    const auto best = exhaustive(cluster);
    const auto placed = place_models(cluster, {}, clock);
    ASSERT_EQ(placed.has_value(), best.has_value()) << "seed " << seed;
    if (!placed) continue;
    ASSERT_TRUE(check_placement(cluster, placed->placement)) << "seed " << seed;
    EXPECT_EQ(placed->objective_mb, *best) << "seed " << seed;
    EXPECT_TRUE(placed->optimal) << "seed " << seed;
    EXPECT_EQ(placed->gap(), 0) << "seed " << seed;
    ++solved;
  }
  EXPECT_GT(solved, 20);
}

// The solver proves the optimum of the example of 128 GPUs, for which two servers more than the
// means allow are needed: tensor-parallel producers fill half a server, and consumers come in
// pairs.
TEST(PlaceModelsTest, TheOptimumOf128GpusIsProved) {
  if (!has_cbc()) GTEST_SKIP() << "no `cbc` here; apt-get install coinor-cbc to run this test";
  const Cluster cluster = example_cluster();
  const SystemClock clock;
  const auto placed = place_models(cluster, {.time_limit = std::chrono::seconds(60)}, clock);
  ASSERT_TRUE(placed) << placed.error().message;
  ASSERT_TRUE(check_placement(cluster, placed->placement));
  EXPECT_EQ(placed->objective_mb, 370'000);
  EXPECT_TRUE(placed->optimal);
}

// More patterns than are listed: the program over all servers answers.
TEST(PlaceModelsTest, ManyKindsArePlacedToo) {
  if (!has_cbc()) GTEST_SKIP() << "no `cbc` here; apt-get install coinor-cbc to run this test";
  Cluster cluster{.servers = 2, .gpus_per_server = 64, .gpu_memory_mb = 80'000, .kinds = {}};
  for (int k = 0; k < 13; ++k) cluster.kinds.push_back({"kind", 9, 1, 7'237 * k * k - 300'001});
  ASSERT_FALSE(ServerPatterns::list(cluster, mean_limits(cluster)));
  const SystemClock clock;
  const auto placed = place_models(cluster, {.time_limit = std::chrono::milliseconds(100)}, clock);
  ASSERT_TRUE(placed) << placed.error().message;
  EXPECT_TRUE(check_placement(cluster, placed->placement));
  EXPECT_EQ(placed->without_cbc, "");
  EXPECT_GE(placed->objective_mb, mean_bound_mb(cluster));
  EXPECT_GE(placed->bound_mb, static_cast<double>(mean_bound_mb(cluster)));
}

// Both maxima are negative, so variables with a lower bound of 0 would find nothing.
TEST(PlaceModelsTest, AClusterInDeficitIsPlaced) {
  const Cluster cluster{.servers = 2,
                        .gpus_per_server = 4,
                        .gpu_memory_mb = 80'000,
                        .kinds = {{"a", 4, 1, -20'000}, {"b", 2, 2, -10'000}}};
  const SystemClock clock;
  const auto placed = place_models(cluster, {}, clock);
  ASSERT_TRUE(placed) << placed.error().message;
  EXPECT_EQ(placed->objective_mb, -60'000 - 4 * 80'000);
  EXPECT_TRUE(placed->optimal);
}

TEST(PlaceModelsTest, GroupsThatDoNotFitAreAnError) {
  const Cluster cluster{.servers = 2,
                        .gpus_per_server = 4,
                        .gpu_memory_mb = 80'000,
                        .kinds = {{"wide", 2, 3, 10'000}, {"pair", 1, 2, 10'000}}};
  const SystemClock clock;
  const auto placed = place_models(cluster, {}, clock);
  ASSERT_FALSE(placed);
  EXPECT_EQ(placed.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(placed.error().message, HasSubstr("lower a count or add servers"));
}

TEST(PlaceModelsTest, WithoutASolverItSaysSo) {
  const Cluster cluster = example_cluster();
  const SystemClock clock;
  const auto placed = place_models(cluster, {.solver = "no-such-solver"}, clock);
  ASSERT_TRUE(placed) << placed.error().message;
  EXPECT_THAT(placed->without_cbc, HasSubstr("no-such-solver"));
  EXPECT_FALSE(placed->from_solver);
  EXPECT_GT(placed->gap(), 0);  // only the mean bounds it
}

}  // namespace
}  // namespace sluice
