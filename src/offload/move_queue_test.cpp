// The queue of a tier with one thread: saves rest between each other, and nothing else waits for
// it.
#include "offload/move_queue.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/cpu_time.h"

namespace sluice {
namespace {

// With rests longer than the test, a second save begins only when something ends the rest.
class MoveQueueTest : public testing::Test {
 protected:
  static constexpr int kLong = 1 << 30;

  static Status work_for(Duration time) {
    test::take_cpu_time(time);
    return {};
  }
  // A whole turn.
  static Status work(const QueuedMove& /*move*/) { return work_for(SavePace::kTurn); }
  static void add_save(MoveQueue& queue, std::uint64_t id, SaveHaste haste = SaveHaste::kEasy) {
    static const std::byte block{};
    queue.add({id, {.name = {}, .tenant = {}, .haste = haste}, nullptr, &block});
  }
  static void add_load(MoveQueue& queue, std::uint64_t id) {
    static std::byte block;
    queue.add({id, {.name = {}, .tenant = {}}, &block, nullptr});
  }
  // The ids of the moves that have ended, in order.
  std::vector<std::uint64_t> ended(MoveQueue& queue, std::size_t at_least, int tries = 1000) {
    for (int i = 0; i < tries && ended_.size() < at_least; ++i) {
      queue.wait(std::chrono::milliseconds(10));
      queue.poll(ended_);
    }
    std::vector<std::uint64_t> ids;
    for (const TierMove& move : ended_) ids.push_back(move.id);
    return ids;
  }

  std::vector<TierMove> ended_;
};

using Ids = std::vector<std::uint64_t>;

TEST_F(MoveQueueTest, SavesRestBetweenEachOtherAndLoadsDoNot) {
  MoveQueue queue(work, kLong);
  add_save(queue, 1);
  add_save(queue, 2);
  ASSERT_EQ(ended(queue, 1), Ids{1});
  EXPECT_EQ(ended(queue, 2, 5), Ids{1});
  add_load(queue, 3);
  EXPECT_EQ(ended(queue, 2), (Ids{1, 3}));
}

TEST_F(MoveQueueTest, ASaveThatIsAwaitedEndsTheRestOfThoseBeforeIt) {
  for (const SaveHaste haste : {SaveHaste::kIdle, SaveHaste::kAwaited}) {
    MoveQueue queue(work, kLong);
    ended_.clear();
    add_save(queue, 1);
    add_save(queue, 2);
    ASSERT_EQ(ended(queue, 1), Ids{1});
    add_save(queue, 3, haste);
    EXPECT_EQ(ended(queue, 3), (Ids{1, 2, 3}));
  }
}

TEST_F(MoveQueueTest, AFlushWaitsForNoRest) {
  MoveQueue queue(work, kLong);
  for (std::uint64_t id = 1; id <= 3; ++id) add_save(queue, id);
  EXPECT_TRUE(queue.flush(std::chrono::seconds(10)));
  EXPECT_EQ(ended(queue, 3), (Ids{1, 2, 3}));
}

TEST_F(MoveQueueTest, TheEndWaitsForNoRest) {
  MoveQueue queue(work, kLong);
  add_save(queue, 1);
  add_save(queue, 2);
  EXPECT_EQ(ended(queue, 1), Ids{1});
}

TEST_F(MoveQueueTest, SavesRestForAMultipleOfTheirTime) {
  const ThreadCpuClock cpu;
  Duration before_last{0};
  Duration last{0};
  const auto begun = std::chrono::steady_clock::now();
  MoveQueue queue(
      [&](const QueuedMove& move) {
        before_last += last;
        const TimePoint start = cpu.now();
        const Status status = work(move);
        last = cpu.now() - start;
        return status;
      },
      8);
  for (std::uint64_t id = 1; id <= 20; ++id) add_save(queue, id);
  EXPECT_EQ(ended(queue, 20).size(), 20U);
  EXPECT_GE(std::chrono::steady_clock::now() - begun, 8 * before_last);
}

TEST_F(MoveQueueTest, ShortSavesRestTogether) {
  MoveQueue queue([](const QueuedMove& /*move*/) { return work_for(SavePace::kTurn / 4); }, kLong);
  for (std::uint64_t id = 1; id <= 10; ++id) add_save(queue, id);
  EXPECT_EQ(ended(queue, 4), (Ids{1, 2, 3, 4}));
  EXPECT_EQ(ended(queue, 5, 5), (Ids{1, 2, 3, 4}));
}

TEST_F(MoveQueueTest, WithoutAPaceSavesDoNotRest) {
  MoveQueue queue(work, 0);
  for (std::uint64_t id = 1; id <= 20; ++id) add_save(queue, id);
  EXPECT_EQ(ended(queue, 20).size(), 20U);
}

}  // namespace
}  // namespace sluice
