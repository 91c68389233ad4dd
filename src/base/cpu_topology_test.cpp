#include "base/cpu_topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// A machine's files below a folder of its own.
class FakeMachine : public testing::Test {
 protected:
  FakeMachine() {
    std::string name = testing::TempDir() + "cpu_topology_XXXXXX";
    root_ = std::string(mkdtemp(name.data())) + "/";
  }
  ~FakeMachine() override { std::filesystem::remove_all(root_); }

  void put(const std::string& path, const std::string& text) const {
    const std::filesystem::path full = root_ + path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }
  void put_cpu(int id, const std::string& siblings) const {
    put("sys/devices/system/cpu/cpu" + std::to_string(id) + "/topology/thread_siblings_list",
        siblings + "\n");
  }
  std::vector<int> cores() const {
    std::vector<int> cores;
    for (const LogicalCpu& cpu : read_cpu_topology(root_).cpus) cores.push_back(cpu.core);
    return cores;
  }

  std::string root_;
};

TEST(ParseCpuList, ReadsTheKernelsLists) {
  EXPECT_THAT(*parse_cpu_list("0-3,8"), ElementsAre(0, 1, 2, 3, 8));
  EXPECT_THAT(*parse_cpu_list("5,1,1-2"), ElementsAre(1, 2, 5));
  EXPECT_THAT(*parse_cpu_list(""), IsEmpty());
}

TEST(ParseCpuList, RefusesDamagedLists) {
  for (const char* text :
       {"-", "1-", "3-1", "1,", ",1", "a", "1 2", "-1", "0-70000", "99999999999"}) {
    EXPECT_FALSE(parse_cpu_list(text)) << text;
  }
}

TEST_F(FakeMachine, TheLargestCacheOfAnyCpuCounts) {
  EXPECT_EQ(largest_cache_bytes(root_), 0);
  put("sys/devices/system/cpu/online", "0-1\n");
  EXPECT_EQ(largest_cache_bytes(root_), 0);
  const std::string cpus = "sys/devices/system/cpu/cpu";
  put(cpus + "0/cache/index0/size", "48K\n");
  put(cpus + "0/cache/index1/size", "2048K\n");
  put(cpus + "1/cache/index0/size", "damaged\n");
  put(cpus + "1/cache/index1/size", "99999999999999999999K\n");
  put(cpus + "1/cache/index2/size", "491520K\n");
  put(cpus + "1/cache/index4/size", "999999K\n");  // no index 3, so the list has ended
  EXPECT_EQ(largest_cache_bytes(root_), std::int64_t{480} << 20);
}

TEST_F(FakeMachine, PairsOfHyperthreadsShareACore) {
  put("sys/devices/system/cpu/online", "0-3\n");
  put_cpu(0, "0,2");
  put_cpu(1, "1,3");
  put_cpu(2, "0,2");
  put_cpu(3, "1,3");
  EXPECT_THAT(cores(), ElementsAre(0, 1, 0, 1));
}

TEST_F(FakeMachine, OfflineCpusAreLeftOut) {
  put("sys/devices/system/cpu/online", "0,3\n");
  put_cpu(0, "0");
  put_cpu(3, "3");
  EXPECT_THAT(cores(), ElementsAre(0, 3));
}

TEST_F(FakeMachine, NodesListTheirCpus) {
  put("sys/devices/system/cpu/online", "0-3\n");
  put("sys/devices/system/node/online", "0-1\n");
  put("sys/devices/system/node/node0/cpulist", "0,2\n");
  put("sys/devices/system/node/node1/cpulist", "1,3\n");
  const CpuTopology topology = read_cpu_topology(root_);
  ASSERT_EQ(topology.cpus.size(), 4U);
  for (const LogicalCpu& cpu : topology.cpus) EXPECT_EQ(cpu.node, cpu.id % 2);
}

TEST_F(FakeMachine, CpusWithDamagedFilesAreCoresOfTheirOwn) {
  put("sys/devices/system/cpu/online", "0-2\n");
  put_cpu(0, "nonsense");
  put_cpu(1, "0,2");  // not itself
  EXPECT_THAT(cores(), ElementsAre(0, 1, 2));
}

TEST_F(FakeMachine, AMachineWithoutFilesIsEmpty) { EXPECT_THAT(cores(), IsEmpty()); }

TEST_F(FakeMachine, TheLeastCpuLimitOfAllLevelsCounts) {
  put("proc/self/cgroup", "0::/a/b\n");
  EXPECT_FALSE(read_cpu_limit(root_));
  put("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  EXPECT_FALSE(read_cpu_limit(root_));
  put("sys/fs/cgroup/a/cpu.max", "350000 100000\n");
  EXPECT_DOUBLE_EQ(*read_cpu_limit(root_), 3.5);
  put("sys/fs/cgroup/a/b/cpu.max", "50000 100000\n");
  EXPECT_DOUBLE_EQ(*read_cpu_limit(root_), 0.5);
}

TEST_F(FakeMachine, LimitsOfTheOldControlGroupsCount) {
  put("proc/self/cgroup", "4:cpu,cpuacct:/outside\n3:memory:/\n");
  put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  put("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_FALSE(read_cpu_limit(root_));
  put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n");
  EXPECT_DOUBLE_EQ(*read_cpu_limit(root_), 2);
}

TEST(CpuTopology, ListsTheAllowedCpusOfThisMachine) {
  const CpuTopology topology = read_cpu_topology("/");
  if (topology.cpus.empty()) GTEST_SKIP() << "/sys is not mounted";
  ASSERT_THAT(allowed_cpu_ids(), testing::Not(IsEmpty()));
  for (const int id : allowed_cpu_ids()) {
    EXPECT_NE(std::ranges::find(topology.cpus, id, &LogicalCpu::id), topology.cpus.end()) << id;
  }
}

TEST(BindThisThread, LimitsTheThreadAlone) {
  const std::vector<int> all = allowed_cpu_ids();
  ASSERT_FALSE(all.empty());
  std::thread([&] {
    const std::vector<int> last = {all.back()};
    ASSERT_TRUE(bind_this_thread(last));
    EXPECT_EQ(allowed_cpu_ids(), last);
  }).join();
  EXPECT_EQ(allowed_cpu_ids(), all);
}

}  // namespace
}  // namespace sluice
