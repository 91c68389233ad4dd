#include "base/job_thread.h"

#include <gtest/gtest.h>

#include <vector>

namespace sluice {
namespace {

TEST(JobThreadTest, RunsAllJobsInOrderBeforeItStops) {
  std::vector<int> order;
  JobThread thread;
  for (int i = 0; i < 100; ++i) thread.add([&order, i] { order.push_back(i); });
  thread.stop();
  thread.stop();
  ASSERT_EQ(order.size(), 100U);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

}  // namespace
}  // namespace sluice
