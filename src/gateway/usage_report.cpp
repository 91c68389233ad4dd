#include "gateway/usage_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/calendar_day.h"
#include "server/json_writer.h"

namespace sluice {
namespace {

constexpr std::string_view kPlatform = "(platform)";

struct PricedRow {
  const UsageRow* row = nullptr;
  double units = 0;
  double cost = 0;
};

double gigabyte_seconds(Amount byte_ns) { return static_cast<double>(byte_ns) * 1e-18; }

double core_seconds(Amount core_ns) { return static_cast<double>(core_ns) * 1e-9; }

std::vector<PricedRow> priced_rows(std::span<const UsageRow> rows, const UsageQuery& query,
                                   const std::optional<std::string>& tenant,
                                   const PriceList& prices) {
  std::map<std::pair<std::string, std::string>, double> before;  // units, by tenant and month
  std::vector<PricedRow> priced;
  for (const UsageRow& row : rows) {
    if (tenant && row.tenant != *tenant) continue;
    double& units_before = before[{row.tenant, row.day.substr(0, 7)}];
    const double units = units_of(row.usage, prices).total();
    const double cost = money_for(units, units_before, prices);
    units_before += units;
    if (row.day < query.first || row.day > query.last) continue;
    priced.push_back({&row, units, cost});
  }
  return priced;
}

void append_amounts(const FunctionUsage& usage, double units, double cost, std::string& out) {
  out += fmt::format(R"("requests":{},"core_seconds":{:.9f},"memory_gb_seconds":{{)",
                     usage.requests, core_seconds(usage.core_ns));
  for (std::size_t k = 0; k < kMemoryKinds; ++k) {
    out += fmt::format(R"({}"{}":{{"active":{:.9f},"idle":{:.9f}}})", k == 0 ? "" : ",",
                       memory_kind_name(static_cast<MemoryKind>(k)),
                       gigabyte_seconds(usage.memory[k].active),
                       gigabyte_seconds(usage.memory[k].idle));
  }
  out += fmt::format(R"(}},"units":{:.9f},"cost":{:.9f})", units, cost);
}

// A sum of rows.
struct UsageSum {
  FunctionUsage usage;
  std::int64_t prompt_tokens = 0;
  std::int64_t output_tokens = 0;
  double units = 0;
  double cost = 0;

