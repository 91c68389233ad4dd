// Reads a cluster from the JSON file of `sluice place` (docs/placement.md).
// Errors name `file`, the field and the value expected. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "placement/cluster.h"

namespace sluice {

inline constexpr std::uint64_t kMaxClusterFileBytes = std::uint64_t{1} << 20;

// `file` names the text in errors.
Result<Cluster> parse_cluster(std::string_view text, const std::string& file);

}  // namespace sluice
