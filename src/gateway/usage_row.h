// UsageRow: how much one function used on one day (UTC), since the first request ever of that day.
// Values: plain.
#pragma once

#include <cstdint>
#include <string>

#include "serverless/usage_meter.h"

namespace sluice {

struct UsageRow {
  std::string day;       // "2026-11-23"
  std::string tenant;    // empty: the platform, which has all that no function used
  std::string function;  // its full name; empty: the platform
  FunctionUsage usage;
  std::int64_t prompt_tokens = 0;
  std::int64_t output_tokens = 0;
};

// Adds all counts.
void add_usage(const FunctionUsage& more, FunctionUsage& to);

}  // namespace sluice
