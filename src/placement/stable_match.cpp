#include "placement/stable_match.h"

#include <algorithm>
#include <deque>
#include <tuple>

namespace sluice {
namespace {

constexpr std::int32_t kNone = -1;

std::int64_t lent(std::span<const std::int64_t> spare, std::int32_t producer,
                  std::int32_t consumer) {
  return std::min(spare[static_cast<std::size_t>(producer)],
                  -spare[static_cast<std::size_t>(consumer)]);
}

}  // namespace

std::vector<MemoryPair> match_memory(std::span<const std::int64_t> spare_mb) {
  const auto size = static_cast<std::int32_t>(spare_mb.size());
  std::vector<std::int32_t> producers;
  std::deque<std::int32_t> asking;
  for (std::int32_t i = 0; i < size; ++i) {
    if (spare_mb[static_cast<std::size_t>(i)] > 0) producers.push_back(i);
    if (spare_mb[static_cast<std::size_t>(i)] < 0) asking.push_back(i);
  }
  std::vector<std::vector<std::int32_t>> wishes(spare_mb.size());  // the best at the end
  for (const std::int32_t consumer : asking) {
    auto& list = wishes[static_cast<std::size_t>(consumer)];
    list = producers;
    std::ranges::sort(list, [&](std::int32_t a, std::int32_t b) {
      return std::tuple(lent(spare_mb, a, consumer), -spare_mb[static_cast<std::size_t>(a)], -a) <
             std::tuple(lent(spare_mb, b, consumer), -spare_mb[static_cast<std::size_t>(b)], -b);
    });
  }
  std::vector<std::int32_t> taken(spare_mb.size(), kNone);  // of a producer: its consumer
  const auto prefers = [&](std::int32_t producer, std::int32_t a, std::int32_t b) {
    return std::tuple(lent(spare_mb, producer, a), -spare_mb[static_cast<std::size_t>(a)], -a) >
           std::tuple(lent(spare_mb, producer, b), -spare_mb[static_cast<std::size_t>(b)], -b);
  };
  while (!asking.empty()) {
    const std::int32_t consumer = asking.front();
    auto& list = wishes[static_cast<std::size_t>(consumer)];
    if (list.empty()) {
      asking.pop_front();
      continue;
    }
    const std::int32_t producer = list.back();
    list.pop_back();
    std::int32_t& current = taken[static_cast<std::size_t>(producer)];
    if (current != kNone && !prefers(producer, consumer, current)) continue;
    asking.pop_front();
    if (current != kNone) asking.push_back(current);
    current = consumer;
  }
  std::vector<MemoryPair> pairs;
  for (const std::int32_t producer : producers) {
    const std::int32_t consumer = taken[static_cast<std::size_t>(producer)];
    if (consumer != kNone)
      pairs.push_back({producer, consumer, lent(spare_mb, producer, consumer)});
  }
  std::ranges::sort(pairs, {}, &MemoryPair::consumer);
  return pairs;
}

}  // namespace sluice
