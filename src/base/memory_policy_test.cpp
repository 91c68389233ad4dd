#include "base/memory_policy.h"

#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <thread>

namespace sluice {
namespace {

int policy_of_this_thread() {
  int mode = -1;
  EXPECT_EQ(syscall(SYS_get_mempolicy, &mode, nullptr, 0UL, nullptr, 0UL), 0);
  return mode;
}

TEST(SpreadNewMemory, HoldsForTheThreadAndThoseItStartsAndOnce) {
  std::string refused;
  std::thread([&] {
    const std::array nodes = {0};
    const Status spread = spread_new_memory(nodes);
    if (!spread) {
      refused = spread.error().message;
      return;
    }
    EXPECT_EQ(policy_of_this_thread(), MPOL_INTERLEAVE);
    std::thread([] { EXPECT_EQ(policy_of_this_thread(), MPOL_INTERLEAVE); }).join();
    // As where numactl has started the process.
    EXPECT_FALSE(spread_new_memory(nodes));
  }).join();
  if (!refused.empty()) GTEST_SKIP() << refused;
  EXPECT_EQ(policy_of_this_thread(), MPOL_DEFAULT);
}

}  // namespace
}  // namespace sluice
