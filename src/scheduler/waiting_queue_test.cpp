#include "scheduler/waiting_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/rng.h"

namespace sluice {
namespace {

TEST(WaitingQueue, PriorityThenArrival) {
  Sequence a;
  Sequence b;
  Sequence c;
  WaitingQueue queue;
  queue.insert({{0, 1}, &a});
  queue.insert({{0, 2}, &b});
  queue.insert({{-1, 3}, &c});
  EXPECT_EQ(queue.at(0).sequence, &c);
  EXPECT_EQ(queue.at(1).sequence, &a);
  EXPECT_EQ(queue.at(2).sequence, &b);
  EXPECT_EQ(queue.find({0, 2}), 2U);
  EXPECT_EQ(queue.find({0, 3}), 3U);  // none
}

TEST(WaitingQueue, ThePreemptedReturnInFront) {
  Sequence a;
  Sequence b;
  WaitingQueue queue;
  queue.insert({{0, 1}, &a});
  queue.insert({{0, 2}, &b});
  const WaitingEntry first = queue.at(0);
  queue.erase(0);
  queue.insert(first);
  EXPECT_EQ(queue.at(0).sequence, &a);
  EXPECT_EQ(queue.size(), 2U);
}

TEST(WaitingQueue, ALeavingSequenceMovesNoOther) {
  Sequence s;
  WaitingQueue queue;
  for (std::uint64_t i = 0; i < 6; ++i) queue.insert({{0, i}, &s});
  queue.erase(2);
  queue.erase(0);
  EXPECT_EQ(queue.size(), 4U);
  EXPECT_EQ(queue.entries().size(), 6U);
  EXPECT_EQ(queue.at(2).sequence, nullptr);
  EXPECT_EQ(queue.find({0, 2}), 6U);
  EXPECT_EQ(queue.find({0, 3}), 3U);
  queue.insert({{0, 2}, &s});  // back in its place
  EXPECT_EQ(queue.find({0, 2}), 2U);
  EXPECT_EQ(queue.entries().size(), 6U);
}

TEST(WaitingQueue, EmptyEntriesGoInFrontAndWhenTheyAreMore) {
  Sequence s;
  WaitingQueue queue;
  for (std::uint64_t i = 0; i < 10; ++i) queue.insert({{0, i}, &s});
  for (const std::size_t left : {0U, 1U, 5U, 6U}) queue.erase(left);
  queue.compact();
  EXPECT_EQ(queue.entries().size(), 8U);
  EXPECT_EQ(queue.find({0, 2}), 0U);
  EXPECT_EQ(queue.find({0, 7}), 5U);
  queue.erase(0);
  queue.erase(1);
  queue.compact();
  EXPECT_EQ(queue.entries().size(), 4U);
  EXPECT_EQ(queue.find({0, 7}), 1U);
  for (std::size_t left = 0; left < 4; ++left) queue.erase(left);
  queue.compact();
  EXPECT_TRUE(queue.entries().empty());
}

TEST(WaitingQueue, StaysSortedUnderRandomUse) {
  SplitMix64 rng(3);
  std::vector<std::unique_ptr<Sequence>> sequences;
  std::vector<WaitingEntry> model;
  std::vector<WaitingEntry> left;
  WaitingQueue queue;
  const auto add = [&](const WaitingEntry& entry) {
    queue.insert(entry);
    model.push_back(entry);
    std::sort(model.begin(), model.end(),
              [](const auto& a, const auto& b) { return a.order < b.order; });
  };
  for (std::uint64_t i = 0; i < 5000; ++i) {
    const std::uint64_t turn = rng.below(20);
    if (turn < 10) {
      sequences.push_back(std::make_unique<Sequence>());
      add({{static_cast<std::int32_t>(rng.below(3)), i}, sequences.back().get()});
    } else if (turn < 12 && !left.empty()) {
      const auto back = left.begin() + static_cast<std::ptrdiff_t>(rng.below(left.size()));
      add(*back);
      left.erase(back);
    } else if (turn < 13) {
      queue.compact();
    } else if (!queue.empty()) {
      const std::size_t place = rng.below(3) == 0 ? rng.below(queue.size()) : 0;
      left.push_back(model[place]);
      queue.erase(queue.find(model[place].order));
      ASSERT_EQ(queue.find(model[place].order), queue.entries().size());
      model.erase(model.begin() + static_cast<std::ptrdiff_t>(place));
    }
    ASSERT_EQ(queue.size(), model.size());
    std::size_t position = 0;
    for (const WaitingEntry& entry : model) {
      while (queue.at(position).sequence == nullptr) ++position;
      ASSERT_EQ(queue.find(entry.order), position);
      ASSERT_EQ(queue.at(position++).sequence, entry.sequence);
    }
  }
}

}  // namespace
}  // namespace sluice
