// The greedy plans of small random instances against their optimum, which CBC finds
// (https://github.com/coin-or/Cbc; Debian's coinor-cbc). Skipped, with a message, where there is
// no `cbc`.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "serverless/preload_policy.h"
#include "serverless/test_artifacts.h"
#include "tests/support/subprocess.h"

namespace sluice {
namespace {

using test::Instance;

// Appends the instance as part `part` of a linear program: x is a placement, z the one placement
// of an artifact that counts. Parts share no variable, so each is solved to its own optimum.
struct Program {
  std::string objective = "Maximize\n obj:";
  std::string constraints = "Subject To\n";
  std::string binaries = "Binary\n";

  void add(int part, const Instance& instance) {
    const auto& placements = instance.artifacts.placements;
    std::vector<std::string> memory(instance.idle.size());
    std::vector<std::string> artifact(instance.rates.size());
    for (std::size_t i = 0; i < placements.size(); ++i) {
      const Placement& p = placements[i];
      const double value = instance.rates[static_cast<std::size_t>(p.artifact)] * p.saved_s;
      objective += fmt::format(" + {:.12f} z{}_{}\n", value, part, i);
      constraints += fmt::format(" z{0}_{1} - x{0}_{1} <= 0\n", part, i);
      for (const std::int32_t need : instance.artifacts.needs_of(p)) {
        constraints += fmt::format(" x{0}_{1} - x{0}_{2} <= 0\n", part, i, need);
      }
      memory[static_cast<std::size_t>(p.memory)] += fmt::format(" + {} x{}_{}", p.bytes, part, i);
      artifact[static_cast<std::size_t>(p.artifact)] += fmt::format(" + z{}_{}", part, i);
      binaries += fmt::format(" x{0}_{1} z{0}_{1}\n", part, i);
    }
    for (std::size_t m = 0; m < memory.size(); ++m) {
      if (!memory[m].empty()) constraints += fmt::format("{} <= {}\n", memory[m], instance.idle[m]);
    }
    for (const std::string& sum : artifact) {
      if (!sum.empty()) constraints += fmt::format("{} <= 1\n", sum);
    }
  }
};

using Placed = std::vector<bool>;

// Optimal sets of placements, by CBC.
std::vector<Placed> optima_of(const std::vector<Instance>& instances) {
  Program program;
  for (std::size_t i = 0; i < instances.size(); ++i) program.add(static_cast<int>(i), instances[i]);
  const std::string stem =
      testing::TempDir() + "/preload_policy_oracle_" + std::to_string(getpid());
  std::ofstream(stem + ".lp") << program.objective << program.constraints << program.binaries
                              << "End\n";
  const auto run = test::run_process({"/usr/bin/env", "cbc", stem + ".lp", "ratioGap", "0",
                                      "allowableGap", "0", "solve", "solution", stem + ".sol"});
  std::ifstream solution(stem + ".sol");
  std::string line;
  std::getline(solution, line);
  EXPECT_EQ(line.rfind("Optimal", 0), 0U) << line << "\n" << run.out;
  std::vector<Placed> placed(instances.size());
  for (std::size_t i = 0; i < placed.size(); ++i) {
    placed[i].assign(instances[i].artifacts.placements.size(), false);
  }
  while (std::getline(solution, line)) {
    std::istringstream words(line);
    std::string column;
    std::string name;
    double value = 0;
    words >> column >> name >> value;
    if (name.empty() || name[0] != 'x' || value < 0.5) continue;
    const std::size_t bar = name.find('_');
    placed[std::stoul(name.substr(1, bar - 1))][std::stoul(name.substr(bar + 1))] = true;
  }
  for (const char* ending : {".lp", ".sol"}) std::filesystem::remove(stem + ending);
  return placed;
}

// The instance with both sets: o is ours, * the optimum's.
std::string describe(const Instance& instance, const PreloadPlan& plan, const Placed& best) {
  std::string text = "  idle bytes:";
  for (const std::int64_t idle : instance.idle) text += fmt::format(" {}", idle);
  text += "\n  placement artifact memory bytes value needs\n";
  for (std::size_t i = 0; i < best.size(); ++i) {
    const Placement& p = instance.artifacts.placements[i];
    const bool ours = std::ranges::find(plan.load, static_cast<int>(i)) != plan.load.end();
    text += fmt::format("  {:2} {}{} {:8} {:6} {:5} {:5.3f}", i, ours ? 'o' : ' ',
                        best[i] ? '*' : ' ', p.artifact, p.memory, p.bytes,
                        instance.rates[static_cast<std::size_t>(p.artifact)] * p.saved_s);
    for (const std::int32_t need : instance.artifacts.needs_of(p)) text += fmt::format(" {}", need);
    text += "\n";
  }
  return text;
}

bool has_cbc() {
  try {
    return test::run_process({"/usr/bin/env", "cbc", "quit"}).exit_code == 0;
  } catch (const std::exception&) {
    return false;
  }
}

TEST(PreloadPolicyOracleTest, GreedyIsNearTheOptimum) {
  if (!has_cbc()) GTEST_SKIP() << "no `cbc` here; apt-get install coinor-cbc to run this test";
  constexpr int kInstances = 1000;
  constexpr int kAtOnce = 20;
  double sum = 0;
  double worst = 1;
  std::string shown;
  int optimal = 0;
  for (int first = 0; first < kInstances; first += kAtOnce) {
    std::vector<Instance> instances;
    for (int i = 0; i < kAtOnce; ++i) {
      instances.push_back(test::random_instance(static_cast<std::uint64_t>(first + i)));
    }
    const std::vector<Placed> optima = optima_of(instances);
    ASSERT_FALSE(testing::Test::HasFailure());
    for (int i = 0; i < kAtOnce; ++i) {
      const Instance& instance = instances[static_cast<std::size_t>(i)];
      const PreloadPlan plan = PreloadPolicy(instance.artifacts).plan(instance.view());
      const double value = plan.value;
      const double optimum = test::value_of(instance, optima[static_cast<std::size_t>(i)]);
      ASSERT_LE(value, optimum + 1e-6) << "seed " << first + i << ": the oracle is wrong";
      const double ratio = optimum > 0 ? value / optimum : 1;
      sum += ratio;
      if (ratio > 1 - 1e-6) ++optimal;
      if (ratio >= worst) continue;
      worst = ratio;
      shown = fmt::format("seed {}\n{}", first + i,
                          describe(instance, plan, optima[static_cast<std::size_t>(i)]));
    }
  }
  const double mean = sum / kInstances;
  const std::string summary =
      fmt::format("mean {:.4f} of the optimum, {} of {} optimal, worst {:.4f}, {}", mean, optimal,
                  kInstances, worst, shown);
  std::printf("%s\n", summary.c_str());
  EXPECT_GE(mean, 0.97);
  EXPECT_GE(worst, 0.5);
}

}  // namespace
}  // namespace sluice
