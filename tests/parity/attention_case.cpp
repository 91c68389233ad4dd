#include "tests/parity/attention_case.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace sluice::parity {
namespace {

std::int32_t blocks_of(const AttentionConfig& config, const AttentionRow& row) {
  return (row.context + row.query + config.block_size - 1) / config.block_size;
}

// The first position that any query of the row sees.
std::int32_t first_visible(const AttentionConfig& config, const AttentionRow& row) {
  return config.window > 0 ? std::max(0, row.context - config.window + 1) : 0;
}

std::int64_t tokens_of(const std::vector<AttentionRow>& rows) {
  std::int64_t tokens = 0;
  for (const AttentionRow& row : rows) tokens += row.query;
  return tokens;
}

}  // namespace

AttentionSequence random_sequence(const AttentionConfig& config, std::int32_t length,
                                  SplitMix64& rng) {
  const auto q_count = static_cast<std::size_t>(length * config.num_heads * config.head_dim);
  const auto kv_count = static_cast<std::size_t>(length * config.num_kv_heads * config.head_dim);
  return {length, round_to(config.kv, random_floats(rng, q_count, 2.0F)),
          round_to(config.kv, random_floats(rng, kv_count)),
          round_to(config.kv, random_floats(rng, kv_count))};
}

AttentionBatch::AttentionBatch(Device& device, DeviceMemory& memory, const AttentionConfig& config,
                               const std::vector<AttentionRow>& rows, SplitMix64& placement)
    : device_(device), memory_(memory), config_(config) {
  std::int32_t blocks = 0;
  std::int32_t longest = 1;
  for (const AttentionRow& row : rows) {
    blocks += blocks_of(config, row);
    longest = std::max(longest, blocks_of(config, row));
  }
  blocks += 4;
  const std::int64_t half = std::int64_t{config.num_kv_heads} * config.block_size * config.head_dim;
  free_blocks_.resize(static_cast<std::size_t>(blocks));
  std::iota(free_blocks_.begin(), free_blocks_.end(), 0);
  for (std::size_t i = free_blocks_.size() - 1; i > 0; --i) {
    std::swap(free_blocks_[i], free_blocks_[placement.below(i + 1)]);
  }
  cache_.assign(static_cast<std::size_t>(blocks * config.layers * 2 * half), std::nanf(""));
  params_.kv = {.dtype = config.kv,
                .block_size = config.block_size,
                .block_stride = config.layers * 2 * half,
                .head_stride = std::int64_t{config.block_size} * config.head_dim,
                .token_stride = config.head_dim};
  if (config.tokens_outermost) {
    params_.kv.head_stride = config.head_dim;
    params_.kv.token_stride = std::int64_t{config.num_kv_heads} * config.head_dim;
  }
  const std::int32_t stride = longest + 2;
  const auto num_rows = static_cast<std::int32_t>(rows.size());
  // Slots in reverse, so that row and slot differ; a table's unused end names the poisoned block.
  tables_.assign(static_cast<std::size_t>((num_rows + 1) * stride), free_blocks_.front());
  free_blocks_.erase(free_blocks_.begin());
  std::vector<std::int32_t> slots;
  std::vector<float> queries;
  cu_seqlens_q_ = {0};
  params_.table_stride = stride;
  for (std::int32_t r = 0; r < num_rows; ++r) {
    const AttentionRow& row = rows[static_cast<std::size_t>(r)];
    slots.push_back(num_rows - r);
    place_blocks(row, slots.back(), placement);
    const std::int64_t width = std::int64_t{config.num_heads} * config.head_dim;
    const auto& q = row.sequence->q;
    queries.insert(queries.end(), q.begin() + row.context * width,
                   q.begin() + (row.context + row.query) * width);
    cu_seqlens_q_.push_back(cu_seqlens_q_.back() + row.query);
    seq_lens_.push_back(row.context + row.query);
  }

  limits_ = {static_cast<std::int32_t>(tokens_of(rows)),
             num_rows,
             longest * config.block_size,
             config.num_heads,
             config.num_kv_heads,
             config.head_dim,
             config.window};
  put_params(queries, slots);
}

void AttentionBatch::put_params(const std::vector<float>& queries,
                                const std::vector<std::int32_t>& slots) {
  const std::int64_t tokens = limits_.max_tokens;
  const std::int64_t width = std::int64_t{config_.num_heads} * config_.head_dim;
  const std::int64_t half =
      std::int64_t{config_.num_kv_heads} * config_.block_size * config_.head_dim;
  const TensorView cache =
      memory_.put_matrix(cache_, 1, static_cast<std::int64_t>(cache_.size()), config_.kv);
  params_.q = memory_.put_matrix(queries, tokens, width, DType::kF32, width + 16);
  const auto element = static_cast<std::int64_t>(size_of(config_.kv));
  auto* layer = static_cast<std::byte*>(cache.data) + (config_.layers - 1) * 2 * half * element;
  params_.kv.k_base = layer;
  params_.kv.v_base = layer + half * element;
  params_.cu_seqlens_q = memory_.put(cu_seqlens_q_);
  params_.seq_lens = memory_.put(seq_lens_);
  params_.block_tables = memory_.put(tables_);
  params_.row_slots = memory_.put(slots);
  const AttentionPlanSize plan = device_.ops().attention_plan_size(limits_);
  plan_.resize(static_cast<std::size_t>(plan.plan_bytes));
  params_.plan = memory_.take(static_cast<std::size_t>(plan.device_bytes));
  params_.num_heads = config_.num_heads;
  params_.num_kv_heads = config_.num_kv_heads;
  params_.head_dim = config_.head_dim;
  params_.window = config_.window;
  params_.scale = 1.0F / std::sqrt(static_cast<float>(config_.head_dim));
  params_.out = memory_.take_matrix(tokens, width, config_.out);
  count_ = memory_.put(std::vector<std::int32_t>{0});
  params_.seqs = {count_, limits_.max_seqs + 2};
}

