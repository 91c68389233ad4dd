#include "device/cpu/host_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace sluice {
namespace {

namespace fs = std::filesystem;

class HostMemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "host_memory_" +
            testing::UnitTest::GetInstance()->current_test_info()->name() + "/";
    fs::remove_all(root_);
    put("proc/meminfo", "MemTotal:       1000 kB\nMemFree: 1 kB\nMemAvailable:    600 kB\n");
  }
  void TearDown() override { fs::remove_all(root_); }

  void put(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  MemoryInfo read() {
    auto info = read_host_memory(root_);
    EXPECT_TRUE(info);
    return info.value_or(MemoryInfo{});
  }

  std::string root_;
};

TEST_F(HostMemoryTest, WithoutControlGroupsTheKernelsNumbers) {
  EXPECT_EQ(read().total_bytes, 1000 * 1024);
  EXPECT_EQ(read().free_bytes, 600 * 1024);
}

TEST_F(HostMemoryTest, TheTightestLevelOfVersion2Counts) {
  put("proc/self/cgroup", "0::/a/b\n");
  put("sys/fs/cgroup/a/b/memory.max", "max\n");
  put("sys/fs/cgroup/a/b/memory.current", "5\n");
  put("sys/fs/cgroup/a/memory.max", "500000\n");
  put("sys/fs/cgroup/a/memory.current", "300000\n");
  put("sys/fs/cgroup/a/memory.stat", "active_file 7\ninactive_file 50000\n");
  EXPECT_EQ(read().total_bytes, 500000);
  EXPECT_EQ(read().free_bytes, 250000) << "page cache that can be dropped is free";
}

TEST_F(HostMemoryTest, Version1WithThePathOfAnotherNamespace) {
  put("proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/outside/path\n0::/\n");
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", "400000\n");
  put("sys/fs/cgroup/memory/memory.usage_in_bytes", "500000\n");
  EXPECT_EQ(read().total_bytes, 400000);
  EXPECT_EQ(read().free_bytes, 0);
}

TEST_F(HostMemoryTest, ALimitAboveTheMachineChangesNothing) {
  put("proc/self/cgroup", "4:memory:/\n");
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  put("sys/fs/cgroup/memory/memory.usage_in_bytes", "1000\n");
  EXPECT_EQ(read().free_bytes, 600 * 1024);
}

TEST_F(HostMemoryTest, TheLimitThatSlowsDownCounts) {
  put("proc/self/cgroup", "0::/a\n");
  put("sys/fs/cgroup/a/memory.max", "500000\n");
  put("sys/fs/cgroup/a/memory.high", "400000\n");
  put("sys/fs/cgroup/a/memory.current", "300000\n");
  EXPECT_EQ(read().free_bytes, 100000);
  put("sys/fs/cgroup/a/memory.high", "200000\n");
  EXPECT_EQ(read().free_bytes, 0);
  EXPECT_EQ(read_memory_state(root_)->left, -100000);
  put("sys/fs/cgroup/a/memory.high", "max\n");
  EXPECT_EQ(read().free_bytes, 200000);
  put("sys/fs/cgroup/a/memory.max", "max\n");
  put("sys/fs/cgroup/a/memory.high", "350000\n");
  EXPECT_EQ(read().free_bytes, 50000);
}

TEST_F(HostMemoryTest, StallsOfTheOwnGroupElseOfTheMachine) {
  EXPECT_FALSE(read_memory_state(root_)->stalled);
  put("proc/pressure/memory", "some avg10=0.00 avg60=0.00 avg300=0.00 total=1500\nfull total=7\n");
  EXPECT_EQ(read_memory_state(root_)->stalled, std::chrono::microseconds(1500));
  put("proc/self/cgroup", "0::/a\n");
  put("sys/fs/cgroup/a/memory.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=40\n");
  EXPECT_EQ(read_memory_state(root_)->stalled, std::chrono::microseconds(40));
  put("sys/fs/cgroup/a/memory.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=x\n");
  EXPECT_EQ(read_memory_state(root_)->stalled, std::chrono::microseconds(1500));
}

TEST_F(HostMemoryTest, MissingOrBrokenMeminfoIsAnError) {
  put("proc/meminfo", "MemTotal: lots\n");
  auto broken = read_host_memory(root_);
  ASSERT_FALSE(broken);
  EXPECT_THAT(broken.error().message, testing::HasSubstr("MemAvailable"));
  fs::remove_all(root_);
  auto missing = read_host_memory(root_);
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().message, testing::HasSubstr("proc/meminfo"));
}

TEST(HostMemory, ThisMachineHasSome) {
  const auto info = read_host_memory("/");
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_GT(info->total_bytes, 0);
  EXPECT_GE(info->total_bytes, info->free_bytes);
}

}  // namespace
}  // namespace sluice
