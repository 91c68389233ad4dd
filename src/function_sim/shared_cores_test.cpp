#include "function_sim/shared_cores.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

using std::chrono::milliseconds;

TimePoint at(int ms) { return TimePoint() + milliseconds(ms); }

// Takes all that ends until there is none, and returns the times by call.
std::vector<int> ends_of(SharedCores& cores, int calls) {
  std::vector<int> ends(static_cast<std::size_t>(calls), -1);
  while (const auto next = cores.next_end()) {
    const auto work = cores.take_ended(*next);
    EXPECT_TRUE(work.has_value());
    if (!work) break;
    ends[static_cast<std::size_t>(work->call)] =
        static_cast<int>((next->since_start + std::chrono::microseconds(1)) / milliseconds(1));
  }
  return ends;
}

TEST(SharedCoresTest, FunctionsAtWorkHaveEqualShares) {
  SharedCores cores(true);
  cores.add(at(0), {0, 0}, milliseconds(100));
  cores.add(at(50), {1, 1}, milliseconds(100));
  // The first one has 50 ms left at half the speed; then the second one is alone.
  EXPECT_EQ(ends_of(cores, 2), (std::vector<int>{150, 200}));
}

TEST(SharedCoresTest, AFunctionsWorksShareItsTurns) {
  SharedCores cores(true);
  cores.add(at(0), {0, 0}, milliseconds(100));
  cores.add(at(0), {0, 1}, milliseconds(40));
  cores.add(at(0), {1, 2}, milliseconds(50));
  EXPECT_EQ(ends_of(cores, 3), (std::vector<int>{150, 80, 100}));
}

TEST(SharedCoresTest, ADeviceComputesAllAtItsSpeed) {
  SharedCores device(false);
  device.add(at(0), {0, 0}, milliseconds(100));
  device.add(at(50), {1, 1}, milliseconds(100));
  EXPECT_EQ(ends_of(device, 2), (std::vector<int>{100, 150}));
}

TEST(SharedCoresTest, NothingEndsBeforeItsTime) {
  SharedCores cores(true);
  EXPECT_FALSE(cores.next_end());
  EXPECT_FALSE(cores.take_ended(at(1)));
  cores.add(at(1), {0, 0}, milliseconds(10));
  EXPECT_FALSE(cores.take_ended(at(10)));
  cores.add(at(10), {1, 1}, milliseconds(10));
  EXPECT_FALSE(cores.take_ended(at(11))) << "half the speed";
  EXPECT_TRUE(cores.take_ended(at(12)));
}

}  // namespace
}  // namespace sluice
