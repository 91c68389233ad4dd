#include "gateway/usage_report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

namespace sluice {
namespace {

using nlohmann::json;

PriceList one_a_request() {
  PriceList prices;
  prices.currency = "EUR";
  prices.request_units = 1;
  prices.tiers = {{10, 1.0}, {1e18, 0.5}};
  return prices;
}

std::vector<UsageRow> rows() {
  std::vector<UsageRow> rows(4);
  rows[0] = {"2026-11-01", "a", "poet", {.requests = 8}, 80, 160};
  rows[1] = {"2026-11-02", "", "", {.core_ns = 5'000'000'000}};
  rows[2] = {"2026-11-02", "a", "poet", {.requests = 4}, 40, 70};
  rows[3] = {"2026-11-02", "b", "pirate", {.requests = 1}, 10, 20};
  rows[2].usage.memory[0].active = Amount(2'000'000'000) * 1'000'000'000;
  return rows;
}

TEST(UsageReportTest, TheQueryHasDatesAndAFormat) {
  const auto none = parse_usage_query("", "2026-11-23");
  ASSERT_TRUE(none);
  EXPECT_EQ(none->first, "2026-11-01");
  EXPECT_EQ(none->last, "2026-11-23");
  const auto all = parse_usage_query("format=csv&start_date=2026-10-05&end_date=2026-10-06", "x");
  ASSERT_TRUE(all);
  EXPECT_EQ(all->first, "2026-10-05");
  EXPECT_EQ(all->format, UsageFormat::kCsv);
  for (const char* wrong : {"format=xml", "start_date=today", "end_date=2026-1-1", "group=tenant",
                            "start_date=2026-10-00", "end_date=2026-02-29",
                            "start_date=2026-11-09&end_date=2026-11-08"}) {
    const auto parsed = parse_usage_query(wrong, "2026-11-23");
    ASSERT_FALSE(parsed) << wrong;
    EXPECT_EQ(parsed.error().status, 400);
    EXPECT_FALSE(parsed.error().param.empty());
  }
}

TEST(UsageReportTest, ATenantSeesItsOwnRowsAtThePriceOfItsMonth) {
  const UsageQuery query{"2026-11-02", "2026-11-23"};
  const json report = json::parse(usage_report(rows(), query, "a", one_a_request()));
  EXPECT_EQ(report["object"], "usage");
  EXPECT_EQ(report["currency"], "EUR");
  ASSERT_EQ(report["data"].size(), 1U);
  const json& row = report["data"][0];
  EXPECT_EQ(row["function"], "poet");
  EXPECT_EQ(row["requests"], 4);
  EXPECT_EQ(row["prompt_tokens"], 40);
  EXPECT_EQ(row["cost"], 2 * 1.0 + 2 * 0.5) << "eight units were used before";
  EXPECT_EQ(row["memory_gb_seconds"]["host"]["active"], 2.0);
  EXPECT_EQ(report["total"]["cost"], 3.0);
  ASSERT_EQ(report["tenants"].size(), 1U);
  EXPECT_EQ(report["tenants"][0]["cost"], 3.0);
}

TEST(UsageReportTest, TheAdminSeesAllRowsAndThePlatform) {
  const UsageQuery query{"2026-11-01", "2026-11-23"};
  const json report = json::parse(usage_report(rows(), query, std::nullopt, one_a_request()));
  ASSERT_EQ(report["data"].size(), 4U);
  EXPECT_EQ(report["data"][1]["tenant"], nullptr);
  EXPECT_EQ(report["data"][1]["function"], "(platform)");
  EXPECT_EQ(report["data"][1]["core_seconds"], 5.0);
  EXPECT_EQ(report["total"]["requests"], 13);
  EXPECT_EQ(report["total"]["output_tokens"], 250);
  ASSERT_EQ(report["tenants"].size(), 2U) << "the platform is no tenant";
  EXPECT_EQ(report["tenants"][0]["tenant"], "a");
  EXPECT_EQ(report["tenants"][0]["requests"], 12);
  EXPECT_EQ(report["tenants"][0]["prompt_tokens"], 120);
  EXPECT_EQ(report["tenants"][0]["cost"], 10 * 1.0 + 2 * 0.5) << "of both days";
  EXPECT_EQ(report["tenants"][0]["memory_gb_seconds"]["host"]["active"], 2.0);
  EXPECT_EQ(report["tenants"][1]["tenant"], "b");
}

TEST(UsageReportTest, AReportOfAGroupNamesItsGateways) {
  const UsageQuery query{"2026-11-01", "2026-11-23"};
  const UsageGateways gateways{"one", {{"two", 3}, {"four", 86'400}}, {"three"}};
  const json report = json::parse(usage_report(rows(), query, "a", one_a_request(), gateways));
  EXPECT_EQ(report["gateways"], json({"one", "two", "four"}));
  EXPECT_EQ(report["gateway_ages_s"], json({{"two", 3}, {"four", 86'400}}));
  EXPECT_EQ(report["other_gateways"], json({"three"}));
  const json own = json::parse(usage_report(rows(), query, "a", one_a_request(), gateways.alone()));
  EXPECT_EQ(own["gateways"], json({"one"}));
  EXPECT_EQ(own["gateway_ages_s"], json::object());
  EXPECT_EQ(own["other_gateways"], json({"four", "three", "two"}));
  const json alone = json::parse(usage_report(rows(), query, "a", one_a_request()));
  EXPECT_FALSE(alone.contains("gateways"));
}

TEST(UsageReportTest, CsvHasALineForEachRow) {
  const UsageQuery query{"2026-11-01", "2026-11-23", UsageFormat::kCsv};
  const std::string text = usage_report(rows(), query, "b", one_a_request());
  EXPECT_TRUE(text.starts_with("date,tenant,function,requests,")) << text;
  EXPECT_NE(text.find("\n2026-11-02,b,pirate,1,10,20,0.000000000,"), std::string::npos) << text;
  EXPECT_TRUE(text.ends_with(",1.000000000,1.000000000,EUR\n")) << text;
}

}  // namespace
}  // namespace sluice
