#include "apps/gateway_usage.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "base/sha256.h"
#include "base/thread_pool.h"
#include "base/unix_time.h"
#include "server/error_response.h"

namespace sluice {
namespace {

constexpr std::uint64_t kMaxPriceBytes = std::uint64_t{1} << 20;
constexpr std::int64_t kSecondsOfDay = 86'400;
constexpr const char* kEndOfTime = "9999-12-31";

std::string absolute_variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && value[0] == '/' ? value : "";
}

// A file for each functions file, by its path.
Result<std::string> usage_file(const GatewayArguments& arguments) {
  if (!arguments.usage.empty()) return arguments.usage;
  std::string folder = absolute_variable("XDG_STATE_HOME");
  if (folder.empty() && !absolute_variable("HOME").empty()) {
    folder = absolute_variable("HOME") + "/.local/state";
  }
  if (folder.empty()) {
    return invalid_argument("neither XDG_STATE_HOME nor HOME is set; give --usage FILE");
  }
  folder += "/sluice";
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return unavailable(
        fmt::format("{}: {}; give another file with --usage", folder, error.message()));
  }
  const std::string config = std::filesystem::absolute(arguments.functions).lexically_normal();
  return fmt::format("{}/usage-{}.db", folder, to_hex(sha256(config)).substr(0, 12));
}

Result<PriceList> read_prices(const std::string& path) {
  if (path.empty()) return alibaba_prices();
  ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxPriceBytes));
  return parse_prices(text, path);
}

// The first day of the month before this one.
std::string last_month() {
  const int days = std::stoi(utc_text(unix_seconds(), "%d"));
  return month_start(utc_text(unix_seconds() - days * kSecondsOfDay, "%Y-%m-%d"));
}

std::vector<http::Header> gateway_headers(const UsageGateways& gateways) {
  std::vector<http::Header> headers;
  if (!gateways.missing.empty()) {
    headers.push_back(
        {"Sluice-Other-Gateways", fmt::format("{}", fmt::join(gateways.missing, ", "))});
  }
  std::string ages;
  for (const UsageGateways::Other& other : gateways.others) {
    ages += fmt::format("{}{}={}", ages.empty() ? "" : ", ", other.name, other.age_s);
  }
  if (!ages.empty()) headers.push_back({"Sluice-Gateway-Ages", std::move(ages)});
  return headers;
}

}  // namespace

std::string today() { return utc_text(unix_seconds(), "%Y-%m-%d"); }

Result<GatewayUsage> open_usage(const GatewayArguments& arguments) {
  GatewayUsage usage;
  ASSIGN_OR_RETURN(usage.prices, read_prices(arguments.prices));
  ASSIGN_OR_RETURN(const std::string path, usage_file(arguments));
  ASSIGN_OR_RETURN(usage.store, UsageStore::open(path));
  usage.first_day = month_start(today());
  ASSIGN_OR_RETURN(usage.rows, usage.store->read(usage.first_day, kEndOfTime));
  if (!arguments.group.etcd.urls.empty()) {
    ASSIGN_OR_RETURN(usage.group.store, usage.store->id());
    ASSIGN_OR_RETURN(usage.group.rows, usage.store->read(last_month(), kEndOfTime));
  }
  usage.capacity.cores = available_cpus();
  usage.capacity.bytes[static_cast<std::size_t>(MemoryKind::kHost)] =
      static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  log_info(fmt::format("usage is kept in {}", path));
  return usage;
}

OwnRoute usage_route() {
  OwnRoute route;
  route.method = "GET";
  route.path = "/v1/usage";
  route.summary = "Usage and cost by day and function, as JSON or CSV";
  route.query = {{.name = "start_date", .format = "date"},
                 {.name = "end_date", .format = "date"},
                 {.name = "format", .values = {"json", "csv"}}};
  route.other_content_type = "text/csv";
  return route;
}

void answer_usage(UsageKeeper& usage, std::string_view query, const ApiKey& key,
                  const std::optional<UsageGateways>& gateways, const OwnRoute::Answer& answer) {
  const auto parsed = parse_usage_query(query, today());
  if (!parsed) return answer(error_response(parsed.error(), {}));
  std::optional<std::string> tenant;
  if (!key.is_admin) tenant = key.name;
  const bool csv = parsed->format == UsageFormat::kCsv;
  const auto done = [answer, csv](Result<UsageKeeper::Report> report) {
    if (!report) {
      log_error("/v1/usage: " + report.error().message);
      return answer(error_response(
          to_api_error(unavailable("the usage cannot be read; the operator's log has the reason")),
          {}));
    }
    http::Response response;
    if (csv) response.content_type = "text/csv; charset=utf-8";
    if (report->gateways) response.headers = gateway_headers(*report->gateways);
    response.body = std::move(report->text);
    answer(std::move(response));
  };
  usage.report(today(), *parsed, std::move(tenant), gateways, done);
}

std::optional<ApiError> refuse_money(const FunctionsFile& file, const UsageBook& book,
                                     const PriceList& prices, std::string_view tenant,
                                     const MoneyElsewhere& elsewhere) {
  const auto found = std::ranges::find(file.tenants, tenant, &TenantSpec::name);
  if (found == file.tenants.end() || !found->quotas.money_per_day) return std::nullopt;
  const double limit = *found->quotas.money_per_day;
  const UsageBook::TenantUnits own = book.units_of_tenant(tenant, prices);
  const auto money = [&](double own_units) {
    return money_for(own_units + elsewhere.units, own.before + elsewhere.units_before, prices);
  };
  const double used = money(own.day);
  // While etcd is lost, others spend their parts of what all knew to be left.
  const double known = money(std::min(elsewhere.own_units_known, own.day));
  const double part = known + std::max(0.0, limit - known) / elsewhere.parts;
  if (used < (elsewhere.parts > 1 ? part : limit)) return std::nullopt;
  ApiError error;
  error.status = 429;
  error.type = "insufficient_quota";
  error.code = "insufficient_quota";
  error.message = fmt::format(
      "'{}' has used {:.4f} {} today, its limit (money_per_day) is {:.4f}; the day ends at 00:00 "
      "UTC",
      tenant, used, prices.currency, limit);
  error.retry_after_s = static_cast<int>(kSecondsOfDay - unix_seconds() % kSecondsOfDay);
  return error;
}

}  // namespace sluice
