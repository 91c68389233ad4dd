// Places models without a solver: the largest groups first, each where the objective rises least,
// then exchanges between servers while they improve, then again from the best placement after a few
// random exchanges. Deterministic; pure; any thread.
// Time: a second or less for 128 GPUs; at most kMaxTries exchanges are tried.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "placement/cluster.h"

namespace sluice {

inline constexpr std::int64_t kMaxTries = 50'000'000;

// kResourceExhausted: a group finds no server with enough free GPUs, although GPUs are free.
Result<ModelPlacement> place_greedily(const Cluster& cluster);

}  // namespace sluice
