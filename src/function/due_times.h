// When a function owes its clients tokens. These times order the turns of one tenant's functions
// (TurnKeeper) and promise nothing.
#pragma once

#include <algorithm>
#include <chrono>

#include "base/clock.h"
#include "request/request.h"

namespace sluice {

// The first token after the arrival, if the request has no sooner goal.
inline constexpr Duration kFirstTokenDue = std::chrono::milliseconds(250);
inline constexpr Duration kNextTokenDue = std::chrono::milliseconds(50);  // after the last ones

// A goal that is later makes nothing later: a function that waits for it would only lose time.
inline TimePoint first_token_due(const Request& request) {
  const Duration goal = request.ttft_goal.value_or(kFirstTokenDue);
  return request.arrival + std::clamp(goal, Duration(0), kFirstTokenDue);
}

}  // namespace sluice
