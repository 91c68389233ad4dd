#include "gateway_group/group_usage.h"

#include <gtest/gtest.h>

#include <future>

#include "gateway_group/gateway_group.h"
#include "gateway_group/usage_reader.h"
#include "tests/support/fake_etcd.h"

namespace sluice {
namespace {

UsageRow row_with(std::int64_t requests) {
  UsageRow row{"2026-11-25", "t", "f", {}, 0, 0};
  row.usage.requests = requests;
  return row;
}

class GroupUsageTest : public testing::Test {
 protected:
  GroupUsageTest() {
    EtcdTransaction taken;
    taken.changes = {{group_live_key("/g", "one"), "p"}};
    EXPECT_TRUE(etcd_.handle(etcd_transaction(taken)));
  }
  Result<std::string> ask(const EtcdCall& call) {
    const std::lock_guard lock(mutex_);
    if (is_lost_) return unavailable("cut");
    return etcd_.handle(call);
  }
  void lose(bool is_lost) {
    const std::lock_guard lock(mutex_);
    is_lost_ = is_lost;
  }
  std::unique_ptr<GroupUsage> open(const std::string& store, std::vector<UsageRow> rows) {
    return std::make_unique<GroupUsage>(
        UsagePublisherOptions{"/g", "one", "p", store}, rows,
        [this](const EtcdCall& call) { return ask(call); }, clock_);
  }
  // After all that the group was told to do before.
  Result<std::vector<UsageRow>> read(GroupUsage& group) {
    std::promise<Result<std::vector<UsageRow>>> answer;
    group.read("2026-11-25", "2026-11-25", [&](auto rows) { answer.set_value(std::move(rows)); });
    return answer.get_future().get();
  }
  std::int64_t published() {
    const auto rows = read_group_usage("/g", "none", "2026-11-25", "2026-11-25",
                                       [this](const EtcdCall& call) { return ask(call); });
    return rows && !rows->empty() ? (*rows)[0].usage.requests : -1;
  }

  ManualClock clock_;
  std::mutex mutex_;
  test::FakeEtcd etcd_{clock_};
  bool is_lost_ = false;
};

TEST_F(GroupUsageTest, PublishesInRoundsAndAtItsEnd) {
  auto group = open("1", {row_with(1)});
  group->tick();
  ASSERT_TRUE(read(*group)->empty()) << "the own rows are not those of others";
  EXPECT_EQ(published(), 1) << "what the file had";
  group->written(std::vector{row_with(2)});
  group->tick();
  ASSERT_TRUE(read(*group));
  EXPECT_EQ(published(), 1) << "a round has not passed";
  clock_.advance(GroupUsage::kRound);
  group->tick();
  ASSERT_TRUE(read(*group));
  EXPECT_EQ(published(), 2);
  group->written(std::vector{row_with(3)});
  group->stop();
  EXPECT_EQ(published(), 3);
}

TEST_F(GroupUsageTest, ALostEtcdIsAnErrorAndLaterRoundsHaveAll) {
  auto group = open("1", {});
  lose(true);
  group->written(std::vector{row_with(7)});
  group->tick();
  EXPECT_FALSE(read(*group));
  lose(false);
  EXPECT_TRUE(read(*group));
  clock_.advance(GroupUsage::kRound);
  group->tick();
  ASSERT_TRUE(read(*group));
  EXPECT_EQ(published(), 7);
}

TEST_F(GroupUsageTest, ReadsTheRowsOfOthers) {
  auto other = open("2", {row_with(5)});
  other->stop();
  auto group = open("1", {row_with(1)});
  const auto rows = read(*group);
  ASSERT_TRUE(rows) << rows.error().message;
  ASSERT_EQ(rows->size(), 1U);
  EXPECT_EQ((*rows)[0].usage.requests, 5);
}

}  // namespace
}  // namespace sluice
