// The answers of GET /v1/usage: rows of usage with their price, as JSON or CSV. The price of a row
// follows the tiers of its tenant's units in that month, day by day.
// Pure functions; any thread.
#pragma once

#include <cstdint>
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

// Whether a text is YYYY-MM-DD, of a day that there is.
bool is_day(std::string_view text);

// The first day of the month of a day; prices of its later days depend on all of them.
std::string month_start(std::string_view day);

// The gateways of a group, as a report names them.
struct UsageGateways {
  struct Other {
    std::string name;
    std::int64_t age_s = 0;  // of its rows in the report
  };
  std::string own;
  std::vector<Other> others;         // their rows are in the report
  std::vector<std::string> missing;  // their rows are not

  // Without rows of others.
  UsageGateways alone() const;
};

// The report of `rows`, which begin with month_start(query.first). `tenant`: only its rows; absent:
// all, and the platform's. `gateways`: none: there is no group.
std::string usage_report(std::span<const UsageRow> rows, const UsageQuery& query,
                         const std::optional<std::string>& tenant, const PriceList& prices,
                         const std::optional<UsageGateways>& gateways = std::nullopt);

}  // namespace sluice
