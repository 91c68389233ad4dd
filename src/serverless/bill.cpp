#include "serverless/bill.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "serverless/table_reader.h"
#include "serverless/toml_document.h"

namespace sluice {
namespace {

constexpr double kMostUnits = 1e15;
constexpr double kInfinite = std::numeric_limits<double>::infinity();

double gigabyte_seconds(Amount byte_ns) { return static_cast<double>(byte_ns) * 1e-18; }

Status read_memory(TableReader& root, std::string_view path, PriceList& prices) {
  for (std::size_t k = 0; k < kMemoryKinds; ++k) {
    const std::string_view name = memory_kind_name(static_cast<MemoryKind>(k));
    const TomlValue* table = root.table(name);
    if (table == nullptr) continue;
    TableReader reader(*table, name, path);
    prices.memory[k].active = reader.non_negative("active", kMostUnits).value_or(0);
    prices.memory[k].idle = reader.non_negative("idle", kMostUnits).value_or(0);
    RETURN_IF_ERROR(reader.finish());
  }
  return {};
}

Status read_tiers(TableReader& root, std::string_view path, PriceList& prices) {
  double before = 0;
  for (const TomlValue* table : root.tables("tier")) {
    TableReader reader(*table, "tier", path);
    PriceTier tier;
    tier.up_to_units = reader.positive("up_to_units", kMostUnits).value_or(kInfinite);
    const auto price = reader.non_negative("price", kMostUnits);
    if (!price) reader.fail("price", "is missing; give the price of a unit");
    tier.price = price.value_or(0);
    if (!(tier.up_to_units > before)) {
      reader.fail("up_to_units",
                  "must be more than that of the tier before, which ends the list "
                  "if it has none");
    }
    before = tier.up_to_units;
    prices.tiers.push_back(tier);
    RETURN_IF_ERROR(reader.finish());
  }
  return {};
}

}  // namespace

PriceList alibaba_prices() {
  PriceList prices;
  prices.currency = "USD";
  prices.request_units = 75.0 / 10'000;
  prices.core_units = 1;
  prices.memory[static_cast<std::size_t>(MemoryKind::kHost)] = {0.15, 0.15};
  prices.memory[static_cast<std::size_t>(MemoryKind::kDevice)] = {1.5, 0.25};
  prices.memory[static_cast<std::size_t>(MemoryKind::kDisk)] = {0.05, 0.05};
  prices.tiers = {{100e6, 20e-6}, {500e6, 17e-6}, {kInfinite, 14e-6}};
  return prices;
}

Result<PriceList> parse_prices(std::string_view text, std::string_view path) {
  ASSIGN_OR_RETURN(const TomlValue document, parse_toml(text, path));
  TableReader root(document, "", path);
  PriceList prices;
  prices.currency = root.text("currency");
  prices.request_units = root.non_negative("request", kMostUnits).value_or(0);
  prices.core_units = root.non_negative("core_second", kMostUnits).value_or(0);
  RETURN_IF_ERROR(read_memory(root, path, prices));
  RETURN_IF_ERROR(read_tiers(root, path, prices));
  if (prices.tiers.empty()) root.fail("tier", "is missing; give one [[tier]] at least");
  RETURN_IF_ERROR(root.finish());
  if (prices.tiers.back().up_to_units != kInfinite) {
    return invalid_argument(
        fmt::format("{}: the last [[tier]] must have no up_to_units, so that it has no end", path));
  }
  return prices;
}

double BillUnits::total() const {
  double sum = requests + cores;
  for (const MemoryPrice& one : memory) sum += one.active + one.idle;
  return sum;
}

BillUnits units_of(const FunctionUsage& usage, const PriceList& prices) {
  BillUnits units;
  units.requests = static_cast<double>(usage.requests) * prices.request_units;
  units.cores = static_cast<double>(usage.core_ns) * 1e-9 * prices.core_units;
  for (std::size_t k = 0; k < kMemoryKinds; ++k) {
    units.memory[k].active = gigabyte_seconds(usage.memory[k].active) * prices.memory[k].active;
    units.memory[k].idle = gigabyte_seconds(usage.memory[k].idle) * prices.memory[k].idle;
  }
  return units;
}

double money_for(double units, double units_before, const PriceList& prices) {
  double money = 0;
  double from = units_before;
  const double to = units_before + units;
  for (const PriceTier& tier : prices.tiers) {
    const double end = std::min(to, tier.up_to_units);
    if (end <= from) continue;
    money += (end - from) * tier.price;
    from = end;
  }
  return money;
}

}  // namespace sluice
