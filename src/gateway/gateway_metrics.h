// Appends a gateway's own metrics to an exposition; docs/metrics.md explains each. Pure.
#pragma once

#include <string>
#include <string_view>

#include "gateway/gateway_counts.h"

namespace sluice {

void write_gateway_metrics(const GatewayCounts& counts, std::string_view prefix, std::string& out);

}  // namespace sluice
