#include "serverless/bill.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace sluice {
namespace {

using testing::StartsWith;

constexpr std::size_t kBillDevice = static_cast<std::size_t>(MemoryKind::kDevice);

// Four hours of a whole L40S (48 GB, Ada).
FunctionUsage four_hours_of_l40s(bool active) {
  FunctionUsage usage;
  const Amount amount = Amount{48'000'000'000} * 14'400 * 1'000'000'000;
  (active ? usage.memory[kBillDevice].active : usage.memory[kBillDevice].idle) = amount;
  return usage;
}

double cost(const FunctionUsage& usage, const PriceList& prices) {
  return money_for(units_of(usage, prices).total(), 0, prices);
}

// Table 1 of the ServerlessLoRA paper: vLLM with the 7B model costs $20.93 for four hours. The
// device's memory, active all the time, is $20.74 of it. The paper does not say what makes up the
// remaining $0.19; it is 0.66 units a second for host memory and vCPUs, for example 4.4 GB.
TEST(BillTest, PaperLineOfVllm) {
  const PriceList prices = alibaba_prices();
  const double device = cost(four_hours_of_l40s(true), prices);
  EXPECT_NEAR(device, 20.74, 0.005);
  const double rest = 20.93 - device;
  EXPECT_NEAR(rest / 20e-6 / 14'400, 0.67, 0.02);
  FunctionUsage host;
  host.memory[0].active = Amount{4'400'000'000} * 14'400 * 1'000'000'000;
  EXPECT_NEAR(device + cost(host, prices), 20.93, 0.01);
  EXPECT_NEAR(cost(four_hours_of_l40s(false), prices), 3.46, 0.005);
}

TEST(BillTest, PartsHaveTheirUnits) {
  FunctionUsage usage;
  usage.requests = 20'000;
  usage.core_ns = 3'000'000'000;
  usage.memory[0] = {Amount{2} * 1'000'000'000 * 1'000'000'000, 0};  // 2 GB for a second
  const BillUnits units = units_of(usage, alibaba_prices());
  EXPECT_DOUBLE_EQ(units.requests, 150);
  EXPECT_DOUBLE_EQ(units.cores, 3);
  EXPECT_DOUBLE_EQ(units.memory[0].active, 0.3);
  EXPECT_DOUBLE_EQ(units.total(), 153.3);
}

TEST(BillTest, TiersAreOfTheMonth) {
  const PriceList prices = alibaba_prices();
  EXPECT_DOUBLE_EQ(money_for(100e6, 0, prices), 2000);
  EXPECT_DOUBLE_EQ(money_for(100e6, 100e6, prices), 1700);
  EXPECT_DOUBLE_EQ(money_for(100e6, 50e6, prices), 1000 + 850);
  EXPECT_DOUBLE_EQ(money_for(1e9, 0, prices), 2000 + 6800 + 7000);
  EXPECT_EQ(money_for(0, 5, prices), 0);
}

TEST(BillTest, ExampleFileIsTheDefault) {
  std::ifstream file("examples/prices.toml");
  std::stringstream text;
  text << file.rdbuf();
  const auto prices = parse_prices(text.str(), "prices.toml");
  ASSERT_TRUE(prices) << prices.error().message;
  const PriceList other = alibaba_prices();
  EXPECT_EQ(prices->currency, other.currency);
  EXPECT_DOUBLE_EQ(prices->request_units, other.request_units);
  EXPECT_DOUBLE_EQ(prices->core_units, other.core_units);
  for (std::size_t k = 0; k < kMemoryKinds; ++k) {
    EXPECT_DOUBLE_EQ(prices->memory[k].active, other.memory[k].active);
    EXPECT_DOUBLE_EQ(prices->memory[k].idle, other.memory[k].idle);
  }
  ASSERT_EQ(prices->tiers.size(), other.tiers.size());
  for (std::size_t t = 0; t < other.tiers.size(); ++t) {
    EXPECT_DOUBLE_EQ(prices->tiers[t].up_to_units, other.tiers[t].up_to_units);
    EXPECT_DOUBLE_EQ(prices->tiers[t].price, other.tiers[t].price);
  }
}

TEST(BillTest, BadPricesNamePlaceAndKey) {
  const auto error_of = [](std::string_view text) {
    const auto prices = parse_prices(text, "p.toml");
    return prices ? "no error" : prices.error().message;
  };
  EXPECT_THAT(error_of("core_second = 1\n[[tier]]\nprice = 1\n"),
              StartsWith("p.toml:1:1: currency: is missing"));
  const std::string head = "currency = \"EUR\"\n";
  EXPECT_THAT(error_of(head), StartsWith("p.toml:1:1: tier: is missing"));
  EXPECT_THAT(error_of(head + "core_second = -1\n[[tier]]\nprice = 1\n"),
              StartsWith("p.toml:2:1: core_second: must be a number of at least 0"));
  EXPECT_THAT(error_of(head + "[[tier]]\nup_to_units = 5\nprice = 1\n"),
              StartsWith("p.toml: the last [[tier]] must have no up_to_units"));
  EXPECT_THAT(error_of(head + "[[tier]]\nprice = 1\n[[tier]]\nprice = 2\n"),
              StartsWith("p.toml:4:1: tier.up_to_units: must be more than that of the tier"));
  EXPECT_THAT(error_of(head + "[host]\nactiv = 1\n[[tier]]\nprice = 1\n"),
              StartsWith("p.toml:3:1: host.activ: is not a known key; did you mean 'active'?"));
  EXPECT_THAT(error_of(head + "[[tier]]\n"), StartsWith("p.toml:2:1: tier.price: is missing"));
}

}  // namespace
}  // namespace sluice
