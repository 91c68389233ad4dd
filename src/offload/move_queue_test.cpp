// The queue of a tier with one thread: saves rest between each other, and nothing else waits for
// it.
#include "offload/move_queue.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/clock.h"
#include "tests/support/cpu_time.h"

namespace sluice {
namespace {

// The CPU time of a save is what the test says, and no time passes for rests: a save that has to
// rest begins only when something ends the rest.
class MoveQueueTest : public testing::Test {
 protected:
  static constexpr int kRests = 8;

  // A move of so much CPU time. It is the queue's thread that runs it.
  MoveQueue::Run take(Duration cpu_time) {
    return [this, cpu_time](const QueuedMove& /*move*/) {
      cpu_.advance(cpu_time);
      return Status{};
    };
  }
  SavePace::Clocks clocks() const { return {cpu_, time_}; }
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

  ManualClock cpu_;
  ManualClock time_;
  std::vector<TierMove> ended_;
};

using Ids = std::vector<std::uint64_t>;

TEST_F(MoveQueueTest, SavesRestBetweenEachOtherAndLoadsDoNot) {
  MoveQueue queue(take(SavePace::kTurn), kRests, clocks());
  add_save(queue, 1);
  add_save(queue, 2);
  ASSERT_EQ(ended(queue, 1), Ids{1});
  EXPECT_EQ(ended(queue, 2, 5), Ids{1});
  add_load(queue, 3);
  EXPECT_EQ(ended(queue, 2), (Ids{1, 3}));
}

TEST_F(MoveQueueTest, ASaveThatIsAwaitedEndsTheRestOfThoseBeforeIt) {
  for (const SaveHaste haste : {SaveHaste::kIdle, SaveHaste::kAwaited}) {
    MoveQueue queue(take(SavePace::kTurn), kRests, clocks());
    ended_.clear();
    add_save(queue, 1);
    add_save(queue, 2);
    ASSERT_EQ(ended(queue, 1), Ids{1});
    add_save(queue, 3, haste);
    EXPECT_EQ(ended(queue, 3), (Ids{1, 2, 3}));
  }
}

TEST_F(MoveQueueTest, AFlushWaitsForNoRest) {
  MoveQueue queue(take(SavePace::kTurn), kRests, clocks());
  for (std::uint64_t id = 1; id <= 3; ++id) add_save(queue, id);
  EXPECT_TRUE(queue.flush(std::chrono::seconds(10)));
  EXPECT_EQ(ended(queue, 3), (Ids{1, 2, 3}));
}

TEST_F(MoveQueueTest, TheEndWaitsForNoRest) {
  MoveQueue queue(take(SavePace::kTurn), kRests, clocks());
  add_save(queue, 1);
  add_save(queue, 2);
  EXPECT_EQ(ended(queue, 1), Ids{1});
}

TEST_F(MoveQueueTest, ARestEndsByItself) {
  const SystemClock time;
  MoveQueue queue(take(SavePace::kTurn), kRests, {cpu_, time});
  const TimePoint begun = time.now();
  for (std::uint64_t id = 1; id <= 20; ++id) add_save(queue, id);
  EXPECT_EQ(ended(queue, 20).size(), 20U);
  EXPECT_GE(time.now() - begun, 19 * kRests * SavePace::kTurn);
}

// By the clocks of tiers: the rest of the first save takes at least kLong times as long as it.
TEST_F(MoveQueueTest, CountsTheCpuTimeOfSaves) {
  constexpr int kLong = 1 << 24;
  MoveQueue queue(
      [](const QueuedMove& /*move*/) {
        test::take_cpu_time(SavePace::kTurn);
        return Status{};
      },
      kLong);
  add_save(queue, 1);
  add_save(queue, 2);
  EXPECT_EQ(ended(queue, 1), Ids{1});
  EXPECT_EQ(ended(queue, 2, 5), Ids{1});
}

TEST_F(MoveQueueTest, ShortSavesRestTogether) {
  MoveQueue queue(take(SavePace::kTurn / 4), kRests, clocks());
  for (std::uint64_t id = 1; id <= 10; ++id) add_save(queue, id);
  EXPECT_EQ(ended(queue, 4), (Ids{1, 2, 3, 4}));
  EXPECT_EQ(ended(queue, 5, 5), (Ids{1, 2, 3, 4}));
}

TEST_F(MoveQueueTest, WithoutAPaceSavesDoNotRest) {
  MoveQueue queue(take(SavePace::kTurn), 0, clocks());
  for (std::uint64_t id = 1; id <= 20; ++id) add_save(queue, id);
  EXPECT_EQ(ended(queue, 20).size(), 20U);
}

}  // namespace
}  // namespace sluice
