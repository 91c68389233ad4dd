// read_group_usage(): gets the rows of usage that the other gateways of a group have put into etcd
// (usage_part.h). Blocks the caller. Any thread.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "gateway/usage_row.h"
#include "gateway_group/usage_publisher.h"

namespace sluice {

// The sums of all gateways but the one whose file of usage is `own_store`, of the days from `first`
// to `last`, in order of day, tenant and function.
Result<std::vector<UsageRow>> read_group_usage(const std::string& prefix,
                                               const std::string& own_store,
                                               const std::string& first, const std::string& last,
                                               const UsagePublisher::Ask& ask);

}  // namespace sluice
