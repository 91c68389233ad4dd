// Profiler: measures the grid of steps from which a machine profile is fitted, within a time
// limit. Points come in random order, round after round, so that a machine that is busy for a
// while does not distort one corner of the grid; a point's figure is the median of its runs.
// Owner: a command. Threads: the executor's.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/function_ref.h"
#include "base/result.h"
#include "profile/machine_profile.h"
#include "profile/step_runner.h"

namespace sluice {

struct ProfilerOptions {
  Duration time_limit = std::chrono::seconds(120);
  std::int32_t repeats = 9;  // at most, of each point
  std::uint64_t seed = 1;    // of the order of points and the choice of held-out points
};

struct ProfilerProgress {
  Duration elapsed{0};
  std::int32_t points = 0;    // of the grid
  std::int32_t measured = 0;  // of these, at least once
  std::int32_t runs = 0;
  std::int32_t all_runs = 0;  // without a time limit
};

// A shape of the grid. Essential shapes are measured first, because the fit needs them.
struct GridPoint {
  StepShape shape;
  bool essential = false;
};

// The grid has prompts alone (with neighbours that reveal tiles), decodes alone over batch and
// context, chunks after contexts, and chunks with decodes, as far as the runner can run them.
std::vector<GridPoint> profile_grid(const StepRunner& runner, const StepLimits& limits);

// Called before each run; false ends the measurement with kCancelled.
using ProfilerObserver = FunctionRef<bool(const ProfilerProgress&)>;

// Measures the points of the grid for which the time limit suffices. Skips a point that is expected
// to take more than a fortieth of the limit (an essential point: an eighth). Does not start a step
// that is expected to pass the limit, so at most the running step passes it.
Result<std::vector<ProfilePoint>> measure_points(StepRunner& runner,
                                                 const std::vector<GridPoint>& grid,
                                                 const ProfilerOptions& options, const Clock& clock,
                                                 ProfilerObserver observer);

}  // namespace sluice
