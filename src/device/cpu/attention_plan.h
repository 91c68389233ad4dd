// The CPU's plan of a step's attention: query tokens cut into items, each the work of one thread
// for each KV head, longest first. An item with a large part of the step's work is cut once more,
// along its keys at the ends of spans (kernels::kAttentionSpan), so that a long stream keeps many
// threads busy; the thread that finishes the last part of it adds its spans.
// The host writes the plan before the step, as plain integers in device memory, and the op reads
// it. Partial results lie behind it.
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
  // Positions of keys: the union over its queries, or its share of them.
  std::int32_t first_key = 0;
  std::int32_t end_key = 0;
  // The parts of a cut item share the spans of all of them, the first row of their partial results
  // (piece by piece of its heads, and there span by span), and the first of their counters, one for
  // each piece.
  std::int32_t first_span = 0;
  std::int32_t num_spans = 0;
  std::int32_t first_partial = -1;
  std::int32_t first_counter = -1;

  std::int32_t num_keys() const { return end_key - first_key; }
  bool is_cut() const { return first_counter >= 0; }
};

struct AttentionPlan {
  std::int32_t num_items = 0;
  std::int32_t reserved = 0;
  std::int64_t total_keys = 0;       // sum over items: what the step reads
  std::int64_t partials_offset = 0;  // in bytes from here, as what follows
  std::int64_t counters_offset = 0;  // spans done; 0 again after the last
  AttentionItem items[1];            // num_items of them, then the counters
};

// Query heads of one KV head that one piece of an item has, and pieces of an item.
struct AttentionHeads {
  AttentionHeads(std::int32_t num_heads, std::int32_t num_kv_heads);
  std::int32_t per_group = 0;
  std::int32_t per_piece = 0;
  std::int32_t pieces_per_group = 0;
  std::int32_t pieces = 0;
};

// Room for a plan of any rows within `limits`, and for partial results behind it.
AttentionPlanSize attention_plan_size(const AttentionPlanLimits& limits);

// Cuts for so many threads. CHECKs that the step keeps its limits. Returns the number of bytes of
// the plan that are used.
std::int64_t write_attention_plan(const AttentionPlanParams& p, int threads);

// The work of one layer: every query of an item is scored against all keys of the item, in vectors
// of `lanes` keys.
Work attention_work(const AttentionPlanParams& p, std::int32_t lanes);

}  // namespace sluice
