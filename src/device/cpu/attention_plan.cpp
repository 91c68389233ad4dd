#include "device/cpu/attention_plan.h"

#include <algorithm>
#include <cstddef>
#include <tuple>

#include "base/check.h"
#include "device/cpu/kernels/kernel_table.h"

namespace sluice {
namespace {

constexpr std::int32_t kSpan = kernels::kAttentionSpan;
constexpr auto kItemsOffset = static_cast<std::int64_t>(offsetof(AttentionPlan, items));
// A share of the step's work that one thread takes at a time is at most 1 / (threads * this): of
// few large shares the last one keeps a thread busy alone.
constexpr std::int64_t kSharesPerThread = 2;
// Parts of cut items. Room in the plan; more would not be shorter on any machine we know of.
constexpr std::int32_t kMaxParts = 1024;
constexpr std::int32_t kMaxCounters = 1024;
// Spans of one head that partial results have room for: of two sequences of the largest length, and
// of some short ones. Items without room are not cut.
constexpr std::int64_t kLeastSpans = 64;

// Lines of a cache.
std::int64_t whole_lines(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }

std::int64_t max_items(const AttentionPlanLimits& limits) {
  return std::int64_t{limits.max_tokens} + kMaxParts;  // an item has a token at least
}
std::int64_t partials_offset(const AttentionPlanLimits& limits) {
  return whole_lines(kItemsOffset +
                     max_items(limits) * static_cast<std::int64_t>(sizeof(AttentionItem)) +
                     kMaxCounters * static_cast<std::int64_t>(sizeof(std::int32_t)));
}
std::int64_t max_partials(const AttentionPlanLimits& limits) {
  std::int64_t positions = limits.max_positions;
  if (limits.window > 0) {
    positions = std::min<std::int64_t>(positions, std::int64_t{limits.window} + kSpan);
  }
  const std::int64_t spans = (positions + kSpan - 1) / kSpan;
  if (spans <= 1) return 0;
  return std::min(spans * limits.max_tokens, std::max(2 * spans, kLeastSpans)) * limits.num_heads;
}

// Longer items go first; ties are broken by position, so that the plan is the same everywhere.
bool goes_first(const AttentionItem& a, const AttentionItem& b) {
  const std::int64_t cost_a = std::int64_t{a.num_queries} * a.num_keys();
  const std::int64_t cost_b = std::int64_t{b.num_queries} * b.num_keys();
  if (cost_a != cost_b) return cost_a > cost_b;
  return std::tie(a.seq, a.first_query, a.first_key) < std::tie(b.seq, b.first_query, b.first_key);
}

// Calls f(item) for each item, in order of rows and queries.
template <class Function>
void for_each_item(const AttentionPlanParams& p, Function f) {
  const AttentionPlanLimits& limits = p.limits;
  CHECK(limits.num_kv_heads > 0 && limits.num_heads % limits.num_kv_heads == 0);
  const AttentionHeads heads(limits.num_heads, limits.num_kv_heads);
  const std::int32_t max_queries = std::max(1, kernels::kMaxAttentionRows / heads.per_group);
  for (std::int32_t seq = 0; seq < p.num_seqs; ++seq) {
    const std::int32_t query_len = p.cu_seqlens_q[seq + 1] - p.cu_seqlens_q[seq];
    const std::int32_t context = p.seq_lens[seq] - query_len;
    CHECK(query_len >= 0 && context >= 0);
    for (std::int32_t first = 0; first < query_len; first += max_queries) {
      const std::int32_t queries = std::min(max_queries, query_len - first);
      const std::int32_t end = context + first + queries;
      const std::int32_t begin =
          limits.window > 0 ? std::max(0, context + first - limits.window + 1) : 0;
      f(AttentionItem{.seq = seq,
                      .first_query = first,
                      .num_queries = queries,
                      .first_key = begin,
                      .end_key = end});
    }
  }
}

// Cuts items along their keys while there is room.
class ItemCutter {
 public:
  // `largest`: the cost from which on an item is cut.
  ItemCutter(const AttentionPlanLimits& limits, std::int64_t largest)
      : largest_(largest),
        num_heads_(limits.num_heads),
        pieces_(AttentionHeads(limits.num_heads, limits.num_kv_heads).pieces),
        max_partials_(max_partials(limits)) {}

