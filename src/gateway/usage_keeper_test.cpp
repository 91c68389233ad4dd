#include "gateway/usage_keeper.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <future>
#include <nlohmann/json.hpp>

namespace sluice {
namespace {

using nlohmann::json;

UsageRow used_row(const std::string& day, const std::string& function, std::int64_t requests) {
  UsageRow row{day, "t", function, {}, 5, 6};
  row.usage.requests = requests;
  row.usage.core_ns = 7;
  row.usage.memory[1] = {8, 9};
  return row;
}

TEST(MergeUsageTest, AddsRowsOfTheSameDayTenantAndFunction) {
  const auto merged = merge_usage({used_row("2026-11-02", "a", 1), used_row("2026-11-01", "b", 2),
                                   used_row("2026-11-02", "a", 4), used_row("2026-11-01", "a", 8)});
  ASSERT_EQ(merged.size(), 3U);
  EXPECT_EQ(merged[0].day, "2026-11-01");
  EXPECT_EQ(merged[0].function, "a");
  EXPECT_EQ(merged[1].function, "b");
  EXPECT_EQ(merged[2].usage.requests, 5);
  EXPECT_EQ(merged[2].prompt_tokens, 10);
  EXPECT_EQ(merged[2].output_tokens, 12);
  EXPECT_EQ(merged[2].usage.core_ns, 14);
  EXPECT_EQ(merged[2].usage.memory[1].active, 16);
  EXPECT_EQ(merged[2].usage.memory[1].idle, 18);
}

class FakeGroup final : public UsageGroup {
 public:
  void written(std::span<const UsageRow> rows) override { told.assign(rows.begin(), rows.end()); }
  void read(std::string first, std::string last, Done done) override {
    asked = first + " " + last;
    done(others);
  }
  std::vector<UsageRow> told;
  std::string asked;
  Result<std::vector<UsageRow>> others{std::vector<UsageRow>()};
};

class UsageKeeperTest : public testing::Test {
 protected:
  UsageKeeperTest()
      : path_(testing::TempDir() + "/usage_keeper_test_" + std::to_string(getpid()) + ".db"),
        keeper_(UsageStore::open(path_).value(), book_, alibaba_prices(),
                [](const std::function<void()>& task) { task(); }) {
    book_.add_backbone();
    book_.count_request(book_.add_function("t", "own", 0), 5);
    keeper_.set_group(group_);
  }
  ~UsageKeeperTest() override {
    keeper_.stop("2026-11-23");
    for (const char* tail : {"", "-wal", "-shm"}) std::remove((path_ + tail).c_str());
  }

  json report() {
    std::promise<Result<UsageKeeper::Report>> answer;
    keeper_.report("2026-11-23", {"2026-11-02", "2026-11-23"}, "t",
                   UsageGateways{"one", {{"two", 3}}, {}},
                   [&](const auto& report) { answer.set_value(report); });
    const auto got = answer.get_future().get();
    EXPECT_TRUE(got);
    return got ? json::parse(got->text) : json();
  }

  const std::string path_;
  ManualClock clock_;
  UsageBook book_{{4, {1 << 20, 0, 0}}, 2, clock_, {}};
  FakeGroup group_;
  UsageKeeper keeper_;
};

TEST_F(UsageKeeperTest, AReportHasTheRowsOfTheWholeGroup) {
  group_.others =
      std::vector{used_row("2026-11-23", "own", 7), used_row("2026-11-23", "other", 20)};
  const json got = report();
  EXPECT_EQ(group_.asked, "2026-11-01 2026-11-23") << "prices need the month";
  EXPECT_EQ(got["total"]["requests"], 28);
  ASSERT_EQ(got["data"].size(), 2U);
  EXPECT_EQ(got["data"][1]["requests"], 8) << got;
  EXPECT_EQ(got["gateways"], json({"one", "two"}));
  ASSERT_EQ(group_.told.size(), 2U) << "the function's row, and the platform's";
  EXPECT_EQ(group_.told[0].usage.requests, 1);
}

TEST_F(UsageKeeperTest, WithoutTheOthersItHasItsOwnAndSaysSo) {
  group_.others = unavailable("etcd does not answer");
  const json got = report();
  EXPECT_EQ(got["total"]["requests"], 1);
  EXPECT_EQ(got["gateways"], json({"one"}));
  EXPECT_EQ(got["other_gateways"], json({"two"}));
}

}  // namespace
}  // namespace sluice
