// LoraGrouping: which tokens of a step use which adapter, as lora_shrink and lora_expand take it
// (LoraBatch): tokens listed slot by slot, each slot's cut into segments.
// Owner: whoever writes a step's inputs. Threads: one. Allocates at construction only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/op_params.h"

namespace sluice {

// Segments that steps of up to `tokens` tokens and `slots` slots can need.
std::int32_t max_lora_segments(std::int32_t tokens, std::int32_t slots);

class LoraGrouping {
 public:
  explicit LoraGrouping(std::int32_t num_slots);

  // `slots`: of each token of the step, negative for none. Writes the token list and the segments
  // (max_lora_segments of them at most), by slot and within a slot by token; returns how many
  // segments there are.
  std::int32_t write(std::span<const std::int32_t> slots, std::span<std::int32_t> tokens,
                     std::span<LoraSegment> segments);

 private:
  std::vector<std::int32_t> ends_;  // of each slot's tokens in the list
};

}  // namespace sluice
