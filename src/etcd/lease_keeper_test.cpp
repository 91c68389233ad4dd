#include "etcd/lease_keeper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/rng.h"
#include "tests/support/fake_etcd.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::FakeEtcd;
using test::Wire;
using testing::ElementsAre;
using testing::IsEmpty;

class LeaseKeeperTest : public testing::Test {
 protected:
  // Answers the oldest call.
  void answer() {
    ASSERT_FALSE(wire_.calls.empty());
    const Wire::Call call = wire_.calls.front();
    wire_.calls.pop_front();
    call.done(etcd_.handle(call.call));
  }
  void refuse() {
    ASSERT_FALSE(wire_.calls.empty());
    const Wire::Call call = wire_.calls.front();
    wire_.calls.pop_front();
    call.done(tl::unexpected(unavailable("cut off")));
  }
  void tick_after(Duration time) {
    clock_.advance(time);
    keeper_.tick();
  }
  void get_lease() {
    keeper_.tick();
    answer();
    ASSERT_TRUE(keeper_.is_valid());
  }

  ManualClock clock_;
  FakeEtcd etcd_{clock_};
  Wire wire_;
  std::vector<std::string> failures_;
  std::vector<std::string> ends_;
  LeaseKeeper keeper_{3,
                      wire_,
                      clock_,
                      {.failed = [this](const std::string& cause) { failures_.push_back(cause); },
                       .ended = [this](const std::string& cause) { ends_.push_back(cause); }}};
};

TEST_F(LeaseKeeperTest, RenewsEachThirdOfTheTime) {
  get_lease();
  const std::int64_t first = keeper_.id();
  tick_after(milliseconds(999));
  EXPECT_THAT(wire_.calls, IsEmpty());
  tick_after(milliseconds(1));
  ASSERT_EQ(wire_.calls.size(), 1U);
  EXPECT_EQ(wire_.calls.front().call.path, "/v3/lease/keepalive");
  tick_after(milliseconds(100));
  EXPECT_EQ(wire_.calls.size(), 1U) << "one call at a time";
  answer();
  // It counts from the sending of the renewal, 1 s after the start.
  clock_.advance(milliseconds(2899));
  EXPECT_TRUE(keeper_.is_valid());
  clock_.advance(milliseconds(1));
  EXPECT_FALSE(keeper_.is_valid());
  EXPECT_EQ(keeper_.id(), first);
  EXPECT_THAT(failures_, IsEmpty());
}

TEST_F(LeaseKeeperTest, TriesAgainAndGetsAnotherLeaseOnceItsTimeIsOver) {
  get_lease();
  const std::int64_t first = keeper_.id();
  tick_after(seconds(1));
  refuse();
  EXPECT_THAT(failures_, ElementsAre("cut off"));
  tick_after(milliseconds(199));
  EXPECT_THAT(wire_.calls, IsEmpty());
  tick_after(milliseconds(1));
  refuse();
  tick_after(milliseconds(1800));
  EXPECT_THAT(ends_, ElementsAre("its lease has ended"));
  ASSERT_EQ(wire_.calls.size(), 1U);
  EXPECT_EQ(wire_.calls.front().call.path, "/v3/lease/grant");
  answer();
  EXPECT_TRUE(keeper_.is_valid());
  EXPECT_NE(keeper_.id(), first);
}

TEST_F(LeaseKeeperTest, EtcdEndsALease) {
  get_lease();
  etcd_.forget();
  tick_after(seconds(1));
  answer();
  EXPECT_THAT(ends_, ElementsAre("etcd has ended its lease"));
  EXPECT_EQ(keeper_.id(), 0);
  get_lease();
}

// Keys that are bound to a lease that was dropped must end with it.
TEST_F(LeaseKeeperTest, ALateRenewalDoesNotBringADroppedLeaseBack) {
  get_lease();
  tick_after(seconds(1));
  keeper_.drop(milliseconds(500));
  answer();
  EXPECT_FALSE(keeper_.is_valid());
  EXPECT_THAT(ends_, IsEmpty()) << "the owner has dropped it itself";
}

TEST_F(LeaseKeeperTest, ADroppedLeaseIsFollowedByAnotherOneAfterThePause) {
  get_lease();
  const std::int64_t first = keeper_.id();
  keeper_.drop(milliseconds(500));
  tick_after(milliseconds(499));
  EXPECT_THAT(wire_.calls, IsEmpty());
  tick_after(milliseconds(1));
  answer();
  EXPECT_TRUE(keeper_.is_valid());
  EXPECT_NE(keeper_.id(), first);
}

TEST_F(LeaseKeeperTest, AnAnswerAboutAnotherLeaseIsAFailure) {
  get_lease();
  const std::int64_t first = keeper_.id();
  tick_after(seconds(1));
  wire_.calls.front().done(etcd_.handle(etcd_grant(3)));
  EXPECT_THAT(failures_, ElementsAre("etcd's answer is about another lease"));
  EXPECT_EQ(keeper_.id(), first);
  clock_.advance(milliseconds(1999));
  EXPECT_TRUE(keeper_.is_valid());
  clock_.advance(milliseconds(1));
  EXPECT_FALSE(keeper_.is_valid()) << "the answer must not prolong the lease";
}

TEST_F(LeaseKeeperTest, AnAdoptedLeaseIsRenewedAtOnce) {
  const auto granted = etcd_.handle(etcd_grant(3));
  ASSERT_TRUE(granted);
  const auto lease = parse_etcd_lease(*granted);
  ASSERT_TRUE(lease);
  keeper_.adopt(lease->id, clock_.now() + seconds(3));
  EXPECT_TRUE(keeper_.is_valid());
  keeper_.tick();
  answer();
  EXPECT_EQ(keeper_.id(), lease->id);
}

TEST_F(LeaseKeeperTest, AfterTheReleaseNothingIsAsked) {
  get_lease();
  tick_after(seconds(1));
  const std::int64_t id = keeper_.id();
  EXPECT_EQ(keeper_.release(), id);
  answer();
  EXPECT_FALSE(keeper_.is_valid());
  tick_after(seconds(10));
  EXPECT_THAT(wire_.calls, IsEmpty());
  EXPECT_THAT(ends_, IsEmpty());
  EXPECT_EQ(keeper_.release(), 0);
}

// Whatever is lost or late, etcd has a lease while the keeper says that it is valid.
TEST_F(LeaseKeeperTest, AValidLeaseIsValidInEtcdToo) {
  SplitMix64 rng(7);
  int valid = 0;
  for (int i = 0; i < 20'000; ++i) {
    tick_after(milliseconds(rng() % 200));
    if (rng() % 400 == 0) keeper_.drop(milliseconds(rng() % 1000));
    if (!wire_.calls.empty() && rng() % 3 != 0) {
      const Wire::Call call = wire_.calls.front();
      wire_.calls.pop_front();
      auto answer = etcd_.handle(call.call);
      clock_.advance(milliseconds(rng() % 3 == 0 ? rng() % 4000 : 0));
      if (rng() % 4 == 0) answer = tl::unexpected(unavailable("lost"));
      call.done(answer);
    }
    if (!keeper_.is_valid()) continue;
    ++valid;
    EtcdTransaction bound;
    bound.lease = keeper_.id();
    bound.leased = {{"/key", "value"}};
    ASSERT_TRUE(etcd_.handle(etcd_transaction(bound))) << "etcd knows no such lease";
  }
  EXPECT_GT(valid, 5'000);
}

}  // namespace
}  // namespace sluice
