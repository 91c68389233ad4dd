#include "base/thread_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace sluice {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// `nodes` of `cores` cores each. With two CPUs a core the second ones come after all first ones, as
// on most servers.
CpuTopology machine(int nodes, int cores, int cpus_per_core) {
  CpuTopology topology;
  const int total = nodes * cores;
  for (int id = 0; id < total * cpus_per_core; ++id) {
    topology.cpus.push_back({.id = id, .core = id % total, .node = id % total / cores});
  }
  return topology;
}

std::vector<int> ids(int first, int count) {
  std::vector<int> list(static_cast<std::size_t>(count));
  std::iota(list.begin(), list.end(), first);
  return list;
}

TEST(ThreadPlan, HasOneThreadForEachCpuWithoutHyperthreads) {
  const ThreadPlan plan = plan_threads(machine(1, 4, 1), ids(0, 4), {}, 0);
  EXPECT_EQ(plan.threads, 4);
  EXPECT_EQ(plan.reason, "one for each of 4 CPUs");
  EXPECT_THAT(plan.bound, IsEmpty());
  EXPECT_THAT(plan.nodes, IsEmpty());
}

TEST(ThreadPlan, HasOneThreadForEachCoreOfHyperthreads) {
  const ThreadPlan plan = plan_threads(machine(1, 8, 2), ids(0, 16), {}, 0);
  EXPECT_EQ(plan.threads, 8);
  EXPECT_EQ(plan.cores, 8);
  EXPECT_EQ(plan.cpus, 16);
  EXPECT_EQ(plan.reason, "one for each of 8 cores with 16 CPUs");
  EXPECT_THAT(plan.bound, IsEmpty());  // the system finds idle cores; see the header
}

TEST(ThreadPlan, CountsTheCoresOfACpusetOnly) {
  const CpuTopology topology = machine(1, 8, 2);
  EXPECT_EQ(plan_threads(topology, ids(0, 4), {}, 0).threads, 4);  // of four cores one CPU each
  const std::vector<int> pairs = {0, 8, 1, 9};
  EXPECT_EQ(plan_threads(topology, pairs, {}, 0).threads, 2);
}

TEST(ThreadPlan, AnOfflineSiblingLeavesItsCore) {
  CpuTopology topology = machine(1, 4, 2);
  topology.cpus.erase(topology.cpus.begin());  // CPU 0; 4 becomes the first of its core
  for (LogicalCpu& cpu : topology.cpus) {
    if (cpu.id == 4) cpu.core = 4;
  }
  EXPECT_EQ(plan_threads(topology, ids(1, 7), {}, 0).threads, 4);
}

TEST(ThreadPlan, KeepsToTheControlGroupsLimit) {
  const CpuTopology topology = machine(1, 8, 2);
  const ThreadPlan plan = plan_threads(topology, ids(0, 16), 3.5, 0);
  EXPECT_EQ(plan.threads, 3);
  EXPECT_EQ(plan.reason, "the control group allows 3.5 CPUs, of 8 cores with 16 CPUs");
  EXPECT_EQ(plan_threads(topology, ids(0, 16), 0.2, 0).threads, 1);
  EXPECT_EQ(plan_threads(topology, ids(0, 16), 8.0, 0).threads, 8);
  EXPECT_EQ(plan_threads(topology, ids(0, 16), 64.0, 0).threads, 8);
}

TEST(ThreadPlan, TheUsersNumberIsTaken) {
  const ThreadPlan plan = plan_threads(machine(1, 8, 2), ids(0, 16), 2.0, 12);
  EXPECT_EQ(plan.threads, 12);
  EXPECT_THAT(plan.reason, HasSubstr("as --threads says"));
}

TEST(ThreadPlan, BindsThreadsToTheNodesThatTheyFill) {
  const ThreadPlan plan = plan_threads(machine(2, 4, 2), ids(0, 16), {}, 0);
  EXPECT_EQ(plan.threads, 8);
  EXPECT_THAT(plan.nodes, ElementsAre(0, 1));
  ASSERT_THAT(plan.bound, SizeIs(8));
  // All CPUs of the node, so that a thread never waits for one of them beside other programs.
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_THAT(plan.bound[i], ElementsAre(0, 1, 2, 3, 8, 9, 10, 11)) << i;
    EXPECT_THAT(plan.bound[i + 4], ElementsAre(4, 5, 6, 7, 12, 13, 14, 15)) << i;
  }
  EXPECT_THAT(plan.reason, HasSubstr("memory is spread over 2 nodes, threads are bound"));
}

TEST(ThreadPlan, SharesThreadsByTheCoresOfEachNode) {
  // Six cores are on node 0, two on node 1.
  const std::vector<int> allowed = {0, 1, 2, 3, 4, 5, 8, 9};
  for (const int wanted : {0, 8, 16}) {
    const ThreadPlan plan = plan_threads(machine(2, 8, 1), allowed, {}, wanted);
    ASSERT_THAT(plan.bound, SizeIs(static_cast<std::size_t>(plan.threads)));
    const auto second =
        std::ranges::count_if(plan.bound, [](const auto& mask) { return mask.front() == 8; });
    EXPECT_EQ(second, plan.threads / 4) << wanted;
  }
}

TEST(ThreadPlan, DoesNotBindWhereCoresAreLeft) {
  const ThreadPlan plan = plan_threads(machine(2, 8, 1), ids(0, 16), {}, 8);
  EXPECT_THAT(plan.bound, IsEmpty());
  EXPECT_THAT(plan.nodes, ElementsAre(0, 1));
  const ThreadPlan limited = plan_threads(machine(2, 8, 1), ids(0, 16), 4.0, 0);
  EXPECT_THAT(limited.bound, IsEmpty());
}

TEST(ThreadPlan, ACpusetOnOneNodeNeedsNoPlaces) {
  const ThreadPlan plan = plan_threads(machine(2, 8, 2), ids(8, 8), {}, 0);
  EXPECT_EQ(plan.threads, 8);
  EXPECT_THAT(plan.bound, IsEmpty());
  EXPECT_THAT(plan.nodes, IsEmpty());
}

TEST(ThreadPlan, AnUnknownMachineHasAThreadForEachAllowedCpu) {
  EXPECT_EQ(plan_threads({}, ids(3, 5), {}, 0).threads, 5);
  EXPECT_EQ(plan_threads({}, {}, {}, 0).threads, 1);
}

// Two processes on one machine see the same topology, so they make the same plan: no CPU may be
// so scarce in it that both wait for it while others are idle.
TEST(ThreadPlan, NeverBindsToLessThanANode) {
  for (const int cpus_per_core : {1, 2}) {
    for (const int nodes : {1, 2, 4}) {
      const CpuTopology topology = machine(nodes, 4, cpus_per_core);
      const auto all = ids(0, static_cast<int>(topology.cpus.size()));
      EXPECT_THAT(plan_threads(topology, all, {}, 0).bound,
                  Each(SizeIs(static_cast<std::size_t>(4 * cpus_per_core))));
    }
  }
}

}  // namespace
}  // namespace sluice
