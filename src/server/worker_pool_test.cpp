#include "server/worker_pool.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <future>
#include <memory>
#include <vector>

namespace sluice {
namespace {

TEST(WorkerPool, RunsJobsInOrderAndNamesTheWorker) {
  WorkerPool pool(1, 100);
  std::vector<int> order;
  std::promise<void> done;
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(pool.try_submit([&order, i](int worker) {
      EXPECT_EQ(worker, 0);
      order.push_back(i);
    }));
  }
  ASSERT_TRUE(pool.try_submit([&](int) { done.set_value(); }));
  done.get_future().wait();
  ASSERT_EQ(order.size(), 50U);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST(WorkerPool, RefusesWhenFullAndTakesAgainAfterwards) {
  WorkerPool pool(1, 2);
  std::promise<void> started;
  std::promise<void> release;
  auto released = release.get_future().share();
  ASSERT_TRUE(pool.try_submit([&](int) {
    started.set_value();
    released.wait();
  }));
  started.get_future().wait();  // it waits no more: it runs
  EXPECT_TRUE(pool.try_submit([](int) {}));
  EXPECT_TRUE(pool.try_submit([](int) {}));
  EXPECT_FALSE(pool.try_submit([](int) {}));
  EXPECT_EQ(pool.pending(), 2U);
  release.set_value();
  std::promise<void> last;
  while (!pool.try_submit([&](int) { last.set_value(); })) std::this_thread::yield();
  last.get_future().wait();
}

TEST(WorkerPool, OneLongJobDoesNotStallTheOtherWorker) {
  WorkerPool pool(2, 10);
  std::promise<void> release;
  auto released = release.get_future().share();
  ASSERT_TRUE(pool.try_submit([released](int) { released.wait(); }));
  std::promise<void> ran;
  ASSERT_TRUE(pool.try_submit([&](int) { ran.set_value(); }));
  ran.get_future().wait();
  release.set_value();
}

TEST(WorkerPool, LongJobsLeaveAThreadToShortOnes) {
  WorkerPool pool(3, 10);
  std::promise<void> release;
  auto released = release.get_future().share();
  std::atomic<int> running{0};
  std::atomic<bool> too_many{false};
  std::promise<void> all_long;
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(pool.try_submit(
        [&, released, i](int) {
          if (++running > 2) too_many = true;
          released.wait();
          --running;
          if (i == 4) all_long.set_value();
        },
        JobLength::kLong));
  }
  std::array<std::promise<void>, 3> ran;
  for (std::promise<void>& one : ran) {
    ASSERT_TRUE(pool.try_submit([&one](int) { one.set_value(); }));
    one.get_future().wait();
  }
  EXPECT_EQ(pool.pending(), 3U);
  release.set_value();
  all_long.get_future().wait();
  pool.stop();  // before what the jobs use goes
  EXPECT_FALSE(too_many);
}

TEST(WorkerPool, AloneAThreadRunsLongJobsToo) {
  WorkerPool pool(1, 10);
  std::vector<int> order;
  std::promise<void> done;
  const auto note = [&order](int number) {
    return [&order, number](int) { order.push_back(number); };
  };
  std::promise<void> release;
  auto released = release.get_future().share();
  ASSERT_TRUE(pool.try_submit([released](int) { released.wait(); }));
  ASSERT_TRUE(pool.try_submit(note(1), JobLength::kLong));
  ASSERT_TRUE(pool.try_submit(note(2)));
  ASSERT_TRUE(pool.try_submit(note(3), JobLength::kLong));
  ASSERT_TRUE(pool.try_submit([&done](int) { done.set_value(); }));
  release.set_value();
  done.get_future().wait();
  pool.stop();
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
}

TEST(WorkerPool, AWaitingJobCanBeDropped) {
  std::promise<void> release;
  std::promise<void> started;
  const auto token = std::make_shared<int>(1);
  int ran = 0;
  WorkerPool pool(1, 2);
  const auto running = pool.try_submit([&](int) {
    started.set_value();
    release.get_future().wait();
  });
  started.get_future().wait();
  const auto waiting = pool.try_submit([token, &ran](int) { ++ran; });
  const auto last = pool.try_submit([&ran](int) { ++ran; });
  ASSERT_TRUE(running && waiting && last);
  EXPECT_FALSE(pool.try_submit([](int) {}));
  EXPECT_TRUE(pool.submit([&ran](int) { ++ran; }));  // has no limit
  EXPECT_FALSE(pool.drop(*running));
  EXPECT_TRUE(pool.drop(*waiting));
  EXPECT_EQ(token.use_count(), 1);
  EXPECT_FALSE(pool.drop(*waiting));
  release.set_value();
  while (pool.pending() > 0) std::this_thread::yield();
  pool.stop();
  EXPECT_EQ(ran, 2);
}

TEST(WorkerPool, LongJobsAreNotUrgent) {
  UrgentWork urgent;
  WorkerPool pool(1, 10, &urgent);
  std::promise<void> release;
  auto released = release.get_future().share();
  ASSERT_TRUE(pool.try_submit([released](int) { released.wait(); }, JobLength::kLong));
  EXPECT_FALSE(urgent.pending());
  ASSERT_TRUE(pool.try_submit([](int) {}));
  EXPECT_TRUE(urgent.pending());
  release.set_value();
}

TEST(WorkerPool, JobsAreUrgentUntilTheyHaveRun) {
  UrgentWork urgent;
  WorkerPool pool(1, 10, &urgent);
  EXPECT_FALSE(urgent.pending());
  std::promise<void> release;
  std::promise<void> started;
  auto released = release.get_future().share();
  ASSERT_TRUE(pool.try_submit([released](int) { released.wait(); }));
  ASSERT_TRUE(pool.try_submit([&started](int) { started.set_value(); }));
  EXPECT_TRUE(urgent.pending());
  release.set_value();
  started.get_future().wait();
  pool.stop();
  EXPECT_FALSE(urgent.pending());
}

TEST(WorkerPool, StopDropsWhatWaitsAndEndsWhatRuns) {
  auto token = std::make_shared<int>(0);
  std::atomic<int> ran{0};
  WorkerPool pool(1, 10);
  std::promise<void> started;
  std::promise<void> submitted;
  ASSERT_TRUE(pool.try_submit([&](int) {
    started.set_value();
    submitted.get_future().wait();
    while (pool.pending() != 0) std::this_thread::yield();  // until stop() has dropped them
    ++ran;
  }));
  started.get_future().wait();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(pool.try_submit([token, &ran](int) { ++ran; }));
  submitted.set_value();
  pool.stop();
  EXPECT_EQ(ran, 1);
  EXPECT_EQ(token.use_count(), 1);
  EXPECT_FALSE(pool.try_submit([](int) {}));
  pool.stop();
}

}  // namespace
}  // namespace sluice
