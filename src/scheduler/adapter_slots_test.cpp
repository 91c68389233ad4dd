#include "scheduler/adapter_slots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "base/rng.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class AdapterSlotsTest : public ::testing::Test {
 protected:
  // Plans loads; returns "adapter>slot" for each.
  std::vector<std::string> plan(AdapterSlots& slots, std::int32_t first = -1) {
    transfers_.clear();
    slots.plan_loads(now_, first, next_id_, transfers_);
    std::vector<std::string> loads;
    for (const PlanTransfer& t : transfers_) {
      loads.push_back(std::to_string(t.resource) + '>' + std::to_string(t.place));
    }
    return loads;
  }
  // Loads an adapter that a sequence waits for, and admits the sequence.
  void load_and_run(AdapterSlots& slots, std::int32_t adapter) {
    slots.add_waiting(adapter);
    plan(slots, adapter);
    ASSERT_EQ(transfers_.size(), 1U);
    slots.complete({transfers_[0].id, false}, now_);
    admit(slots, adapter);
  }
  void admit(AdapterSlots& slots, std::int32_t adapter) {
    ASSERT_TRUE(slots.ready(adapter));
    slots.remove_waiting(adapter);
    slots.acquire(adapter);
  }
  TimePoint now_;
  TransferId next_id_ = 1;
  std::vector<PlanTransfer> transfers_;
};

TEST_F(AdapterSlotsTest, LoadsAreInTheOrderInWhichAdaptersCameToBeWanted) {
  AdapterSlots slots({.num_slots = 2, .num_adapters = 5});
  for (const std::int32_t adapter : {3, 1, 3, 4}) slots.add_waiting(adapter);
  EXPECT_THAT(plan(slots), ElementsAre("3>0", "1>1"));
  EXPECT_FALSE(slots.ready(3));
  slots.complete({1, false}, now_);
  EXPECT_TRUE(slots.ready(3));
  EXPECT_THAT(plan(slots), IsEmpty());  // both slots are wanted
  slots.check_integrity(4, 0);
}

TEST_F(AdapterSlotsTest, TheLeastRecentlyUsedSlotIsTakenAndNeverOneInUse) {
  AdapterSlots slots({.num_slots = 3, .num_adapters = 9});
  for (const std::int32_t adapter : {0, 1, 2}) load_and_run(slots, adapter);
  slots.release(1);
  slots.release(0);
  slots.add_waiting(5);
  EXPECT_THAT(plan(slots), ElementsAre("5>1"));
  slots.add_waiting(6);
  EXPECT_THAT(plan(slots), ElementsAre("6>0"));
  slots.add_waiting(7);
  now_ = now_ + std::chrono::seconds(10);
  EXPECT_THAT(plan(slots), IsEmpty());  // 2 is in use, and now closed
  EXPECT_FALSE(slots.ready(2));
  slots.release(2);
  EXPECT_THAT(plan(slots), ElementsAre("7>2"));
  slots.check_integrity(3, 0);
}

TEST_F(AdapterSlotsTest, ASlotStaysOpenForATurnAndClosesForTheLine) {
  AdapterSlots slots({.num_slots = 1, .num_adapters = 2, .turn = milliseconds(100)});
  load_and_run(slots, 0);
  slots.add_waiting(1);
  plan(slots);
  EXPECT_TRUE(slots.ready(0));
  now_ = now_ + milliseconds(100);
  plan(slots);
  EXPECT_FALSE(slots.ready(0));
  slots.remove_waiting(1);  // cancelled: no adapter waits for the slot
  plan(slots);
  EXPECT_TRUE(slots.ready(0));
  slots.check_integrity(0, 1);
}

TEST_F(AdapterSlotsTest, TheFirstInServiceOrderGoesBeforeTheLineAndClosesASlotAtOnce) {
  AdapterSlots slots({.num_slots = 1, .num_adapters = 4, .turn = std::chrono::hours(1)});
  load_and_run(slots, 0);
  slots.add_waiting(1);
  slots.add_waiting(2);
  plan(slots, -1);
  EXPECT_TRUE(slots.ready(0));
  plan(slots, 2);
  EXPECT_FALSE(slots.ready(0));
  slots.release(0);
  EXPECT_THAT(plan(slots, 2), ElementsAre("2>0"));
  slots.complete({transfers_[0].id, false}, now_);
  // Its slot stays open until its sequence has run, whatever else waits.
  now_ = now_ + std::chrono::hours(2);
  plan(slots, 2);
  EXPECT_TRUE(slots.ready(2));
  slots.check_integrity(2, 0);
}