  // Calls f(part) for each part of an item, or f(item) if it stays whole.
  template <class Function>
  void cut(AttentionItem item, Function f) {
    const std::int64_t cost = std::int64_t{item.num_queries} * item.num_keys();
    item.first_span = item.first_key / kSpan;
    item.num_spans = (item.end_key - 1) / kSpan + 1 - item.first_span;
    const auto parts = static_cast<std::int32_t>(
        std::min<std::int64_t>(item.num_spans, (cost + largest_ - 1) / largest_));
    const std::int64_t partials = std::int64_t{item.num_spans} * item.num_queries * num_heads_;
    if (parts <= 1 || parts_ + parts > kMaxParts || counters_ + pieces_ > kMaxCounters ||
        partials_ + partials > max_partials_) {
      return f(item);
    }
    item.first_partial = static_cast<std::int32_t>(partials_);
    item.first_counter = counters_;
    for (std::int32_t part = 0; part < parts; ++part) {
      const auto key_at = [&](std::int64_t index) {
        const auto span = static_cast<std::int32_t>(item.num_spans * index / parts);
        return std::clamp((item.first_span + span) * kSpan, item.first_key, item.end_key);
      };
      AttentionItem share = item;
      share.first_key = key_at(part);
      share.end_key = key_at(std::int64_t{part} + 1);
      f(share);
    }
    parts_ += parts;
    counters_ += pieces_;
    partials_ += partials;
  }
  std::int32_t counters() const { return counters_; }

 private:
  const std::int64_t largest_;
  const std::int32_t num_heads_;
  const std::int32_t pieces_;
  const std::int64_t max_partials_;
  std::int64_t partials_ = 0;
  std::int32_t parts_ = 0;
  std::int32_t counters_ = 0;
};

}  // namespace

AttentionHeads::AttentionHeads(std::int32_t num_heads, std::int32_t num_kv_heads)
    : per_group(num_heads / num_kv_heads),
      per_piece(std::min(per_group, kernels::kMaxAttentionRows)),
      pieces_per_group((per_group + per_piece - 1) / per_piece),
      pieces(num_kv_heads * pieces_per_group) {}

AttentionPlanSize attention_plan_size(const AttentionPlanLimits& limits) {
  const std::int64_t plan = partials_offset(limits);
  return {plan,
          plan + whole_lines(max_partials(limits) * kernels::span_sums_floats(1, limits.head_dim) *
                             static_cast<std::int64_t>(sizeof(float)))};
}

std::int64_t write_attention_plan(const AttentionPlanParams& p, int threads) {
  auto* plan = static_cast<AttentionPlan*>(p.plan);
  std::int32_t count = 0;
  std::int64_t keys = 0;
  std::int64_t cost = 0;
  for_each_item(p, [&](const AttentionItem& item) {
    keys += item.num_keys();
    cost += std::int64_t{item.num_queries} * item.num_keys();
  });
  // Each item is the work of as many threads as it has pieces.
  const AttentionHeads heads(p.limits.num_heads, p.limits.num_kv_heads);
  const std::int64_t shares = threads > 1 ? threads * kSharesPerThread : 1;
  ItemCutter cutter(p.limits, std::max<std::int64_t>(1, cost * heads.pieces / shares));
  for_each_item(p, [&](const AttentionItem& item) {
    cutter.cut(item, [&](const AttentionItem& part) {
      CHECK(count < max_items(p.limits));
      plan->items[count++] = part;
    });
  });
  std::sort(plan->items, plan->items + count, goes_first);
  plan->num_items = count;
  plan->reserved = 0;
  plan->total_keys = keys;
  plan->partials_offset = partials_offset(p.limits);
  plan->counters_offset = kItemsOffset + count * static_cast<std::int64_t>(sizeof(AttentionItem));
  auto* counters =
      reinterpret_cast<std::int32_t*>(static_cast<std::byte*>(p.plan) + plan->counters_offset);
  std::fill_n(counters, cutter.counters(), 0);
  return plan->counters_offset +
         cutter.counters() * static_cast<std::int64_t>(sizeof(std::int32_t));
}

Work attention_work(const AttentionPlanParams& p, std::int32_t lanes) {
  std::int64_t computed = 0;
  for_each_item(p, [&](const AttentionItem& item) {
    const std::int64_t end = item.end_key;
    const std::int64_t vectors = (end + lanes - 1) / lanes - item.first_key / lanes;
    computed += item.num_queries * vectors * lanes;
  });
  return {attention_pairs(p), computed * p.limits.num_heads};
}

}  // namespace sluice
