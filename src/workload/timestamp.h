// Parses the times of trace files: "2023-11-16 18:15:46.6805900". A T in the middle, up to nine
// decimal digits and a zone ("Z", "+00:00") are allowed. Pure; any thread.
#pragma once

#include <optional>
#include <string_view>

#include "base/clock.h"

namespace sluice {

// The time since 1970 in UTC (a time without a zone is taken as UTC); nothing if the text is not
// such a time, or is before 1970 or after 2199.
std::optional<Duration> parse_timestamp(std::string_view text);

}  // namespace sluice
