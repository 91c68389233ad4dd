#include "http/event_loop.h"

#include <gtest/gtest.h>

#include <csignal>
#include <thread>
#include <vector>

namespace sluice::http {
namespace {

TEST(EventLoop, RunsTasksInOrderAndTimersWhenDue) {
  EventLoop loop;
  std::vector<int> order;
  loop.after(std::chrono::milliseconds(20), [&] {
    order.push_back(4);
    loop.stop();
  });
  loop.after(std::chrono::milliseconds(5), [&] { order.push_back(3); });
  loop.post([&] {
    order.push_back(1);
    loop.post([&] { order.push_back(2); });
  });
  loop.run();
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3, 4}));
}

TEST(EventLoop, TakesTasksFromOtherThreads) {
  EventLoop loop;
  constexpr int kTasks = 1000;
  int done = 0;
  const auto task = [&] {
    if (++done == 2 * kTasks) loop.stop();
  };
  std::thread one([&] {
    for (int i = 0; i < kTasks; ++i) loop.post(task);
  });
  std::thread other([&] {
    for (int i = 0; i < kTasks; ++i) loop.post(task);
  });
  loop.run();
  one.join();
  other.join();
  EXPECT_EQ(done, 2 * kTasks);
}

TEST(EventLoop, PostedTasksAreUrgentUntilTheyHaveRun) {
  UrgentWork urgent;
  EventLoop loop(&urgent);
  EXPECT_FALSE(urgent.pending());
  loop.post([&] { EXPECT_TRUE(urgent.pending()); });
  EXPECT_TRUE(urgent.pending());
  loop.after(std::chrono::milliseconds(1), [&] {
    EXPECT_FALSE(urgent.pending());  // timers are not
    loop.stop();
  });
  loop.run();
  EXPECT_FALSE(urgent.pending());
}

TEST(EventLoop, ReportsSignalsEachTime) {
  EventLoop loop;
  std::vector<int> seen;
  loop.on_signals({SIGUSR1, SIGUSR2}, [&](int signal) {
    seen.push_back(signal);
    if (seen.size() == 3) {
      loop.stop();
    } else {
      raise(seen.size() == 1 ? SIGUSR1 : SIGUSR2);
    }
  });
  loop.post([] { raise(SIGUSR1); });
  loop.run();
  EXPECT_EQ(seen, (std::vector<int>{SIGUSR1, SIGUSR1, SIGUSR2}));
}

TEST(EventLoop, DropsWhatWaitsWhenItEnds) {
  const auto token = std::make_shared<int>(1);
  {
    EventLoop loop;
    loop.post([&] { loop.stop(); });
    loop.post([token] { FAIL(); });
    loop.after(std::chrono::hours(1), [token] { FAIL(); });
    loop.on_signals({SIGUSR1}, [token](int) { FAIL(); });
    loop.run();
  }
  EXPECT_EQ(token.use_count(), 1);
}

}  // namespace
}  // namespace sluice::http
