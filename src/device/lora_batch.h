// LoraGrouping: lists the tokens of a step by adapter, in the form that lora_shrink and lora_expand
// take (LoraBatch): slot by slot, with each slot's tokens cut into segments.
// Owner: the writer of a step's inputs. Threads: one. Allocates at construction only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/op_params.h"

namespace sluice {

// The largest number of segments that a step of up to `tokens` tokens and `slots` slots needs.
std::int32_t max_lora_segments(std::int32_t tokens, std::int32_t slots);

class LoraGrouping {
 public:
  explicit LoraGrouping(std::int32_t num_slots);

  // `slots` has the slot of each token of the step; negative means none. Writes the token list and
  // the segments (at most max_lora_segments), ordered by slot and within a slot by token. Returns
  // the number of segments.
  std::int32_t write(std::span<const std::int32_t> slots, std::span<std::int32_t> tokens,
                     std::span<LoraSegment> segments);

 private:
  std::vector<std::int32_t> ends_;  // where each slot's tokens end in the list
};

}  // namespace sluice
