#include "device/lora_batch.h"

#include <algorithm>
#include <cstddef>

#include "base/check.h"

namespace sluice {

std::int32_t max_lora_segments(std::int32_t tokens, std::int32_t slots) {
  // Each slot in use may have one segment that is not full; no segment is empty.
  return std::min(tokens, tokens / LoraSegment::kMaxTokens + std::min(tokens, slots));
}

LoraGrouping::LoraGrouping(std::int32_t num_slots) : ends_(static_cast<std::size_t>(num_slots)) {}

std::int32_t LoraGrouping::write(std::span<const std::int32_t> slots,
                                 std::span<std::int32_t> tokens, std::span<LoraSegment> segments) {
  std::fill(ends_.begin(), ends_.end(), 0);
  for (const std::int32_t slot : slots) {
    CHECK(slot < static_cast<std::int32_t>(ends_.size()));
    if (slot >= 0) ++ends_[static_cast<std::size_t>(slot)];
  }
  std::int32_t listed = 0;
  std::size_t count = 0;
  for (std::size_t slot = 0; slot < ends_.size(); ++slot) {
    const std::int32_t end = listed + ends_[slot];
    ends_[slot] = listed;  // while tokens are placed: the index of the slot's next token
    for (; listed < end; listed += segments[count++].count) {
      CHECK(count < segments.size());
      segments[count] = {listed, std::min(end - listed, LoraSegment::kMaxTokens),
                         static_cast<std::int32_t>(slot)};
    }
  }
  CHECK(static_cast<std::size_t>(listed) <= tokens.size());
  for (std::size_t t = 0; t < slots.size(); ++t) {
    if (slots[t] < 0) continue;
    const std::int32_t place = ends_[static_cast<std::size_t>(slots[t])]++;
    tokens[static_cast<std::size_t>(place)] = static_cast<std::int32_t>(t);
  }
  return static_cast<std::int32_t>(count);
}

}  // namespace sluice
