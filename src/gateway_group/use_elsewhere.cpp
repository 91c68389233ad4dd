#include "gateway_group/use_elsewhere.h"

#include <algorithm>
#include <limits>

namespace sluice {
namespace {

// Sums of what others wrote must not overflow.
void add(std::int64_t more, std::int64_t& to) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  to = more > kMost - to ? kMost : to + more;
}

}  // namespace

const std::map<std::string, TenantElsewhere>& UseElsewhere::update(
    const std::map<std::string, GatewayUse>& gateways, const std::set<std::string>& live,
    std::string_view day) {
  for (auto& [name, tenant] : tenants_) tenant = {};
  const std::string_view month = day.substr(0, 7);
  for (const auto& [gateway, use] : gateways) {
    const auto last = last_.find(gateway);
    const bool is_known = last != last_.end();
    const bool is_same = is_known && last->second.process == use.process;
    const bool same_month = std::string_view(use.day).substr(0, 7) == month;
    for (const auto& [name, now] : use.tenants) {
      TenantElsewhere& tenant = tenants_[name];
      TenantUse before;
      if (is_same) {
        const auto found = last->second.tenants.find(name);
        if (found != last->second.tenants.end()) before = found->second;
      }
      if (is_known) {
        add(std::max<std::int64_t>(0, now.requests - before.requests), tenant.new_requests);
        add(std::max<std::int64_t>(0, now.tokens - before.tokens), tenant.new_tokens);
      }
      if (live.contains(gateway)) add(now.calls, tenant.calls);
      if (!same_month) continue;
      add(now.micro_units_before, tenant.micro_units_before);
      // A clock that is ahead has begun the next day already; the day is the same one to the bill.
      add(now.micro_units, use.day < day ? tenant.micro_units_before : tenant.micro_units);
    }
  }
  for (const auto& [gateway, use] : gateways) last_[gateway] = use;
  return tenants_;
}

const TenantElsewhere* UseElsewhere::of(const std::string& tenant) const {
  const auto found = tenants_.find(tenant);
  return found == tenants_.end() ? nullptr : &found->second;
}

}  // namespace sluice
