// place_models(): the whole placer. It places greedily, then asks CBC (cbc_solver.h) for better
// placements, over patterns of servers where these are few (server_patterns.h), else over all
// servers at once (placer_program.h). The best placement and the best bound are the result.
// Owner: the caller. Threads: blocks the caller's, also for its child processes.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "placement/cluster.h"

namespace sluice {

struct PlacerOptions {
  std::string solver = "cbc";  // by path or on PATH; empty: greedy only
  Duration time_limit = std::chrono::milliseconds(4000);
};

struct PlacerResult {
  ModelPlacement placement;
  std::int64_t objective_mb = 0;
  double bound_mb = 0;  // no placement has a lower objective
  bool from_solver = false;
  bool optimal = false;     // the objective equals the bound
  std::string without_cbc;  // why the solver could not run; empty: it ran or was not needed
  double seconds = 0;

  // How far the objective may be above the optimum, relative to the larger magnitude of the two.
  double gap() const;
};

// Errors: the groups do not fit the servers, or the solver answered what it must not.
Result<PlacerResult> place_models(const Cluster& cluster, const PlacerOptions& options,
                                  const Clock& clock);

}  // namespace sluice
