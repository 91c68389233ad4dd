// The bills of `sluice gateway`: opening the file that keeps usage, its prices, the endpoint
// /v1/usage, and the quota of money.
// Functions; the event loop's thread, before or while it runs.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/gateway.h"
#include "apps/gateway_member.h"
#include "base/result.h"
#include "gateway/usage_keeper.h"
#include "server/api_error.h"
#include "server/api_keys.h"
#include "server/own_route.h"
#include "serverless/functions_file.h"

namespace sluice {

struct GatewayUsage {
  std::unique_ptr<UsageStore> store;
  std::string first_day;       // of this month
  std::vector<UsageRow> rows;  // of that day and all later ones
  PriceList prices;
  MachineCapacity capacity;
  GroupUsageStart group;  // with --etcd
};

Result<GatewayUsage> open_usage(const GatewayArguments& arguments);

// The date, UTC: "2026-11-23".
std::string today();

// GET /v1/usage as /openapi.json describes it; its `handle` is empty.
OwnRoute usage_route();

// Answers GET /v1/usage: an admin key sees all rows, a tenant's key its own. In a group, the answer
// has the rows of `gateways`, says how old they are, and names the gateways whose rows it lacks.
void answer_usage(UsageKeeper& usage, std::string_view query, const ApiKey& key,
                  const std::optional<UsageGateways>& gateways, const OwnRoute::Answer& answer);

// 429 once a tenant has used its money_per_day, until the next day.
std::optional<ApiError> refuse_money(const FunctionsFile& file, const UsageBook& book,
                                     const PriceList& prices, std::string_view tenant,
                                     const MoneyElsewhere& elsewhere);

}  // namespace sluice
