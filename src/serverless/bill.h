// Bills: what usage costs by a price list. A list gives units for each resource, as Alibaba's
// Function Compute does (CU), and the price of a unit in tiers of a month's total. The default is
// Alibaba's list; another one is a TOML file (docs/gateway.md). GB are 10^9 bytes.
// Pure; any thread. Errors of files name path, line, column and key.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "serverless/usage_meter.h"

namespace sluice {

struct MemoryPrice {  // units per GB and second
  double active = 0;
  double idle = 0;
};

struct PriceTier {
  double up_to_units = 0;  // of a month's total; infinite for the last tier
  double price = 0;        // of a unit
};

struct PriceList {
  std::string currency;
  double request_units = 0;  // for one request
  double core_units = 0;     // for a second of a core in a turn
  std::array<MemoryPrice, kMemoryKinds> memory{};
  std::vector<PriceTier> tiers;  // one at least, rising
};

// Alibaba Cloud Function Compute, pay-as-you-go, international list without its discount of
// 2024-08 to 2025-08: CU of requests 75 per 10,000, active vCPU 1 per second, memory 0.15, disk
// 0.05, Ada GPU memory 1.5 active and 0.25 idle per GB and second; $0.000020, $0.000017 and
// $0.000014 a CU up to 100 M, to 500 M and above in a month.
// Source: help.aliyun.com, Function Compute, page pay-as-you-go-billing-method.
PriceList alibaba_prices();

Result<PriceList> parse_prices(std::string_view text, std::string_view path);

// Units of each part of a usage.
struct BillUnits {
  double requests = 0;
  double cores = 0;
  std::array<MemoryPrice, kMemoryKinds> memory{};  // units, active and idle

  double total() const;
};

BillUnits units_of(const FunctionUsage& usage, const PriceList& prices);

// The money for `units` more in a month that has had `units_before`.
double money_for(double units, double units_before, const PriceList& prices);

}  // namespace sluice
