// The times of turns: TurnKeeper and TurnGate follow them, and so does the simulator of functions.
#pragma once

#include <chrono>

#include "base/clock.h"

namespace sluice {

// A turn that another function wants goes on for this long at least. A hand-over takes up to
// 0.3 ms, so this bounds its share of the time of small models.
inline constexpr Duration kTurnQuantum = std::chrono::milliseconds(5);
// A function owes the first token this long after the arrival, if the request has no sooner goal.
inline constexpr Duration kFirstTokenDue = std::chrono::milliseconds(250);
inline constexpr Duration kNextTokenDue = std::chrono::milliseconds(50);  // after the last ones
// A step should take no longer than this while another function waits.
inline constexpr Duration kSharedTurnStep = std::chrono::milliseconds(50);
// Another function may come during any step. After TurnKeeper's suspend_after, twice this, the
// server takes the turn away.
inline constexpr Duration kLongestTurnStep = std::chrono::milliseconds(250);

}  // namespace sluice
