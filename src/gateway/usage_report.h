// The answers of GET /v1/usage: rows of usage with their price, as JSON or CSV. The price of a row
// follows the tiers of its tenant's units in that month, day by day.
// Pure functions; any thread.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/usage_row.h"
#include "server/api_error.h"
#include "serverless/bill.h"

namespace sluice {

enum class UsageFormat : std::uint8_t { kJson, kCsv };

// The question of a caller: days, both included, and a format.
struct UsageQuery {
  std::string first;
  std::string last;
  UsageFormat format = UsageFormat::kJson;
};

// From the text after '?': start_date, end_date (2026-11-23), format (json, csv). Without dates:
// the month of `today`, until today. 400 for other fields and for wrong values.
ApiResult<UsageQuery> parse_usage_query(std::string_view query, std::string_view today);

// The first day of the month of a day; prices of its later days depend on all of them.
std::string month_start(std::string_view day);

// A report has the rows of one gateway of several.
struct UsageGateways {
  std::string own;
  std::vector<std::string> others;  // their rows are missing
};

// The report of `rows`, which begin with month_start(query.first). `tenant`: only its rows; absent:
// all, and the platform's. `gateways`: none: there is one.
std::string usage_report(std::span<const UsageRow> rows, const UsageQuery& query,
                         const std::optional<std::string>& tenant, const PriceList& prices,
                         const std::optional<UsageGateways>& gateways = std::nullopt);

}  // namespace sluice
