#include "gateway_group/usage_part.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace sluice {
namespace {

using testing::HasSubstr;

UsageRow full_row(const std::string& tenant, const std::string& function) {
  UsageRow row{"2026-11-25", tenant, function, {}, 12, 34};
  row.usage.requests = 56;
  row.usage.core_ns = Amount(1) << 90;
  for (std::size_t k = 0; k < kMemoryKinds; ++k) {
    row.usage.memory[k] = {Amount(100 + k), Amount(200 + k) << 70};
  }
  return row;
}

UsagePartRows part_of(const std::vector<UsageRow>& rows) {
  UsagePartRows part;
  for (const UsageRow& row : rows) part[{row.tenant, row.function}] = row;
  return part;
}

TEST(UsagePartTest, RowsSurviveTheirText) {
  const auto part = part_of({full_row("a", "ft:demo:a:poet"), full_row("", "")});
  const auto rows = parse_usage_part(usage_part_json(part), "2026-11-25");
  ASSERT_TRUE(rows) << rows.error().message;
  ASSERT_EQ(rows->size(), 2U);
  EXPECT_EQ((*rows)[0].tenant, "");
  const UsageRow& row = (*rows)[1];
  EXPECT_EQ(row.day, "2026-11-25");
  EXPECT_EQ(row.function, "ft:demo:a:poet");
  EXPECT_EQ(row.usage.requests, 56);
  EXPECT_EQ(row.prompt_tokens, 12);
  EXPECT_EQ(row.output_tokens, 34);
  EXPECT_EQ(row.usage.core_ns, Amount(1) << 90);
  EXPECT_EQ(row.usage.memory[2].active, 102);
  EXPECT_EQ(row.usage.memory[2].idle, Amount(202) << 70);
}

TEST(UsagePartTest, ErrorsNameTheRow) {
  const std::string good = usage_part_json(part_of({full_row("a", "f")}));
  const auto error_of = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    const auto parsed = parse_usage_part(text, "2026-11-25");
    EXPECT_FALSE(parsed) << text;
    return parsed ? std::string() : parsed.error().message;
  };
  EXPECT_THAT(error_of("rows", "lines"), HasSubstr("rows"));
  EXPECT_THAT(error_of("[[", "[1,["), HasSubstr("rows[0]: is not a list"));
  EXPECT_THAT(error_of(",56,", ","), HasSubstr("rows[0]: has 11 fields, not 12"));
  EXPECT_THAT(error_of(",56,", ",-1,"), HasSubstr("rows[0]: field 3"));
  EXPECT_THAT(error_of("\"f\"", "7"), HasSubstr("rows[0]: field 2"));
  EXPECT_THAT(error_of("\"100\"", "\"-1\""), HasSubstr("rows[0]"));
  EXPECT_THAT(error_of("\"100\"", fmt::format("\"{:0>36}\"", 1)), HasSubstr("field 7"));
  EXPECT_FALSE(parse_usage_part(std::string(kMaxUsagePart + 1, ' '), "2026-11-25"));
}

TEST(UsagePartTest, KeysComeBack) {
  const UsagePartKey key{"2026-11-25", "00ff", 31};
  const std::string text = usage_part_key("/g", key);
  EXPECT_EQ(text, "/g/usage/2026-11-25/00ff/31");
  const auto again = parse_usage_part_key("/g", text);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(*again, key);
  for (const char* wrong :
       {"/h/usage/2026-11-25/00ff/31", "/g/usage/2026-11-25/31", "/g/usage/2026-11-31/00ff/31",
        "/g/usage/2026-11-25/00ff/32", "/g/usage/2026-11-25/00ff/01", "/g/usage/2026-11-25/00ff/",
        "/g/usage/2026-11-25//1", "/g/usage/2026-11-25/x/1", "/g/usage/2026-11-25/0/0/1"}) {
    EXPECT_FALSE(parse_usage_part_key("/g", wrong)) << wrong;
  }
}

// Programs of different machines and versions must agree about the part of a row.
TEST(UsagePartTest, ARowIsAlwaysInTheSamePart) {
  EXPECT_EQ(usage_part_of(full_row("a", "ft:demo:a:poet")), 14U);
  EXPECT_EQ(usage_part_of(full_row("", "")), 27U);
  std::set<std::uint32_t> parts;
  for (int i = 0; i < 1000; ++i) parts.insert(usage_part_of(full_row("t", fmt::format("f{}", i))));
  EXPECT_EQ(parts.size(), kUsageParts);
}

// Ten thousand functions with long names, all used on one day.
TEST(UsagePartTest, PartsOfManyFunctionsAreFarBelowTheLimit) {
  std::map<std::uint32_t, UsagePartRows> parts;
  for (int i = 0; i < 10'000; ++i) {
    const UsageRow row = full_row(fmt::format("{:0>40}", i % 100), fmt::format("{:x>80}", i));
    parts[usage_part_of(row)][{row.tenant, row.function}] = row;
  }
  for (const auto& [part, rows] : parts) {
    EXPECT_LT(usage_part_json(rows).size(), kMaxUsagePart / 4) << part;
  }
}

}  // namespace
}  // namespace sluice
