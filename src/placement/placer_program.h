// The placement as an integer linear program in CPLEX's LP format, and the solver's answer.
// Equations 1 to 6 of Aqua (https://arxiv.org/abs/2407.21255, section 5) over counts per server and
// kind: models of one kind are alike, which leaves out the permutations that cost a solver time.
// Both maxima are integer variables above their means, so both may be negative. Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "placement/cluster.h"

namespace sluice {

std::string placer_program(const Cluster& cluster);

struct SolverAnswer {
  std::optional<ModelPlacement> placement;  // absent: the solver found none in its time
  bool optimal = false;
  bool infeasible = false;
};

// The text of CBC's solution file. The placement is checked. Errors: it is no such text, or names
// what the program does not have.
Result<SolverAnswer> parse_solution(const Cluster& cluster, std::string_view text);

// "Lower bound:" in MB of what CBC prints when its time is over; absent: it is not there.
std::optional<double> parse_lower_bound(std::string_view output);

}  // namespace sluice
