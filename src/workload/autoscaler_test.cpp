#include "workload/autoscaler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

struct Counts {
  int all = 0;
  int redirected = 0;
};

// `rate` requests per second at equal distances, from `from` to `to`.
Counts send(Autoscaler& scaler, int from, int to, int rate) {
  Counts counts;
  for (int i = from * rate; i < to * rate; ++i) {
    ++counts.all;
    if (scaler.redirect(Duration(std::chrono::milliseconds(1000 * i / rate)))) ++counts.redirected;
  }
  return counts;
}

TEST(Autoscaler, ABurstsSurplusGoesToTheNewMachineOnceItIsReady) {
  Autoscaler scaler({.rate = 2, .check = seconds(5), .start = seconds(60)});
  EXPECT_EQ(send(scaler, 0, 30, 2).redirected, 0);
  EXPECT_FALSE(scaler.ready_at());
  // The burst is seen at the end of its first window.
  EXPECT_EQ(send(scaler, 30, 90, 4).redirected, 0);
  EXPECT_EQ(scaler.ready_at(), seconds(95));
  const Counts at_rate = send(scaler, 90, 95, 2);
  EXPECT_EQ(at_rate.redirected, 0);
  // 2 per second for 60 seconds were too many. All new requests go there until they are made up
  // for.
  const Counts after = send(scaler, 95, 155, 2);
  EXPECT_NEAR(after.redirected, 120, 2);
  EXPECT_EQ(send(scaler, 160, 200, 2).redirected, 0);
  EXPECT_EQ(scaler.redirected(), after.redirected);
}

TEST(Autoscaler, ALoadWithinTheRateStartsNothing) {
  Autoscaler scaler({.rate = 10, .check = seconds(5), .start = seconds(1)});
  send(scaler, 0, 100, 14);  // less than half more
  EXPECT_FALSE(scaler.ready_at());
  EXPECT_EQ(scaler.redirected(), 0);
}

TEST(Autoscaler, FewRequestsInAShortTimeAreNoBurst) {
  // One request every ten seconds: a window of five seconds that has one is no burst.
  Autoscaler scaler({.rate = 0.1, .check = seconds(5), .start = seconds(60)});
  int at = 0;
  for (; at < 300; at += 10) scaler.redirect(seconds(at));
  EXPECT_FALSE(scaler.ready_at());
  for (; at < 400; at += 5) scaler.redirect(seconds(at));
  ASSERT_TRUE(scaler.ready_at());
  EXPECT_GT(*scaler.ready_at(), seconds(300 + 60));
  EXPECT_LT(*scaler.ready_at(), seconds(350 + 60));
}

TEST(Autoscaler, WindowsWithoutRequestsEnd) {
  Autoscaler scaler({.rate = 1, .check = seconds(5), .start = seconds(10)});
  for (int i = 0; i < 8; ++i) EXPECT_FALSE(scaler.redirect(seconds(0)));
  EXPECT_FALSE(scaler.redirect(seconds(1000)));  // by now the surplus is gone
  EXPECT_EQ(scaler.ready_at(), seconds(15));
}

TEST(Autoscaler, ItsTextIsChecked) {
  const auto parsed = parse_autoscale("0.5,5,60");
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->rate, 0.5);
  EXPECT_EQ(parsed->check, seconds(5));
  EXPECT_EQ(parsed->start, seconds(60));
  for (const char* wrong : {"", "5", "1,5", "1,5,60,7", "1,,60", "0,5,60", "1,-5,60", "1,5,nan",
                            "1,5,inf", "a,5,60", "1,5,60s"}) {
    const auto refused = parse_autoscale(wrong);
    ASSERT_FALSE(refused) << wrong;
    EXPECT_THAT(refused.error().message, HasSubstr("RATE,CHECK,START")) << wrong;
  }
}

}  // namespace
}  // namespace sluice
