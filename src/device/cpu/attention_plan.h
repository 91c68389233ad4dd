// The CPU's plan of a step's attention: query tokens cut into items, each the work of one thread,
// longest first. Plain integers in device memory, which the host writes before the step and the op
// reads.
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
  std::int32_t num_keys = 0;  // the union over its queries
};

struct AttentionPlan {
  std::int32_t num_items = 0;
  std::int32_t reserved = 0;
  std::int64_t total_keys = 0;  // sum over items: what the step reads
  AttentionItem items[1];       // num_items of them
};

// The size of a plan for any rows with `max_tokens` tokens in all; an item has at least one token.
std::int64_t attention_plan_bytes(std::int32_t max_tokens);

// CHECKs that the step keeps its limits. Returns the number of bytes of the plan that are used.
std::int64_t write_attention_plan(const AttentionPlanParams& p);

// The work of one layer: every query of an item is scored against all keys of the item, in vectors
// of `lanes` keys.
Work attention_work(const AttentionPlanParams& p, std::int32_t lanes);

}  // namespace sluice
