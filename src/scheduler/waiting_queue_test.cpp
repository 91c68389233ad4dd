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
  EXPECT_EQ(queue.find(b), 2U);
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

TEST(WaitingQueue, StaysSortedUnderRandomUse) {
  SplitMix64 rng(3);
  std::vector<std::unique_ptr<Sequence>> sequences;
  std::vector<WaitingEntry> model;
  WaitingQueue queue;
  for (std::uint64_t i = 0; i < 5000; ++i) {
    if (rng.below(20) < 11) {
      sequences.push_back(std::make_unique<Sequence>());
      const WaitingEntry entry{{static_cast<std::int32_t>(rng.below(3)), i},
                               sequences.back().get()};
      queue.insert(entry);
      model.push_back(entry);
      std::sort(model.begin(), model.end(),
                [](const auto& a, const auto& b) { return a.order < b.order; });
    } else if (!queue.empty()) {
      const std::size_t position = rng.below(3) == 0 ? rng.below(queue.size()) : 0;
      queue.erase(position);
      model.erase(model.begin() + static_cast<std::ptrdiff_t>(position));
    }
    ASSERT_EQ(queue.size(), model.size());
    for (std::size_t k = 0; k < model.size(); ++k) {
      ASSERT_EQ(queue.at(k).sequence, model[k].sequence);
    }
  }
}

}  // namespace
}  // namespace sluice
