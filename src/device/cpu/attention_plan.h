// The CPU's plan of a step's attention: query tokens cut into items that one thread can take,
// longest first. Plain integers in device memory, written before the step, read by the op.
// Values: plain; any thread.
#pragma once

#include <cstdint>

#include "device/op_params.h"
#include "device/padding.h"

namespace sluice {

struct AttentionItem {
  std::int32_t seq = 0;
  std::int32_t first_query = 0;  // within the row's query tokens
  std::int32_t num_queries = 0;
  std::int32_t num_keys = 0;  // that any of them sees
};

struct AttentionPlan {
  std::int32_t num_items = 0;
  std::int32_t reserved = 0;
  std::int64_t total_keys = 0;  // sum over items: what the step reads
  AttentionItem items[1];       // num_items of them
};

// Enough for any rows with `max_tokens` tokens in all: an item has one at least.
std::int64_t attention_plan_bytes(std::int32_t max_tokens);

// CHECKs that the step keeps its limits; returns how many bytes of the plan are used.
std::int64_t write_attention_plan(const AttentionPlanParams& p);

// Pairs of a layer: all queries of an item are scored against the keys that any of them sees, in
// vectors of `lanes` keys.
Work attention_work(const AttentionPlanParams& p, std::int32_t lanes);

}  // namespace sluice
