#include "gateway/usage_book.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/calendar_day.h"
#include "base/check.h"

namespace sluice {
namespace {

FunctionUsage difference(const FunctionUsage& now, const FunctionUsage& before) {
  FunctionUsage since = now;
  since.core_ns -= before.core_ns;
  since.requests -= before.requests;
  for (std::size_t k = 0; k < kMemoryKinds; ++k) {
    since.memory[k].active -= before.memory[k].active;
    since.memory[k].idle -= before.memory[k].idle;
  }
  return since;
}

bool is_zero(const FunctionUsage& usage) {
  const bool memory = std::ranges::all_of(
      usage.memory, [](const ByteTime& one) { return one.active == 0 && one.idle == 0; });
  return memory && usage.core_ns == 0 && usage.requests == 0;
}

std::string day_after(std::string_view text) {
  const auto day = parse_day(text);
  CHECK(day.has_value());
  return day_text(std::chrono::sys_days(*day) + std::chrono::days(1));
}

}  // namespace

void add_usage(const FunctionUsage& more, FunctionUsage& to) {
  to.core_ns += more.core_ns;
  to.requests += more.requests;
  for (std::size_t k = 0; k < kMemoryKinds; ++k) {
    to.memory[k].active += more.memory[k].active;
    to.memory[k].idle += more.memory[k].idle;
  }
}

UsageBook::UsageBook(const MachineCapacity& capacity, std::int32_t cores_per_turn,
                     const Clock& clock, std::span<const UsageRow> rows, std::string first_day)
    : capacity_(capacity),
      cores_per_turn_(std::min(cores_per_turn, capacity.cores)),
      clock_(clock),
      meter_(capacity, clock.now()),
      first_day_(std::move(first_day)) {
  for (const UsageRow& row : rows) {
    rows_[{row.tenant, row.day, row.function}] = row;
    day_ = std::max(day_, row.day);
  }
}

void UsageBook::set_capacity(const MachineCapacity& capacity) {
  MachineCapacity now = capacity;
  std::int64_t& host = now.bytes[static_cast<std::size_t>(MemoryKind::kHost)];
  host = std::max(host, bytes_);
  meter_.set_capacity(clock_.now(), now);
  capacity_ = now;
}

std::int32_t UsageBook::add_backbone() {
  backbones_.push_back({meter_.add_share(MemoryKind::kHost), 0});
  return static_cast<std::int32_t>(backbones_.size()) - 1;
}

std::int32_t UsageBook::add_function(const std::string& tenant, const std::string& name,
                                     std::int32_t backbone) {
  Function& function = functions_.emplace_back();
  function.tenant = tenant;
  function.name = name;
  function.backbone = backbone;
  function.meter = meter_.add_function();
  return static_cast<std::int32_t>(functions_.size()) - 1;
}

std::int64_t UsageBook::fitting(std::int64_t bytes, std::int64_t before) const {
  const std::int64_t left =
      capacity_.bytes[static_cast<std::size_t>(MemoryKind::kHost)] - (bytes_ - before);
  return std::min(bytes, left);
}

void UsageBook::set_backbone_bytes(std::int32_t backbone, std::int64_t bytes) {
  Backbone& one = backbones_[static_cast<std::size_t>(backbone)];
  const std::int64_t now = fitting(bytes, one.bytes);
  meter_.set_share_bytes(clock_.now(), one.share, now);
  bytes_ += now - one.bytes;
  one.bytes = now;
}

void UsageBook::count_request(std::int32_t function, std::int64_t prompt_tokens) {
  meter_.count_request(at(function).meter);
  at(function).prompt_tokens += prompt_tokens;
}

void UsageBook::count_output(std::int32_t function, std::int64_t tokens) {
  at(function).output_tokens += tokens;
}

void UsageBook::set_active(std::int32_t function, bool active) {
  meter_.set_active(clock_.now(), at(function).meter, active);
}

void UsageBook::sample(std::int32_t function, const FunctionSample& sample) {
  Function& one = at(function);
  const TimePoint now = clock_.now();
  const std::int32_t share = backbones_[static_cast<std::size_t>(one.backbone)].share;
  if (sample.live && !one.live) meter_.join(now, one.meter, share);
  if (!sample.live && one.live) meter_.leave(now, one.meter, share);
  one.live = sample.live;
  const std::int64_t bytes = fitting(sample.own_bytes, one.bytes);
  meter_.set_bytes(now, one.meter, MemoryKind::kHost, bytes);
  bytes_ += bytes - one.bytes;
  one.bytes = bytes;
  meter_.charge_cores(now, one.meter, Amount(sample.turn_time.count()) * cores_per_turn_);
}

UsageRow& UsageBook::row_of(const std::string& tenant, const std::string& function) {
  UsageRow& row = rows_[{tenant, day_, function}];
  row.day = day_;
  row.tenant = tenant;
  row.function = function;
  return row;
}

void UsageBook::set_day(std::string_view day) {
  const bool is_far_behind = day_after(day) < day_;
  if (day_ < day || (is_far_behind && day >= first_day_)) day_ = day;
}

std::vector<UsageRow> UsageBook::settle(std::string_view day) {
  set_day(day);
  const TimePoint now = clock_.now();
  std::vector<UsageRow> changed;
  for (Function& function : functions_) {
    const FunctionUsage usage = meter_.of(function.meter, now);
    const FunctionUsage since = difference(usage, function.settled);
    if (is_zero(since) && function.prompt_tokens == 0 && function.output_tokens == 0) continue;
    function.settled = usage;
    UsageRow& row = row_of(function.tenant, function.name);
    add_usage(since, row.usage);
    row.prompt_tokens += std::exchange(function.prompt_tokens, 0);
    row.output_tokens += std::exchange(function.output_tokens, 0);
    changed.push_back(row);
  }
  const FunctionUsage platform = meter_.platform(now);
  UsageRow& row = row_of("", "");
  add_usage(difference(platform, platform_settled_), row.usage);
  platform_settled_ = platform;
  changed.push_back(row);
  return changed;
}

std::vector<UsageRow> UsageBook::rows() const {
  std::vector<UsageRow> all;
  all.reserve(rows_.size());
  for (const auto& [key, row] : rows_) all.push_back(row);
  return all;
}

UsageBook::TenantUnits UsageBook::units_of_tenant(std::string_view tenant,
                                                  const PriceList& prices) const {
  TenantUnits sum;
  const std::string month = day_.substr(0, 7);
  for (auto it = rows_.lower_bound({std::string(tenant), month, ""});
       it != rows_.end() && it->second.tenant == tenant; ++it) {
    const double units = units_of(it->second.usage, prices).total();
    (it->second.day == day_ ? sum.day : sum.before) += units;
  }
  return sum;
}

double UsageBook::money_of_day(std::string_view tenant, const PriceList& prices) const {
  const TenantUnits units = units_of_tenant(tenant, prices);
  return money_for(units.day, units.before, prices);
}

// A tenant's money of the day, by the units of its functions: they have the same tiers.
double UsageBook::DayCosts::of(std::int32_t number) {
  const Function& function = book_.functions_[static_cast<std::size_t>(number)];
  const auto row = book_.rows_.find({function.tenant, book_.day_, function.name});
  if (row == book_.rows_.end()) return 0;
  const auto [price, is_new] = price_of_.try_emplace(function.tenant);
  if (is_new) {
    const TenantUnits units = book_.units_of_tenant(function.tenant, prices_);
    if (units.day > 0) price->second = money_for(units.day, units.before, prices_) / units.day;
  }
  return price->second * units_of(row->second.usage, prices_).total();
}

}  // namespace sluice
