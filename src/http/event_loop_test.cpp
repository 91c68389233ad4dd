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

TEST(EventLoop, RunsATaskAtTheFirstSignalOnly) {
  for (int round = 0; round < 2; ++round) {  // a later loop begins anew
    EventLoop loop;
    std::vector<int> seen;
    loop.on_first_signal({SIGUSR1, SIGUSR2}, [&](int signal) {
      seen.push_back(signal);
      loop.stop();
    });
    loop.post([] { raise(SIGUSR2); });
    loop.run();
    EXPECT_EQ(seen, std::vector<int>{SIGUSR2});
  }
}

TEST(EventLoop, PutsTheFormerSignalHandlerBack) {
  signal(SIGUSR1, SIG_IGN);
  {
    EventLoop().on_first_signal({SIGUSR1}, [](int) { FAIL(); });
  }
  EXPECT_EQ(signal(SIGUSR1, SIG_DFL), SIG_IGN);
}

// The loop never runs in the first case, and is blocked by a task in the second.
TEST(EventLoopDeathTest, ASecondSignalEndsTheProcessWhateverTheLoopDoes) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        EventLoop loop;
        loop.on_first_signal({SIGTERM, SIGINT}, [](int) {});
        raise(SIGTERM);
        raise(SIGTERM);
      },
      testing::ExitedWithCode(128 + SIGTERM), "");
  EXPECT_EXIT(
      {
        EventLoop loop;
        // Raised by this thread: a second thread could end before it is detached, which the thread
        // sanitizer reports at the exit.
        loop.on_first_signal({SIGTERM, SIGINT}, [](int) {
          raise(SIGINT);
          std::this_thread::sleep_for(std::chrono::hours(1));
        });
        loop.post([] { raise(SIGTERM); });
        loop.run();
      },
      testing::ExitedWithCode(128 + SIGINT), "");
}

TEST(EventLoop, DropsWhatWaitsWhenItEnds) {
  const auto token = std::make_shared<int>(1);
  {
    EventLoop loop;
    loop.post([&] { loop.stop(); });
    loop.post([token] { FAIL(); });
    loop.after(std::chrono::hours(1), [token] { FAIL(); });
    loop.on_first_signal({SIGUSR1}, [token](int) { FAIL(); });
    loop.run();
  }
  EXPECT_EQ(token.use_count(), 1);
}

}  // namespace
}  // namespace sluice::http
