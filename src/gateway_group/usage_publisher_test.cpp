#include "gateway_group/usage_publisher.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "gateway_group/gateway_group.h"
#include "gateway_group/usage_reader.h"
#include "tests/support/fake_etcd.h"

namespace sluice {
namespace {

using test::FakeEtcd;

constexpr const char* kToday = "2026-11-25";

UsageRow counted_row(const std::string& function, std::int64_t requests,
                     const std::string& day = kToday) {
  UsageRow row{day, "t", function, {}, 0, 0};
  row.usage.requests = requests;
  return row;
}

class UsagePublisherTest : public testing::Test {
 protected:
  UsagePublisher gateway(const std::string& name, const std::string& store,
                         const std::string& process = "p") {
    take_name(name, process);
    return UsagePublisher({"/g", name, process, store});
  }
  void take_name(const std::string& name, const std::string& process) {
    EtcdTransaction taken;
    taken.changes = {{group_live_key("/g", name), process}};
    ASSERT_TRUE(etcd_.handle(etcd_transaction(taken)));
  }
  Status publish(UsagePublisher& publisher, std::vector<UsageRow> rows) {
    publisher.add(rows);
    return publisher.publish(ask_, ++seconds_);
  }
  // Requests of all gateways but `own`.
  std::int64_t sum(const std::string& own, const std::string& first = kToday,
                   const std::string& last = kToday) {
    const auto rows = read_group_usage("/g", own, first, last, ask_);
    EXPECT_TRUE(rows) << rows.error().message;
    std::int64_t sum = 0;
    for (const UsageRow& row : *rows) sum += row.usage.requests;
    return sum;
  }

