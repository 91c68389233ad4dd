// GatewayUse: what one gateway tells the others of its group: how much its tenants have used. It
// lies in etcd as JSON; docs/gateway-machines.md lists the keys.
// Values: plain. Functions: pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/result.h"

namespace sluice {

// Bytes of one gateway's JSON. etcd takes at most 1.5 MiB in a request.
inline constexpr std::size_t kMaxGroupUse = std::size_t{1} << 20;

struct TenantUse {
  std::int64_t requests = 0;  // since the start of the process
  std::int64_t tokens = 0;    // of prompts and answers, since then
  std::int64_t calls = 0;     // that are not answered yet
  // Units of the bill, in millionths: of the day, and of the days before it in its month.
  std::int64_t micro_units = 0;
  std::int64_t micro_units_before = 0;
  friend bool operator==(const TenantUse&, const TenantUse&) = default;
};

struct GatewayUse {
  std::string process;  // counts begin at 0 with each process
  std::string day;      // "2026-11-25"
  std::map<std::string, TenantUse> tenants;
  friend bool operator==(const GatewayUse&, const GatewayUse&) = default;
};

std::string group_use_json(const GatewayUse& use);
// Errors name the field.
Result<GatewayUse> parse_group_use(std::string_view text);

}  // namespace sluice
