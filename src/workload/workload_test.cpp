#include "workload/workload.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(Workload, RealisedRateIsThatOfTheGaps) {
  Workload workload;
  EXPECT_EQ(realised_rate(workload), 0);
  for (const int ms : {500, 700, 1500}) {
    WorkloadRequest request;
    request.arrival = std::chrono::milliseconds(ms);
    workload.requests.push_back(request);
  }
  EXPECT_DOUBLE_EQ(realised_rate(workload), 2.0);
}

TEST(Workload, AllAtOnceHasNoRate) {
  Workload workload;
  workload.requests.resize(3);
  EXPECT_EQ(realised_rate(workload), 0);
}

}  // namespace
}  // namespace sluice
