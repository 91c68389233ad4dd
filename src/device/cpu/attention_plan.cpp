#include "device/cpu/attention_plan.h"

#include <algorithm>
#include <cstddef>
#include <tuple>

#include "base/check.h"
#include "device/cpu/kernels/kernel_table.h"

namespace sluice {
namespace {

constexpr auto kItemsOffset = static_cast<std::int64_t>(offsetof(AttentionPlan, items));

// Longer items go first; ties are broken by position, so that the plan is the same everywhere.
bool goes_first(const AttentionItem& a, const AttentionItem& b) {
  const std::int64_t cost_a = std::int64_t{a.num_queries} * a.num_keys;
  const std::int64_t cost_b = std::int64_t{b.num_queries} * b.num_keys;
  if (cost_a != cost_b) return cost_a > cost_b;
  return std::tie(a.seq, a.first_query) < std::tie(b.seq, b.first_query);
}

// Calls f(item, its first key) for each item, in order of rows and queries.
template <class Function>
void for_each_item(const AttentionPlanParams& p, Function f) {
  const AttentionPlanLimits& limits = p.limits;
  CHECK(limits.num_kv_heads > 0 && limits.num_heads % limits.num_kv_heads == 0);
  const std::int32_t heads_per_group = limits.num_heads / limits.num_kv_heads;
  const std::int32_t max_queries = std::max(1, kernels::kMaxAttentionRows / heads_per_group);
  for (std::int32_t seq = 0; seq < p.num_seqs; ++seq) {
    const std::int32_t query_len = p.cu_seqlens_q[seq + 1] - p.cu_seqlens_q[seq];
    const std::int32_t context = p.seq_lens[seq] - query_len;
    CHECK(query_len >= 0 && context >= 0);
    for (std::int32_t first = 0; first < query_len; first += max_queries) {
      const std::int32_t queries = std::min(max_queries, query_len - first);
      const std::int32_t end = context + first + queries;
      const std::int32_t begin =
          limits.window > 0 ? std::max(0, context + first - limits.window + 1) : 0;
      f(AttentionItem{seq, first, queries, end - begin}, begin);
    }
  }
}

}  // namespace

std::int64_t attention_plan_bytes(std::int32_t max_tokens) {
  return kItemsOffset + std::int64_t{max_tokens} * static_cast<std::int64_t>(sizeof(AttentionItem));
}

std::int64_t write_attention_plan(const AttentionPlanParams& p) {
  auto* plan = static_cast<AttentionPlan*>(p.plan);
  std::int32_t count = 0;
  std::int64_t total = 0;
  for_each_item(p, [&](const AttentionItem& item, std::int32_t) {
    CHECK(count < p.limits.max_tokens);
    plan->items[count++] = item;
    total += item.num_keys;
  });
  std::sort(plan->items, plan->items + count, goes_first);
  plan->num_items = count;
  plan->reserved = 0;
  plan->total_keys = total;
  return attention_plan_bytes(count);
}

Work attention_work(const AttentionPlanParams& p, std::int32_t lanes) {
  std::int64_t computed = 0;
  for_each_item(p, [&](const AttentionItem& item, std::int32_t begin) {
    const std::int64_t end = std::int64_t{begin} + item.num_keys;
    const std::int64_t vectors = (end + lanes - 1) / lanes - begin / lanes;
    computed += item.num_queries * vectors * lanes;
  });
  return {attention_pairs(p), computed * p.limits.num_heads};
}

}  // namespace sluice