TEST_F(AdapterSlotsTest, AFailedLoadLeavesTheSlotEmptyAndIsNotRepeatedByItself) {
  AdapterSlots slots({.num_slots = 1, .num_adapters = 2});
  slots.add_waiting(0);
  plan(slots);
  EXPECT_EQ(slots.complete({1, true}, now_), 0);
  slots.remove_waiting(0);  // the caller ends who waits
  slots.add_waiting(1);
  EXPECT_THAT(plan(slots), ElementsAre("1>0"));
  slots.check_integrity(1, 0);
}

// 1,000 adapters, of which most requests name a few, on 8 slots. A new request comes in each
// millisecond; at most 16 run at once, each for at most 50 ms; a load takes 1 to 20 ms. The first
// in the queue finds its adapter within 2 loads and the longest run.
TEST_F(AdapterSlotsTest, TheFirstInServiceOrderWaitsNoLongerThanTheBound) {
  constexpr std::int64_t kLongestRun = 50;
  constexpr std::int64_t kLongestLoad = 20;
  struct Waiting {
    std::int32_t adapter = 0;
    std::int64_t first_since = -1;  // in the queue
  };
  AdapterSlots slots({.num_slots = 8, .num_adapters = 1000, .turn = milliseconds(30)});
  SplitMix64 rng(11);
  std::deque<Waiting> queue;
  std::multimap<std::int64_t, std::int32_t> running;  // by end
  std::multimap<std::int64_t, TransferId> loading;
  std::int64_t longest = 0;
  std::int64_t admitted = 0;
  for (std::int64_t ms = 0; ms < 60'000; ++ms) {
    now_ = TimePoint{milliseconds(ms)};
    for (; !running.empty() && running.begin()->first <= ms; running.erase(running.begin())) {
      slots.release(running.begin()->second);
    }
    for (; !loading.empty() && loading.begin()->first <= ms; loading.erase(loading.begin())) {
      slots.complete({loading.begin()->second, false}, now_);
    }
    if (queue.size() < 300) {
      const auto hot = static_cast<std::int32_t>(rng.below(6));
      const auto any = static_cast<std::int32_t>(rng.below(1000));
      queue.push_back({rng.below(4) == 0 ? any : hot});
      slots.add_waiting(queue.back().adapter);
    }
    if (!queue.empty() && queue.front().first_since < 0) queue.front().first_since = ms;
    plan(slots, queue.empty() ? -1 : queue.front().adapter);
    for (const PlanTransfer& t : transfers_) {
      loading.emplace(ms + 1 + static_cast<std::int64_t>(rng.below(kLongestLoad)), t.id);
    }
    if (!queue.empty() && slots.ready(queue.front().adapter)) {
      longest = std::max(longest, ms - queue.front().first_since);
    }
    for (std::size_t i = 0; i < queue.size() && running.size() < 16;) {
      if (!slots.ready(queue[i].adapter)) {
        ++i;
        continue;
      }
      admit(slots, queue[i].adapter);
      running.emplace(ms + 1 + static_cast<std::int64_t>(rng.below(kLongestRun)), queue[i].adapter);
      queue.erase(queue.begin() + static_cast<std::ptrdiff_t>(i));
      ++admitted;
    }
    slots.check_integrity(static_cast<std::int64_t>(queue.size()),
                          static_cast<std::int64_t>(running.size()));
    if (!queue.empty() && queue.front().first_since >= 0) {
      // Ready or not: as long as slots of the running set are free, it is the adapter that lacks.
      ASSERT_LE(ms - queue.front().first_since, 2 * kLongestLoad + 2 * kLongestRun);
    }
  }
  EXPECT_LE(longest, 2 * kLongestLoad + kLongestRun);
  EXPECT_GT(admitted, 10'000);
}

}  // namespace
}  // namespace sluice
