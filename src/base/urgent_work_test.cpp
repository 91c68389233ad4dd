#include "base/urgent_work.h"

#include <gtest/gtest.h>

#include <thread>
#include <utility>

namespace sluice {
namespace {

TEST(UrgentWork, IsPendingWhileAnyMarkLives) {
  UrgentWork work;
  EXPECT_FALSE(work.pending());
  UrgentWork::Mark first(&work);
  {
    const UrgentWork::Mark second(&work);
    EXPECT_TRUE(work.pending());
  }
  EXPECT_TRUE(work.pending());
  UrgentWork::Mark moved = std::move(first);
  first = UrgentWork::Mark();  // a moved-from mark counts nothing
  EXPECT_TRUE(work.pending());
  moved = UrgentWork::Mark(&work);
  EXPECT_TRUE(work.pending());
  moved = UrgentWork::Mark(nullptr);
  EXPECT_FALSE(work.pending());
}

TEST(UrgentWork, CountsWhereOthersReadAndReadsTheirCount) {
  UrgentWork::Count servers = 0;
  UrgentWork server(&servers);
  const UrgentWork function(nullptr, &servers);
  EXPECT_FALSE(function.pending());
  {
    const UrgentWork::Mark mark(&server);
    EXPECT_EQ(servers, 1);
    EXPECT_TRUE(server.pending() && function.pending());
  }
  EXPECT_FALSE(server.pending() || function.pending());
}

TEST(YieldLimiter, IsDueAtMostOncePerInterval) {
  UrgentWork work;
  YieldLimiter yields(&work);
  EXPECT_FALSE(yields.due());
  const UrgentWork::Mark mark(&work);
  const auto begin = std::chrono::steady_clock::now();
  int times = 0;
  do {
    times += yields.due() ? 1 : 0;
  } while (std::chrono::steady_clock::now() - begin < 10 * YieldLimiter::kInterval);
  const auto intervals = (std::chrono::steady_clock::now() - begin) / YieldLimiter::kInterval;
  EXPECT_GE(times, 1);
  EXPECT_LE(times, intervals + 1);
}

TEST(YieldLimiter, IsNeverDueWithoutUrgentWork) {
  YieldLimiter yields(nullptr);
  EXPECT_FALSE(yields.due());
}

}  // namespace
}  // namespace sluice
