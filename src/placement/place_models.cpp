#include "placement/place_models.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "placement/cbc_solver.h"
#include "placement/greedy_placer.h"
#include "placement/placer_program.h"
#include "placement/server_patterns.h"

namespace sluice {
namespace {

std::int64_t objective_step(const Cluster& cluster) {
  return std::gcd(spare_unit_mb(cluster), cluster.gpu_memory_mb);
}

// Narrows the optimum between a bound and the objective of a placement, by asking CBC whether there
// is a placement with an objective of at most X.
class PatternSearch {
 public:
  PatternSearch(const Cluster& cluster, const PlacerOptions& options, const Clock& clock,
                ModelPlacement start)
      : cluster_(cluster),
        options_(options),
        clock_(clock),
        step_(objective_step(cluster)),
        best_(std::move(start)),
        objective_(objective_mb(cluster, best_)),
        bound_(mean_bound_mb(cluster)) {}

  // False: the patterns are too many, and another formulation is needed.
  Result<bool> run();
  void store(PlacerResult& result);

 private:
  enum class Answer : std::uint8_t { kNone, kFound, kUnknown, kTooMany, kNoSolver };
  Result<Answer> ask(std::int64_t most, Duration limit);
  Result<Answer> ask_level(const ServerPatterns& patterns, Duration limit);

  const Cluster& cluster_;
  const PlacerOptions& options_;
  const Clock& clock_;
  const std::int64_t step_;
  ModelPlacement best_;
  std::int64_t objective_;
  std::int64_t bound_;
  bool improved_ = false;
  std::string not_run_;
};

Result<bool> PatternSearch::run() {
  const TimePoint end = clock_.now() + options_.time_limit;
  // Most often the first placement is the best one, and the first answer proves it.
  std::int64_t most = objective_ - step_;
  std::int64_t open = objective_;  // whether there is one below was too hard to answer
  while (bound_ < objective_ && most >= bound_) {
    // A question that is too hard leaves as much time for easier ones.
    const Duration left = end - clock_.now();
    if (left <= Duration::zero()) break;
    ASSIGN_OR_RETURN(const Answer answer, ask(most, left / 2));
    if (answer == Answer::kTooMany) return false;
    if (answer == Answer::kNoSolver) break;
    if (answer == Answer::kNone) bound_ = most + step_;
    if (answer == Answer::kUnknown) open = most;
    const std::int64_t highest = std::min(objective_, open) - step_;
    most = bound_ + (highest - bound_) / (2 * step_) * step_;
    if (highest < bound_) break;
  }
  return true;
}

// The objective is a sum of two maxima: one question for each value that the second may have.
Result<PatternSearch::Answer> PatternSearch::ask(std::int64_t most, Duration limit) {
  const TimePoint end = clock_.now() + limit;
  const PlacementLimits means = mean_limits(cluster_);
  Answer answer = Answer::kNone;
  for (std::int64_t n = means.producers; n <= cluster_.gpus_per_server; ++n) {
    const std::int64_t spare = most - n * cluster_.gpu_memory_mb;
    if (spare < means.spare_mb) break;
    const auto patterns = ServerPatterns::list(cluster_, {spare, n});
    if (!patterns) return Answer::kTooMany;
    if (!patterns->reach_producers() || !patterns->cover_all_kinds()) continue;
    const Duration left = end - clock_.now();
    if (left <= Duration::zero()) return Answer::kUnknown;
    ASSIGN_OR_RETURN(const Answer level, ask_level(*patterns, left));
    if (level == Answer::kFound || level == Answer::kNoSolver) return level;
    if (level == Answer::kUnknown) answer = level;
  }
  return answer;
}

Result<PatternSearch::Answer> PatternSearch::ask_level(const ServerPatterns& patterns,
                                                       Duration limit) {
  if (options_.solver.empty()) {
    not_run_ = "it was not asked for";
    return Answer::kNoSolver;
  }
  ASSIGN_OR_RETURN(CbcRun run, run_cbc(options_.solver, patterns.program(), limit));
  not_run_ = std::move(run.not_run);
  if (!not_run_.empty()) return Answer::kNoSolver;
  if (run.solution.infeasible) return Answer::kNone;
  ASSIGN_OR_RETURN(auto placement, patterns.placement_of(run.solution));
  if (!placement) return Answer::kUnknown;
  objective_ = objective_mb(cluster_, *placement);
  best_ = *std::move(placement);
  improved_ = true;
  return Answer::kFound;
}

void PatternSearch::store(PlacerResult& result) {
  result.placement = std::move(best_);
  result.objective_mb = objective_;
  result.bound_mb = static_cast<double>(bound_);
  result.from_solver = improved_;
  result.without_cbc = std::move(not_run_);
}

// For clusters with too many patterns, and where the greedy placement failed. `result` has the best
// placement so far, if there is one.
Status solve_by_servers(const Cluster& cluster, const PlacerOptions& options,
                        PlacerResult& result) {
  const bool placed = !result.placement.counts.empty();
  ASSIGN_OR_RETURN(CbcRun run,
                   run_cbc(options.solver, placer_program(cluster), options.time_limit));
  result.without_cbc = run.not_run;
  if (run.solution.infeasible) {
    return resource_exhausted(
        "the tensor-parallel groups do not fit the servers in any way; lower a count or add "
        "servers");
  }
  ASSIGN_OR_RETURN(auto solved, placement_of(cluster, run.solution));
  if (run.lower_bound) result.bound_mb = std::max(result.bound_mb, *run.lower_bound);
  if (!solved) return {};
  const std::int64_t value = objective_mb(cluster, *solved);
  if (run.solution.optimal) result.bound_mb = static_cast<double>(value);
  if (placed && value >= result.objective_mb) return {};
  result.from_solver = true;
  result.objective_mb = value;
  result.placement = *std::move(solved);
  return {};
}

}  // namespace

double PlacerResult::gap() const {
  const auto objective = static_cast<double>(objective_mb);
  const double size = std::max(std::abs(objective), std::abs(bound_mb));
  return size > 0 ? std::max(0.0, objective - bound_mb) / size : 0;
}

Result<PlacerResult> place_models(const Cluster& cluster, const PlacerOptions& options,
                                  const Clock& clock) {
  const TimePoint start = clock.now();
  auto greedy = place_greedily(cluster);
  PlacerResult result;
  result.bound_mb = static_cast<double>(mean_bound_mb(cluster));
  bool answered = false;
  if (greedy) {
    PatternSearch search(cluster, options, clock, *std::move(greedy));
    ASSIGN_OR_RETURN(answered, search.run());
    search.store(result);
  }
  if (!answered) {
    RETURN_IF_ERROR(solve_by_servers(cluster, options, result));
    if (result.placement.counts.empty()) return std::move(greedy).error();
  }
  // Objectives are multiples of a number, which the solver's bound need not be.
  const auto step = static_cast<double>(objective_step(cluster));
  result.bound_mb = std::min(step * std::ceil(result.bound_mb / step - 1e-6),
                             static_cast<double>(result.objective_mb));
  result.optimal = result.bound_mb == static_cast<double>(result.objective_mb);
  result.seconds = std::chrono::duration<double>(clock.now() - start).count();
  return result;
}

}  // namespace sluice