  void add(const PricedRow& priced) {
    add_usage(priced.row->usage, usage);
    prompt_tokens += priced.row->prompt_tokens;
    output_tokens += priced.row->output_tokens;
    units += priced.units;
    cost += priced.cost;
  }
  void append_to(std::string& out) const {
    out += fmt::format(R"("prompt_tokens":{},"output_tokens":{},)", prompt_tokens, output_tokens);
    append_amounts(usage, units, cost, out);
  }
};

// Each tenant's sum; without the platform's, which is no tenant.
void append_tenants(std::span<const PricedRow> rows, std::string& out) {
  std::map<std::string, UsageSum> sums;
  for (const PricedRow& priced : rows) {
    if (!priced.row->tenant.empty()) sums[priced.row->tenant].add(priced);
  }
  out += R"("tenants":)";
  append_json_list(sums, out, [&](const auto& sum) {
    out += fmt::format(R"({{"tenant":{},)", json_string(sum.first));
    sum.second.append_to(out);
    out += '}';
  });
}

void append_gateways(const UsageGateways& gateways, std::string& out) {
  std::vector<std::string> names = {gateways.own};
  for (const UsageGateways::Other& other : gateways.others) names.push_back(other.name);
  const auto append_name = [&](const std::string& name) { append_json_string(name, out); };
  out += R"("gateways":)";
  append_json_list(names, out, append_name);
  out += R"(,"gateway_ages_s":{)";
  for (const UsageGateways::Other& other : gateways.others) {
    if (out.back() != '{') out += ',';
    out += fmt::format("{}:{}", json_string(other.name), other.age_s);
  }
  out += R"(},"other_gateways":)";
  append_json_list(gateways.missing, out, append_name);
  out += ',';
}

std::string json_report(std::span<const PricedRow> rows, const UsageQuery& query,
                        const PriceList& prices, const std::optional<UsageGateways>& gateways) {
  std::string out =
      fmt::format(R"({{"object":"usage","start_date":"{}","end_date":"{}","currency":{},)",
                  query.first, query.last, json_string(prices.currency));
  if (gateways) {
    append_gateways(*gateways, out);
  }
  out += R"("data":)";
  UsageSum total;
  append_json_list(rows, out, [&](const PricedRow& priced) {
    const UsageRow& row = *priced.row;
    const bool platform = row.tenant.empty();
    out += fmt::format(R"({{"date":"{}","tenant":{},"function":{},)", row.day,
                       platform ? "null" : json_string(row.tenant),
                       json_string(platform ? kPlatform : std::string_view(row.function)));
    out += fmt::format(R"("prompt_tokens":{},"output_tokens":{},)", row.prompt_tokens,
                       row.output_tokens);
    append_amounts(row.usage, priced.units, priced.cost, out);
    out += '}';
    total.add(priced);
  });
  out += ',';
  append_tenants(rows, out);
  out += R"(,"total":{)";
  total.append_to(out);
  out += "}}";
  return out;
}

// Names have neither commas nor quotes.
std::string csv_report(std::span<const PricedRow> rows, const PriceList& prices) {
  std::string out =
      "date,tenant,function,requests,prompt_tokens,output_tokens,core_seconds,"
      "host_active_gb_seconds,host_idle_gb_seconds,device_active_gb_seconds,"
      "device_idle_gb_seconds,disk_active_gb_seconds,disk_idle_gb_seconds,units,cost,currency\n";
  for (const PricedRow& priced : rows) {
    const UsageRow& row = *priced.row;
    const bool platform = row.tenant.empty();
    out += fmt::format("{},{},{},{},{},{},{:.9f}", row.day, row.tenant,
                       platform ? kPlatform : std::string_view(row.function), row.usage.requests,
                       row.prompt_tokens, row.output_tokens, core_seconds(row.usage.core_ns));
    for (const ByteTime& memory : row.usage.memory) {
      out += fmt::format(",{:.9f},{:.9f}", gigabyte_seconds(memory.active),
                         gigabyte_seconds(memory.idle));
    }
    out += fmt::format(",{:.9f},{:.9f},{}\n", priced.units, priced.cost, prices.currency);
  }
  return out;
}

Status set_field(std::string_view name, std::string_view value, UsageQuery& query) {
  if (name == "format") {
    if (value != "json" && value != "csv") {
      return invalid_argument(fmt::format("format: must be json or csv, got '{}'", value));
    }
    query.format = value == "csv" ? UsageFormat::kCsv : UsageFormat::kJson;
    return {};
  }
  if (name != "start_date" && name != "end_date") {
    return invalid_argument(fmt::format(
        "there is no field '{}'; the query may have start_date, end_date and format", name));
  }
  if (!parse_day(value)) {
    return invalid_argument(
        fmt::format("{}: must be a date such as 2026-11-23, got '{}'", name, value));
  }
  (name == "start_date" ? query.first : query.last) = value;
  return {};
}

}  // namespace

bool is_day(std::string_view text) {
  if (text.size() != 10) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool fits =
        i == 4 || i == 7 ? text[i] == '-' : std::isdigit(static_cast<unsigned char>(text[i])) != 0;
    if (!fits) return false;
  }
  const auto number = [text](std::size_t at, std::size_t count) {
    int value = 0;
    for (const char digit : text.substr(at, count)) value = 10 * value + (digit - '0');
    return value;
  };
  return std::chrono::year_month_day(std::chrono::year(number(0, 4)),
                                     std::chrono::month(static_cast<unsigned>(number(5, 2))),
                                     std::chrono::day(static_cast<unsigned>(number(8, 2))))
      .ok();
}

std::string month_start(std::string_view day) { return std::string(day.substr(0, 8)) + "01"; }

ApiResult<UsageQuery> parse_usage_query(std::string_view query, std::string_view today) {
  UsageQuery parsed{month_start(today), std::string(today)};
  while (!query.empty()) {
    const std::string_view field = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(field.size() + 1, query.size()));
    if (field.empty()) continue;
    const std::size_t sign = field.find('=');
    const std::string_view name = field.substr(0, sign);
    const std::string_view value =
        sign == std::string_view::npos ? std::string_view() : field.substr(sign + 1);
    if (const Status status = set_field(name, value, parsed); !status) {
      return tl::unexpected(to_api_error(status.error(), std::string(name)));
    }
  }
  if (parsed.first > parsed.last) {
    return tl::unexpected(bad_field(
        "start_date",
        fmt::format("start_date: {} is after the end_date, {}", parsed.first, parsed.last)));
  }
  return parsed;
}

UsageGateways UsageGateways::alone() const {
  UsageGateways alone{own, {}, missing};
  for (const Other& other : others) alone.missing.push_back(other.name);
  std::ranges::sort(alone.missing);
  return alone;
}

std::string usage_report(std::span<const UsageRow> rows, const UsageQuery& query,
                         const std::optional<std::string>& tenant, const PriceList& prices,
                         const std::optional<UsageGateways>& gateways) {
  const std::vector<PricedRow> priced = priced_rows(rows, query, tenant, prices);
  return query.format == UsageFormat::kCsv ? csv_report(priced, prices)
                                           : json_report(priced, query, prices, gateways);
}

}  // namespace sluice
