// Times of day as trace files write them: "2023-11-16 18:15:46.6805900", a T in the middle, up to
// nine digits behind the point, and a zone ("Z", "+00:00") allowed. Pure; any thread.
#pragma once

#include <optional>
#include <string_view>

#include "base/clock.h"

namespace sluice {

// Since 1970 in UTC (without a zone: taken as UTC); nothing if it is no such time, or one before
// 1970 or after 2199.
std::optional<Duration> parse_timestamp(std::string_view text);

}  // namespace sluice
