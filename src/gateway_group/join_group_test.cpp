#include "gateway_group/join_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/fake_etcd.h"

namespace sluice {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

class JoinGroupTest : public testing::Test {
 protected:
  GroupCalls calls(int failures = 0) {
    return {[this, failures](const EtcdCall& call) mutable -> Result<std::string> {
              if (failures-- > 0) return tl::unexpected(unavailable("no etcd here"));
              return etcd_.handle(call);
            },
            [this](Duration time) { clock_.advance(time); }};
  }
  const GroupOptions options_{.prefix = "/g", .name = "a", .process = "p", .ttl_s = 5};
  ManualClock clock_;
  test::FakeEtcd etcd_{clock_};
};

TEST_F(JoinGroupTest, TheFirstOnePublishesItsFile) {
  const auto start = join_group(options_, "mine", calls(), clock_);
  ASSERT_TRUE(start);
  EXPECT_EQ(start->functions, "mine");
  EXPECT_EQ(start->lease_ends, clock_.now() + seconds(5));
  auto values = etcd_.values();
  EXPECT_EQ(values["/g/functions"], "mine");
  EXPECT_EQ(values["/g/state/live/a"], "p");
  EXPECT_EQ(values["/g/state/functions"].size(), 64U);
}

TEST_F(JoinGroupTest, WaitsForAnEtcdThatStartsAndNotForever) {
  ASSERT_TRUE(join_group(options_, "mine", calls(3), clock_));
  const TimePoint begin = clock_.now();
  const GroupOptions other{.prefix = "/g", .name = "b", .process = "q", .ttl_s = 5};
  const auto refused = join_group(other, "mine", calls(1 << 20), clock_);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("no etcd here"));
  EXPECT_LE(clock_.now() - begin, seconds(12));
}

TEST_F(JoinGroupTest, AFileThatEtcdCannotTakeIsRefused) {
  const auto refused =
      join_group(options_, std::string(GatewayGroup::kMaxFunctions + 1, 'x'), calls(), clock_);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("1 MiB"));
}

}  // namespace
}  // namespace sluice
