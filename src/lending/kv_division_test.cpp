#include "lending/kv_division.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <random>
#include <vector>

namespace sluice {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

TimePoint at(int ms) { return TimePoint{} + std::chrono::milliseconds(ms); }

// Four places of 16 MiB; 64 MiB to 320 MiB in all.
class KvDivisionTest : public testing::Test {
 protected:
  // Functions that do at once what they are told.
  void divide(int ms, std::int64_t limit, std::int64_t ending = 0) {
    const auto limits = division_.divide(at(ms), limit, functions_, ending);
    ASSERT_EQ(limits.size(), functions_.size());
    for (std::size_t i = 0; i < limits.size(); ++i) functions_[i].load.limit = limits[i];
  }
  KvDivision::Function& add(std::uint64_t id) {
    functions_.reserve(8);
    return functions_.emplace_back(KvDivision::Function{id, {.limit = division_.own()}});
  }
  std::int64_t limit_of(std::size_t i) const { return functions_[i].load.limit; }

  KvDivision division_{{.least = 64 * kMiB, .most = 320 * kMiB, .places = 4}};
  std::vector<KvDivision::Function> functions_;
};

TEST_F(KvDivisionTest, EachPlaceHasAnEqualPartOfTheLeast) {
  EXPECT_EQ(division_.own(), 16 * kMiB);
  EXPECT_EQ(division_.most_of_one(), 272 * kMiB);
  add(1).load.waiting = 3;
  divide(0, 64 * kMiB);
  EXPECT_EQ(limit_of(0), 16 * kMiB);  // the places of others are not lent
}

TEST_F(KvDivisionTest, AFunctionThatLacksMemoryGetsThePoolInSteps) {
  add(1).load.waiting = 1;
  add(2);
  divide(0, 320 * kMiB);
  EXPECT_EQ(limit_of(0), 32 * kMiB);
  EXPECT_EQ(limit_of(1), 16 * kMiB);
  for (int i = 1; i < 6; ++i) divide(i, 320 * kMiB);
  EXPECT_EQ(limit_of(0), 272 * kMiB);
  EXPECT_EQ(limit_of(1), 16 * kMiB);
}

TEST_F(KvDivisionTest, MemoryThatIsStillHeldIsNotGivenToAnother) {
  add(1).load.waiting = 1;
  KvDivision::Function& other = add(2);
  other.load.backed = 272 * kMiB;  // told to shrink, and has not
  divide(0, 320 * kMiB);
  EXPECT_EQ(limit_of(0), 16 * kMiB);
  other.load.backed = 256 * kMiB;
  divide(1, 320 * kMiB);
  EXPECT_EQ(limit_of(0), 32 * kMiB);
  // Nor what an ended one holds.
  other.load.backed = 0;
  functions_[0].load.limit = 16 * kMiB;
  divide(2, 320 * kMiB, 250 * kMiB);
  EXPECT_EQ(limit_of(0), 22 * kMiB);
}

TEST_F(KvDivisionTest, SpareMemoryMovesFirst) {
  add(1).load = {.limit = 144 * kMiB, .used = 140 * kMiB, .backed = 144 * kMiB};
  add(2).load = {.limit = 144 * kMiB, .used = 10 * kMiB, .backed = 144 * kMiB};
  divide(0, 320 * kMiB);
  EXPECT_EQ(limit_of(1), 144 * kMiB);  // not calm for long enough
  divide(600, 320 * kMiB);
  EXPECT_EQ(limit_of(0), 144 * kMiB);  // it is still held
  EXPECT_LT(limit_of(1), 144 * kMiB);
  EXPECT_GE(limit_of(1), 20 * kMiB);
  functions_[1].load.backed = 20 * kMiB;
  divide(601, 320 * kMiB);
  EXPECT_GT(limit_of(0), 144 * kMiB);
}

TEST_F(KvDivisionTest, AFunctionBelowItsShareGetsWhatOthersHaveBeyondTheirs) {
  add(1).load = {.limit = 272 * kMiB, .used = 272 * kMiB, .backed = 272 * kMiB};
  add(2).load.waiting = 1;
  for (int i = 0; i < 40; ++i) {
    divide(i, 320 * kMiB);
    for (auto& one : functions_) {
      one.load.used = one.load.backed = one.load.limit;
    }
  }
  EXPECT_NEAR(static_cast<double>(limit_of(0)), 144.0 * kMiB, kMiB);
  EXPECT_NEAR(static_cast<double>(limit_of(1)), 144.0 * kMiB, kMiB);
}

TEST_F(KvDivisionTest, WhenTheLimitFallsUnusedMemoryGoesFirst) {
  add(1).load = {.limit = 144 * kMiB, .used = 140 * kMiB, .backed = 144 * kMiB};
  add(2).load = {.limit = 144 * kMiB, .used = 30 * kMiB, .backed = 144 * kMiB};
  divide(0, 220 * kMiB);
  EXPECT_EQ(limit_of(0), 144 * kMiB);
  EXPECT_EQ(limit_of(1), 44 * kMiB);
  divide(1, 120 * kMiB);  // 56 MiB above what all have for themselves
  EXPECT_EQ(limit_of(0) + limit_of(1), 88 * kMiB);
  EXPECT_GE(limit_of(1), 16 * kMiB);
  divide(2, 64 * kMiB);
  EXPECT_EQ(limit_of(0), 16 * kMiB);
  EXPECT_EQ(limit_of(1), 16 * kMiB);
}

TEST_F(KvDivisionTest, TheServerLacksMemoryOnlyIfAFunctionDoes) {
  add(1);
  divide(0, 64 * kMiB);
  LendingLoad total = division_.total(64 * kMiB, functions_, 0);
  EXPECT_EQ(total.waiting, 0);
  EXPECT_EQ(total.used, 32 * kMiB);
  EXPECT_EQ(total.backed, 64 * kMiB);
  LendingPolicy server(64 * kMiB, 320 * kMiB);
  EXPECT_EQ(server.decide(at(0), total).want, 0);
  functions_[0].load.used = 15 * kMiB;
  divide(1, 64 * kMiB);
  total = division_.total(64 * kMiB, functions_, 0);
  EXPECT_GT(total.waiting, 0);
  EXPECT_GT(server.decide(at(1), total).want, 0);
}

// An offer leaves a function twice its use, beside what the other places have.
TEST_F(KvDivisionTest, TheServerOffersMemoryThatIsNotUsed) {
  add(1).load = {.limit = 272 * kMiB, .used = 60 * kMiB, .backed = 272 * kMiB};
  LendingPolicy server(64 * kMiB, 320 * kMiB);
  std::int64_t spare = 0;
  for (int ms = 0; ms <= 600; ms += 600) {
    divide(ms, 320 * kMiB);
    spare = server.decide(at(ms), division_.total(320 * kMiB, functions_, 0)).spare;
  }
  EXPECT_EQ(spare, (320 - 120 - 48) * kMiB);
  divide(601, 320 * kMiB - spare);
  EXPECT_GE(limit_of(0), 120 * kMiB);
}

// Functions that start, end, obey late and lie about their use, under a limit that moves: a limit
// rises only by memory that no function holds.
TEST_F(KvDivisionTest, RandomFunctionsNeverGetWhatOthersHold) {
  std::mt19937_64 random(20261125);
  const auto below = [&](std::int64_t n) { return static_cast<std::int64_t>(random() % n); };
  struct Process {
    std::uint64_t id = 0;
    LendingLoad load;
  };
  std::vector<Process> processes;
  std::uint64_t next = 0;
  std::int64_t limit = 64 * kMiB;
  std::int64_t rises = 0;
  for (int step = 0; step < 20'000; ++step) {
    if (below(20) == 0) limit = (64 + below(257)) * kMiB;
    if (processes.size() < 4 && below(10) == 0) {
      processes.push_back({++next, {.limit = division_.own(), .backed = division_.own()}});
    }
    if (!processes.empty() && below(50) == 0) processes.erase(processes.begin());
    std::vector<KvDivision::Function> functions;
    std::int64_t held = 4 * division_.own();
    for (Process& one : processes) {
      if (below(3) == 0) {
        one.load.backed = std::min<std::int64_t>(one.load.limit, below(300 * kMiB));
      }
      one.load.used = below(4) == 0 ? below(400 * kMiB) : below(one.load.limit + 1);
      one.load.waiting = static_cast<std::int32_t>(below(2));
      functions.push_back({one.id, one.load});
      held +=
          std::max<std::int64_t>(std::max(one.load.backed, one.load.limit) - division_.own(), 0);
    }
    const auto limits = division_.divide(at(step * 20), limit, functions, 0);
    ASSERT_EQ(limits.size(), processes.size());
    std::int64_t after = 4 * division_.own();
    std::int64_t told = 0;
    bool rose = false;
    for (std::size_t i = 0; i < limits.size(); ++i) {
      ASSERT_GE(limits[i], division_.own());
      rose = rose || limits[i] > processes[i].load.limit;
      told += limits[i] - division_.own();
      after += std::max(limits[i], processes[i].load.backed) - division_.own();
      // It may take all of the higher limit until it has obeyed the lower one.
      if (limits[i] < processes[i].load.limit && below(2) == 0) {
        processes[i].load.backed = std::max(processes[i].load.backed, processes[i].load.limit);
      }
      processes[i].load.limit = limits[i];
    }
    ASSERT_LE(told, limit - 4 * division_.own());
    if (rose) {
      ++rises;
      ASSERT_LE(after, std::max(limit, held));
    }
  }
  EXPECT_GT(rises, 1000);
}

}  // namespace
}  // namespace sluice