void AttentionBatch::place_blocks(const AttentionRow& row, std::int32_t slot,
                                  SplitMix64& placement) {
  for (std::int32_t i = 0; i < blocks_of(config_, row); ++i) {
    // Blocks wholly in front of a window are given back by then: what they hold is not ours.
    if ((i + 1) * config_.block_size <= first_visible(config_, row)) continue;
    const std::size_t pick = placement.below(free_blocks_.size());
    const std::int32_t block = free_blocks_[pick];
    free_blocks_.erase(free_blocks_.begin() + static_cast<std::ptrdiff_t>(pick));
    tables_[static_cast<std::size_t>(slot * params_.table_stride + i)] = block;
    fill_block(block, row, i * config_.block_size);
  }
}

void AttentionBatch::fill_block(std::int64_t block, const AttentionRow& row,
                                std::int32_t first_position) {
  const std::int64_t dim = config_.head_dim;
  const std::int64_t heads = config_.num_kv_heads;
  const std::int64_t half = heads * config_.block_size * dim;
  for (std::int32_t offset = 0; offset < config_.block_size; ++offset) {
    const std::int64_t position = first_position + offset;
    if (position < first_visible(config_, row) || position >= row.context + row.query) continue;
    for (std::int64_t g = 0; g < heads; ++g) {
      const std::int64_t from = (position * heads + g) * dim;
      const KvLayerView& kv = params_.kv;
      const std::int64_t to = block * kv.block_stride + (config_.layers - 1) * 2 * half +
                              g * kv.head_stride + offset * kv.token_stride;
      std::copy_n(row.sequence->k.begin() + from, dim, cache_.begin() + to);
      std::copy_n(row.sequence->v.begin() + from, dim, cache_.begin() + to + half);
    }
  }
}

void AttentionBatch::set_rows(std::int32_t num_rows) {
  memory_.upload(count_, std::as_bytes(std::span(&num_rows, 1)));
  const std::int64_t bytes = device_.ops().plan_attention({.limits = limits_,
                                                           .cu_seqlens_q = cu_seqlens_q_.data(),
                                                           .seq_lens = seq_lens_.data(),
                                                           .num_seqs = num_rows,
                                                           .plan = plan_.data()});
  memory_.upload(params_.plan, std::span(plan_).first(static_cast<std::size_t>(bytes)));
}

std::vector<float> run_attention(Device& device, DeviceMemory& memory,
                                 const AttentionConfig& config,
                                 const std::vector<AttentionRow>& rows, SplitMix64& placement) {
  memory.clear();
  AttentionBatch batch(device, memory, config, rows, placement);
  batch.set_rows(static_cast<std::int32_t>(rows.size()));
  device.ops().run(batch.params());
  EXPECT_TRUE(device.synchronize());
  memory.check_guards();
  return memory.read_matrix(batch.params().out);
}

ExpectedAttention expected_attention(const AttentionConfig& config,
                                     const std::vector<AttentionRow>& rows) {
  const std::int64_t dim = config.head_dim;
  const double scale = static_cast<double>(1.0F / std::sqrt(static_cast<float>(dim)));
  // Error bounds of a weight: relative, and absolute for values too small for a half float.
  const double unit = config.kv == DType::kBF16 ? 0x1p-8 : 0x1p-11;
  const double least = config.kv == DType::kBF16 ? 0.0 : 0x1p-25;
  ExpectedAttention out;
  std::vector<double> weights;
  for (const AttentionRow& row : rows) {
    for (std::int64_t i = 0; i < row.query; ++i) {
      const std::int64_t last = row.context + i;
      const std::int64_t first =
          config.window > 0 ? std::max<std::int64_t>(0, last - config.window + 1) : 0;
      for (std::int64_t head = 0; head < config.num_heads; ++head) {
        const std::int64_t group = head / (config.num_heads / config.num_kv_heads);
        const float* q = row.sequence->q.data() + (last * config.num_heads + head) * dim;
        const auto kv_at = [&](const std::vector<float>& kv, std::int64_t position) {
          return kv.data() + (position * config.num_kv_heads + group) * dim;
        };
        weights.clear();
        double largest = -std::numeric_limits<double>::infinity();
        for (std::int64_t pos = first; pos <= last; ++pos) {
          double score = 0.0;
          for (std::int64_t d = 0; d < dim; ++d) {
            score += static_cast<double>(q[d]) * kv_at(row.sequence->k, pos)[d];
          }
          weights.push_back(score * scale);
          largest = std::max(largest, score * scale);
        }
        double total = 0.0;
        for (double& weight : weights) total += weight = std::exp(weight - largest);
        for (std::int64_t d = 0; d < dim; ++d) {
          double sum = 0.0;
          double slack = 0.0;
          for (std::int64_t pos = first; pos <= last; ++pos) {
            const double weight = weights[static_cast<std::size_t>(pos - first)];
            const double value = kv_at(row.sequence->v, pos)[d];
            sum += weight * value;
            slack += (weight * unit + least) * std::abs(value);
          }
          out.values.push_back(sum / total);
          out.rounded_weights.push_back(2 * slack / total);  // in the sum and in the total
        }
      }
    }
  }
  return out;
}

}  // namespace sluice::parity
