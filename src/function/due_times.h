// When a function owes its clients tokens. These times order the turns of one tenant's functions
// (TurnKeeper) and promise nothing.
#pragma once

#include <algorithm>

#include "base/clock.h"
#include "request/request.h"
#include "turns/turn_times.h"

namespace sluice {

// A goal that is later makes nothing later: a function that waits for it would only lose time.
inline TimePoint first_token_due(const Request& request) {
  const Duration goal = request.ttft_goal.value_or(kFirstTokenDue);
  return request.arrival + std::clamp(goal, Duration(0), kFirstTokenDue);
}

}  // namespace sluice
