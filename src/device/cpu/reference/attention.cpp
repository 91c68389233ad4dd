// RoPE with the write into the KV cache, and attention over block tables.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/check.h"
#include "device/cpu/reference/elements.h"
#include "device/cpu/reference/reference_ops.h"
#include "device/cpu/row_count.h"

namespace sluice {
namespace {

using reference::load_element;
using reference::store_element;

// Index, in elements, of a key or value vector: token at `offset` of `block`, KV head `head`.
std::int64_t kv_index(const KvLayerView& kv, std::int64_t block, std::int64_t offset,
                      std::int64_t head) {
  return block * kv.block_stride + head * kv.head_stride + offset * kv.token_stride;
}

void normalize_head(const RopeWriteKvParams& p, const TensorView& weight, std::int32_t token,
                    std::int64_t column) {
  double sum = 0.0;
  for (std::int32_t i = 0; i < p.head_dim; ++i) {
    const double x = load_element(p.qkv, token, column + i);
    sum += x * x;
  }
  const double scale = 1.0 / std::sqrt(sum / p.head_dim + p.norm_epsilon);
  for (std::int32_t i = 0; i < p.head_dim; ++i) {
    const double w = load_element(weight.data, weight.dtype, i);
    store_element(p.qkv, token, column + i,
                  static_cast<float>(load_element(p.qkv, token, column + i) * scale * w));
  }
}

void rotate_head(const RopeWriteKvParams& p, std::int32_t token, std::int64_t column) {
  const std::int32_t half = p.rotary_dim / 2;
  const float* cosines = p.cos_sin + std::int64_t{p.positions[token]} * p.rotary_dim;
  const float* sines = cosines + half;
  for (std::int32_t i = 0; i < half; ++i) {
    const double low = load_element(p.qkv, token, column + i);
    const double high = load_element(p.qkv, token, column + half + i);
    store_element(p.qkv, token, column + i, static_cast<float>(low * cosines[i] - high * sines[i]));
    store_element(p.qkv, token, column + half + i,
                  static_cast<float>(high * cosines[i] + low * sines[i]));
  }
}

// One query head of one token over positions [first, last] of its sequence.
void attend(const AttentionParams& p, std::int32_t seq, std::int64_t token, std::int32_t head,
            std::int64_t first, std::int64_t last) {
  const KvLayerView& kv = p.kv;
  const std::int32_t* table = p.block_tables + p.row_slots[seq] * p.table_stride;
  const std::int64_t kv_head = head / (p.num_heads / p.num_kv_heads);
  const auto index_of = [&](std::int64_t position) {
    return kv_index(kv, table[position / kv.block_size], position % kv.block_size, kv_head);
  };
  std::vector<double> weights(static_cast<std::size_t>(last - first + 1));
  double largest = -std::numeric_limits<double>::infinity();
  for (std::int64_t pos = first; pos <= last; ++pos) {
    double score = 0.0;
    for (std::int32_t d = 0; d < p.head_dim; ++d) {
      score += static_cast<double>(load_element(p.q, token, std::int64_t{head} * p.head_dim + d)) *
               load_element(kv.k_base, kv.dtype, index_of(pos) + d);
    }
    weights[static_cast<std::size_t>(pos - first)] = score * p.scale;
    largest = std::max(largest, score * p.scale);
  }
  double total = 0.0;
  for (double& weight : weights) {
    weight = std::exp(weight - largest);
    total += weight;
  }
  for (std::int32_t d = 0; d < p.head_dim; ++d) {
    double sum = 0.0;
    for (std::int64_t pos = first; pos <= last; ++pos) {
      sum += weights[static_cast<std::size_t>(pos - first)] *
             load_element(kv.v_base, kv.dtype, index_of(pos) + d);
    }
    store_element(p.out, token, std::int64_t{head} * p.head_dim + d,
                  static_cast<float>(sum / total));
  }
}

}  // namespace

void ReferenceOps::execute(const RopeWriteKvParams& p) {
  for (std::int32_t t = 0; t < rows_in_use(p.rows); ++t) {
    for (std::int32_t head = 0; head < p.num_heads + p.num_kv_heads; ++head) {
      const std::int64_t column = std::int64_t{head} * p.head_dim;
      const TensorView& norm = head < p.num_heads ? p.q_norm : p.k_norm;
      if (!norm.empty()) normalize_head(p, norm, t, column);
      rotate_head(p, t, column);
    }
    const std::int64_t slot = p.slot_mapping[t];
    const std::int64_t keys = std::int64_t{p.num_heads} * p.head_dim;
    const std::int64_t values = keys + std::int64_t{p.num_kv_heads} * p.head_dim;
    for (std::int32_t head = 0; head < p.num_kv_heads; ++head) {
      const std::int64_t at = kv_index(p.kv, slot / p.kv.block_size, slot % p.kv.block_size, head);
      const std::int64_t column = std::int64_t{head} * p.head_dim;
      for (std::int32_t d = 0; d < p.head_dim; ++d) {
        store_element(p.kv.k_base, p.kv.dtype, at + d, load_element(p.qkv, t, keys + column + d));
        store_element(p.kv.v_base, p.kv.dtype, at + d, load_element(p.qkv, t, values + column + d));
      }
    }
  }
}

void ReferenceOps::execute(const AttentionParams& p) {
  CHECK(p.num_kv_heads > 0 && p.num_heads % p.num_kv_heads == 0);
  for (std::int32_t s = 0; s < rows_in_use(p.seqs); ++s) {
    const std::int32_t query_len = p.cu_seqlens_q[s + 1] - p.cu_seqlens_q[s];
    for (std::int32_t i = 0; i < query_len; ++i) {
      const std::int64_t last = std::int64_t{p.seq_lens[s]} - query_len + i;
      const std::int64_t first =
          p.window > 0 ? std::max<std::int64_t>(0, last - p.window + 1) : std::int64_t{0};
      for (std::int32_t head = 0; head < p.num_heads; ++head) {
        attend(p, s, p.cu_seqlens_q[s] + i, head, first, last);
      }
    }
  }
}

AttentionPlanSize ReferenceOps::attention_plan_size(const AttentionPlanLimits&) const { return {}; }

std::int64_t ReferenceOps::plan_attention(const AttentionPlanParams&) { return 0; }

Work ReferenceOps::attention_work(const AttentionPlanParams& p) const {
  const std::int64_t pairs = attention_pairs(p);
  return {pairs, pairs};
}

}  // namespace sluice
