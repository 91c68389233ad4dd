// When a function owes its clients tokens. These times order the turns of one tenant's functions
// (TurnKeeper) and promise nothing.
#pragma once

#include <chrono>

#include "base/clock.h"

namespace sluice {

inline constexpr Duration kFirstTokenDue = std::chrono::milliseconds(250);  // after the arrival
inline constexpr Duration kNextTokenDue = std::chrono::milliseconds(50);    // after the last ones

}  // namespace sluice