  ManualClock clock_;
  FakeEtcd etcd_{clock_};
  std::int64_t seconds_ = 0;
  int calls_ = 0;
  const UsagePublisher::Ask ask_ = [this](const EtcdCall& call) {
    ++calls_;
    return etcd_.handle(call);
  };
};

TEST_F(UsagePublisherTest, OthersSeeWhatIsPublished) {
  UsagePublisher one = gateway("one", "1");
  UsagePublisher two = gateway("two", "2");
  ASSERT_TRUE(publish(one, {counted_row("a", 3), counted_row("b", 4)}));
  ASSERT_TRUE(publish(two, {counted_row("a", 10), counted_row("a", 100, "2026-11-24")}));
  EXPECT_EQ(sum("1"), 10);
  EXPECT_EQ(sum("2"), 7);
  EXPECT_EQ(sum("3"), 17);
  EXPECT_EQ(sum("3", "2026-11-01"), 117);
  EXPECT_EQ(sum("3", "2026-11-24", "2026-11-24"), 100);
  EXPECT_EQ(etcd_.values()["/g/state/usage/two"], "2");
  const auto rows = read_group_usage("/g", "3", kToday, kToday, ask_);
  ASSERT_EQ(rows->size(), 2U);
  EXPECT_EQ((*rows)[0].usage.requests, 13);
}

TEST_F(UsagePublisherTest, AProcessThatStartsAgainWithItsFileNeverCountsTwice) {
  UsagePublisher one = gateway("one", "1", "p1");
  ASSERT_TRUE(publish(one, {counted_row("a", 3), counted_row("b", 4)}));
  EXPECT_EQ(sum("2"), 7) << "what a killed gateway has published stays";
  UsagePublisher again = gateway("one", "1", "p2");
  ASSERT_TRUE(publish(again, {counted_row("a", 5), counted_row("b", 4)}));
  EXPECT_EQ(sum("2"), 9);
  // With another name, but the same file.
  UsagePublisher renamed = gateway("uno", "1", "p3");
  ASSERT_TRUE(publish(renamed, {counted_row("a", 6), counted_row("b", 4)}));
  EXPECT_EQ(sum("2"), 10);
  // With a new file, what was counted before stays.
  UsagePublisher fresh = gateway("one", "4", "p4");
  ASSERT_TRUE(publish(fresh, {counted_row("a", 1)}));
  EXPECT_EQ(sum("2"), 11);
}

TEST_F(UsagePublisherTest, OnlyTheProcessThatHasTheNameWrites) {
  UsagePublisher one = gateway("one", "1", "p1");
  ASSERT_TRUE(publish(one, {counted_row("a", 3)}));
  take_name("one", "p2");
  EXPECT_FALSE(publish(one, {counted_row("a", 99)}));
  EXPECT_EQ(sum("2"), 3);
  take_name("one", "p1");
  ASSERT_TRUE(publish(one, {})) << "what was refused is written later";
  EXPECT_EQ(sum("2"), 99);
}

TEST_F(UsagePublisherTest, OnlyPartsThatChangedAreWritten) {
  UsagePublisher one = gateway("one", "1");
  std::vector<UsageRow> rows;
  for (int i = 0; i < 10'000; ++i) rows.push_back(counted_row(fmt::format("{:x>80}", i), 1));
  ASSERT_TRUE(publish(one, rows));
  EXPECT_EQ(sum("2"), 10'000);
  std::size_t bytes = 0;
  one.add(std::vector{counted_row(rows[0].function, 2)});
  ASSERT_TRUE(one.publish(
      [&](const EtcdCall& call) {
        bytes += call.body.size();
        return etcd_.handle(call);
      },
      ++seconds_));
  EXPECT_LT(bytes, std::size_t{64} << 10);
  EXPECT_EQ(sum("2"), 10'001);
  calls_ = 0;
  ASSERT_TRUE(publish(one, {}));
  EXPECT_EQ(calls_, 0) << "nothing has changed";
}

// Many days and gateways: more than one answer of etcd.
TEST_F(UsagePublisherTest, AllPagesAreRead) {
  for (const std::string store : {"1", "2", "3"}) {
    UsagePublisher one = gateway("g" + store, store);
    std::vector<UsageRow> rows;
    for (int day = 1; day <= 30; ++day) {
      for (int i = 0; i < 40; ++i) {
        rows.push_back(counted_row(fmt::format("f{}", i), 1, fmt::format("2026-11-{:02}", day)));
      }
    }
    ASSERT_TRUE(publish(one, rows));
  }
  calls_ = 0;
  EXPECT_EQ(sum("3", "2026-11-01", "2026-11-30"), 2 * 30 * 40);
  EXPECT_GT(calls_, 1);
}

TEST_F(UsagePublisherTest, AnErrorLeavesTheRestForLater) {
  UsagePublisher one = gateway("one", "1");
  one.add(std::vector{counted_row("a", 3)});
  EXPECT_FALSE(one.publish([](const EtcdCall&) { return unavailable("cut"); }, 1));
  EXPECT_EQ(sum("2"), 0);
  ASSERT_TRUE(publish(one, {}));
  EXPECT_EQ(sum("2"), 3);
}

TEST_F(UsagePublisherTest, AnEtcdThatForgetsEverythingIsFilledAgain) {
  UsagePublisher one = gateway("one", "1");
  ASSERT_TRUE(publish(one, {counted_row("a", 3), counted_row("b", 4, "2026-11-24")}));
  etcd_.forget();
  take_name("one", "p");
  ASSERT_TRUE(publish(one, {counted_row("a", 5)}));
  EXPECT_EQ(sum("2", "2026-11-01"), 9);
}

TEST_F(UsagePublisherTest, APartThatIsBrokenIsAnErrorAndNotLessUsage) {
  EtcdTransaction bad;
  bad.changes = {{"/g/usage/2026-11-25/ab/1", "{"}};
  ASSERT_TRUE(etcd_.handle(etcd_transaction(bad)));
  const auto rows = read_group_usage("/g", "1", kToday, kToday, ask_);
  ASSERT_FALSE(rows);
  EXPECT_NE(rows.error().message.find("/g/usage/2026-11-25/ab/1"), std::string::npos);
}

}  // namespace
}  // namespace sluice
