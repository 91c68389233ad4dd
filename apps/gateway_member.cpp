#include "apps/gateway_member.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <cmath>
#include <thread>
#include <utility>

#include "apps/gateway_usage.h"
#include "apps/host_name.h"
#include "base/file.h"
#include "base/log.h"
#include "base/unix_time.h"
#include "etcd/ask_etcd.h"
#include "gateway_group/join_group.h"
#include "membership/member_table.h"
#include "metrics/prometheus.h"

namespace sluice {
namespace {

constexpr Duration kTick = std::chrono::milliseconds(100);
constexpr double kMicro = 1e6;

Result<GroupOptions> group_options(const GroupArguments& arguments) {
  RETURN_IF_ERROR(check_etcd_prefix(arguments.etcd.prefix));
  GroupOptions options;
  options.prefix = arguments.etcd.prefix;
  options.name = arguments.name.empty() ? host_name("gateway") : arguments.name;
  if (!is_member_name(options.name)) {
    return invalid_argument(
        fmt::format("--name must be {}, got '{}'", kMemberNameRule, options.name));
  }
  std::uint64_t process = 0;
  if (getrandom(&process, sizeof(process), 0) != static_cast<ssize_t>(sizeof(process))) {
    return unavailable("the system gives no random numbers");
  }
  options.process = fmt::format("{:016x}", process);
  return options;
}

std::int64_t micro(double units) {
  return static_cast<std::int64_t>(std::clamp(units * kMicro, 0.0, 9e18));
}

}  // namespace

Result<std::optional<JoinedGroup>> enter_group(const GroupArguments& arguments,
                                               const std::string& functions_path,
                                               const Clock& clock) {
  JoinedGroup joined;
  ASSIGN_OR_RETURN(joined.etcd, etcd_members(arguments.etcd));
  if (!joined.etcd) {
    if (arguments.name.empty()) return std::optional<JoinedGroup>();
    return invalid_argument("--name is for several gateways; it needs --etcd URL");
  }
  ASSIGN_OR_RETURN(joined.options, group_options(arguments));
  // One that is wrong must not become the group's.
  RETURN_IF_ERROR(load_functions(functions_path));
  ASSIGN_OR_RETURN(const std::string own, read_file(functions_path, GatewayGroup::kMaxFunctions));
  const GroupCalls calls{[&](const EtcdCall& call) { return ask_etcd(*joined.etcd, call); },
                         [](Duration time) { std::this_thread::sleep_for(time); }};
  auto start = join_group(joined.options, own, calls, clock);
  if (!start) return with_context("--etcd", std::move(start).error());
  joined.start = *std::move(start);
  return std::optional(std::move(joined));
}

Result<std::unique_ptr<GatewayMember>> GatewayMember::open(std::optional<JoinedGroup> joined,
                                                           const GroupUsageStart& usage,
                                                           http::EventLoop& loop,
                                                           const Clock& clock, const Parts& parts) {
  if (!joined) return std::unique_ptr<GatewayMember>();
  std::unique_ptr<GatewayMember> member(new GatewayMember(std::move(joined->etcd), loop, parts));
  auto etcd = EtcdClient::open(loop, *member->members_);
  if (!etcd) return with_context("--etcd", std::move(etcd).error());
  member->etcd_ = *std::move(etcd);
  member->name_ = joined->options.name;
  log_info(fmt::format("etcd: this gateway is '{}' below {}", joined->options.name,
                       joined->options.prefix));
  member->usage_ = std::make_unique<GroupUsage>(
      UsagePublisherOptions{joined->options.prefix, joined->options.name, joined->options.process,
                            usage.store},
      usage.rows,
      [&members = *member->members_](const EtcdCall& call) { return ask_etcd(members, call); },
      clock);
  member->group_ = std::make_unique<GatewayGroup>(std::move(joined->options), joined->start,
                                                  *member->etcd_, clock, *member);
  return member;
}

void GatewayMember::start() { tick(); }

void GatewayMember::tick() {
  group_->tick();
  usage_->tick();
  loop_.after(kTick, [this] { tick(); });
}

std::string GatewayMember::day() const {
  return parts_.book.day().empty() ? today() : parts_.book.day();
}

// Counts tenants that have a quota.
GatewayUse GatewayMember::use() {
  GatewayUse use;
  use.day = day();
  const auto totals = parts_.quotas.totals();
  for (const TenantSpec& tenant : parts_.file.tenants) {
    const Quotas& quotas = tenant.quotas;
    TenantUse one;
    if (quotas.requests_per_minute || quotas.tokens_per_minute || quotas.concurrency) {
      const auto total = totals.find(tenant.name);
      if (total != totals.end()) {
        one.requests = total->second.requests;
        one.tokens = total->second.tokens;
        one.calls = total->second.calls;
      }
    }
    if (quotas.money_per_day) {
      const UsageBook::TenantUnits units = parts_.book.units_of_tenant(tenant.name, parts_.prices);
      one.micro_units = micro(units.day);
      one.micro_units_before = micro(units.before);
    }
    if (one != TenantUse()) use.tenants.emplace(tenant.name, one);
  }
  told_ = use;
  return use;
}

void GatewayMember::on_round(const GroupView& view) {
  if (std::exchange(quota_parts_, 1) != 1) {
    log_info("etcd answers again: tenants' quotas are shared as before");
    parts_.quotas.set_parts(1);
  }
  const auto live = static_cast<std::int32_t>(view.live.size());
  if (live != gateways_) log_info(fmt::format("etcd: {} gateways share the quotas now", live));
  gateways_ = live;
  others_ = view.live;
  for (const auto& [name, use] : view.others) others_.insert(name);
  for (const auto& [name, seconds] : view.usage_written) others_.insert(name);
  others_.erase(name_);
  usage_written_ = view.usage_written;
  const auto& tenants = elsewhere_.update(view.others, view.live, day());
  for (const TenantSpec& tenant : parts_.file.tenants) {
    const auto found = tenants.find(tenant.name);
    if (found == tenants.end()) continue;
    const TenantElsewhere& use = found->second;
    parts_.quotas.use_elsewhere(tenant.name, parts_.keys.limits_of(tenant.name),
                                {use.new_requests, use.new_tokens, use.calls});
  }
}

UsageGateways GatewayMember::gateways() const {
  UsageGateways gateways;
  gateways.own = name_;
  for (const std::string& name : others_) {
    const auto written = usage_written_.find(name);
    if (written == usage_written_.end()) {
      gateways.missing.push_back(name);
    } else {
      // Clocks differ a little.
      gateways.others.push_back(
          {name, std::max<std::int64_t>(0, unix_seconds() - written->second)});
    }
  }
  return gateways;
}

void GatewayMember::on_lost(const std::string& cause) {
  quota_parts_ = gateways_;
  parts_.quotas.set_parts(quota_parts_);
  log_error(fmt::format(
      "etcd does not answer ({}): the functions file stays as it is, and each of {} gateways has "
      "an even part of the quotas until etcd is back",
      cause, gateways_));
}

MoneyElsewhere GatewayMember::money(const std::string& tenant) const {
  MoneyElsewhere money;
  if (const TenantElsewhere* use = elsewhere_.of(tenant); use != nullptr) {
    money.units = static_cast<double>(use->micro_units) / kMicro;
    money.units_before = static_cast<double>(use->micro_units_before) / kMicro;
  }
  const auto told = told_.tenants.find(tenant);
  if (told != told_.tenants.end() && told_.day == day()) {
    money.own_units_known = static_cast<double>(told->second.micro_units) / kMicro;
  }
  money.parts = quota_parts_;
  return money;
}

void GatewayMember::write_metrics(std::string_view prefix, std::string& out) const {
  PrometheusWriter writer(prefix, out);
  writer.gauge("gateway_group_size", "Gateways that share the quotas, as of the last news.");
  writer.value({}, gateways_);
  writer.gauge("gateway_etcd_lost", "1 while etcd does not answer.");
  writer.value({}, group_->is_lost() ? 1 : 0);
}

void GatewayMember::stop() {
  usage_->stop();  // while the name is this process's
  const auto resign = group_->resign();
  if (!resign) return;
  if (const auto answer = ask_etcd(*members_, *resign); !answer) {
    log_warning(fmt::format("--etcd: {}", answer.error().message));
  }
}

}  // namespace sluice
