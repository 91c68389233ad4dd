// UseElsewhere: what tenants use at the other gateways of a group. It compares what those gateways
// say now with what they said before.
//
// Counts of a process that is seen for the first time, beside one that replaces an earlier process
// of its gateway, are a start and not new: how old they are is unknown. Calls count only while
// their gateway lives. Units count for the day and the month that the caller is in.
// Pure: no clock. Owner: the command. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "gateway_group/group_message.h"

namespace sluice {

struct TenantElsewhere {
  std::int64_t new_requests = 0;  // since the last update
  std::int64_t new_tokens = 0;
  std::int64_t calls = 0;
  std::int64_t micro_units = 0;         // of the day
  std::int64_t micro_units_before = 0;  // of the month, before the day
};

class UseElsewhere {
 public:
  // `gateways`: all but the own one, by name. `live`: their names. Returns an entry for each tenant
  // that was ever seen.
  const std::map<std::string, TenantElsewhere>& update(
      const std::map<std::string, GatewayUse>& gateways, const std::set<std::string>& live,
      std::string_view day);
  // As of the last update. Null: none of the others has seen this tenant.
  const TenantElsewhere* of(const std::string& tenant) const;

 private:
  std::map<std::string, GatewayUse> last_;
  std::map<std::string, TenantElsewhere> tenants_;
};

}  // namespace sluice
