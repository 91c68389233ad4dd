#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <thread>
#include <vector>

#include "base/cpu_topology.h"
#include "base/rng.h"

namespace sluice {
namespace {

using std::chrono::steady_clock;

double process_cpu_seconds() {
  timespec t{};
  EXPECT_EQ(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t), 0);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

class ThreadPoolSizes : public testing::TestWithParam<int> {};

TEST_P(ThreadPoolSizes, RunsEveryTaskOnceAndItsWritesAreVisible) {
  ThreadPool pool(GetParam());
  EXPECT_EQ(pool.size(), GetParam());
  SplitMix64 rng(GetParam());
  for (int round = 0; round < 2000; ++round) {
    const int n = static_cast<int>(rng.below(40));
    std::vector<int> runs(static_cast<std::size_t>(n), 0);  // plain ints: tsan checks visibility
    pool.parallel_for(n, [&](int i) { ++runs[static_cast<std::size_t>(i)]; });
    EXPECT_TRUE(std::all_of(runs.begin(), runs.end(), [](int r) { return r == 1; }));
  }
}

TEST_P(ThreadPoolSizes, NestedCallsRunInline) {
  ThreadPool pool(GetParam());
  std::vector<std::vector<std::thread::id>> ids(8, std::vector<std::thread::id>(8));
  std::vector<std::thread::id> outer(8);
  pool.parallel_for(8, [&](int i) {
    const auto row = static_cast<std::size_t>(i);
    outer[row] = std::this_thread::get_id();
    pool.parallel_for(
        8, [&](int j) { ids[row][static_cast<std::size_t>(j)] = std::this_thread::get_id(); });
  });
  for (std::size_t i = 0; i < 8; ++i) {
    for (const auto id : ids[i]) EXPECT_EQ(id, outer[i]);
  }
}

TEST_P(ThreadPoolSizes, ConcurrentCallersAllFinish) {
  ThreadPool pool(GetParam());
  std::atomic<int> total{0};
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&] {
      for (int round = 0; round < 200; ++round) {
        pool.parallel_for(7, [&](int) { total.fetch_add(1, std::memory_order_relaxed); });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(total.load(), 4 * 200 * 7);
}

// Yielding all the time costs time but loses no task.
TEST_P(ThreadPoolSizes, EndlessUrgentWorkLosesNoTask) {
  UrgentWork urgent;
  const UrgentWork::Mark mark(&urgent);
  ThreadPool pool(GetParam(), &urgent);
  const auto begin = steady_clock::now();
  do {
    std::vector<int> runs(40, 0);
    pool.parallel_for(40, [&](int i) { ++runs[static_cast<std::size_t>(i)]; });
    EXPECT_TRUE(std::all_of(runs.begin(), runs.end(), [](int r) { return r == 1; }));
  } while (steady_clock::now() - begin < 20 * YieldLimiter::kInterval);
}

INSTANTIATE_TEST_SUITE_P(Sizes, ThreadPoolSizes, testing::Values(1, 2, 3, 8));

TEST(ThreadPool, BindsItsWorkersAndNotItsCaller) {
  const std::vector<int> all = allowed_cpu_ids();
  const std::vector<int> first = {all.front()};
  ThreadPool pool(3, nullptr, {first, first, first});
  std::vector<std::vector<int>> seen(3);
  std::atomic<int> inside{0};
  // Each task waits for the others, so that three threads have one each.
  pool.parallel_for(3, [&](int i) {
    seen[static_cast<std::size_t>(i)] = allowed_cpu_ids();
    inside.fetch_add(1);
    while (inside.load() < 3) std::this_thread::yield();
  });
  EXPECT_EQ(std::ranges::count(seen, first), all.size() == 1 ? 3 : 2);
  EXPECT_EQ(allowed_cpu_ids(), all);
}

TEST(ThreadPool, CountsTheLoopsThatItShares) {
  ThreadPool pool(2);
  pool.parallel_for(5, [](int) {});
  pool.parallel_for(1, [](int) {});  // inline
  pool.parallel_for(0, [](int) {});
  pool.parallel_for(2, [&](int) { pool.parallel_for(2, [](int) {}); });  // inner ones inline
  EXPECT_EQ(pool.jobs(), 2U);
}

TEST(ThreadPool, IgnoresEmptyLoops) {
  ThreadPool pool(2);
  pool.parallel_for(0, [](int) { FAIL(); });
  pool.parallel_for(-3, [](int) { FAIL(); });
}

TEST(ThreadPool, SpreadsSlowTasksOverThreads) {
  ThreadPool pool(4);
  std::atomic<int> begun = 0;
  // Each task waits for another one, which only another thread can begin.
  const auto end = steady_clock::now() + std::chrono::seconds(60);
  pool.parallel_for(4, [&](int) {
    ++begun;
    while (begun < 2 && steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_GE(begun, 2);
  });
}

TEST(ThreadPool, WakesSleepingWorkers) {
  ThreadPool pool(3);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // past the spin: all asleep
    std::atomic<int> runs{0};
    pool.parallel_for(6, [&](int) { runs.fetch_add(1); });
    EXPECT_EQ(runs.load(), 6);
  }
}

TEST(ThreadPool, IdleUsesNoCpu) {
  ThreadPool pool(4);
  pool.parallel_for(100, [](int) {});
  // Three spinning workers would use several hundred milliseconds each time. Workers of a loaded
  // machine may come late to their sleep.
  double least = 1;
  for (int i = 0; i < 20 && least >= 0.015; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const double before = process_cpu_seconds();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    least = std::min(least, process_cpu_seconds() - before);
  }
  EXPECT_LT(least, 0.015);
}

// A loaded machine wakes the other thread late most times; a lost wake-up or a timer's sleep would
// make all of them late.
TEST(ThreadPool, DispatchTakesMicroseconds) {
  ThreadPool pool(2);
  std::vector<double> microseconds;
  for (int round = 0; round < 1000; ++round) {
    const auto start = steady_clock::now();
    pool.parallel_for(2, [](int) {});
    microseconds.push_back(
        std::chrono::duration<double, std::micro>(steady_clock::now() - start).count());
  }
  std::ranges::sort(microseconds);
  RecordProperty("median_us", std::to_string(microseconds[500]));
  EXPECT_LT(microseconds[50], 1000.0);
}

}  // namespace
}  // namespace sluice
