// Checks what attention_work() says that the kernel computes, against the matrix instructions that
// it issues when it runs.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "device/cuda/attention_launch.h"
#include "device/cuda/attention_plan.h"
#include "tests/support/cuda/emulated_gpu.h"
#include "tests/support/cuda/run_emulated.h"

namespace sluice::cuda {
namespace {

struct Row {
  std::int32_t context;
  std::int32_t query;
};

constexpr std::int32_t kDim = 64;
constexpr std::int32_t kBlock = 16;

// A step over keys and values of zeros, all in block 0.
class AttentionStep {
 public:
  AttentionStep(const std::vector<Row>& rows, std::int32_t heads, std::int32_t kv_heads,
                std::int32_t window) {
    for (const Row& row : rows) {
      first_tokens_.push_back(first_tokens_.back() + row.query);
      lengths_.push_back(row.context + row.query);
    }
    const std::int32_t tokens = first_tokens_.back();
    const auto num_rows = static_cast<std::int32_t>(rows.size());
    const std::int32_t longest = *std::max_element(lengths_.begin(), lengths_.end());
    plan_.limits = {tokens, num_rows, longest, heads, kv_heads, kDim, window};
    plan_.cu_seqlens_q = first_tokens_.data();
    plan_.seq_lens = lengths_.data();
    plan_.num_seqs = num_rows;
    memory_.resize(static_cast<std::size_t>(attention_plan_size(plan_.limits).device_bytes));
    plan_.plan = memory_.data();

    slots_.resize(rows.size(), 0);
    table_.resize(static_cast<std::size_t>(longest / kBlock + 1), 0);
    queries_.resize(static_cast<std::size_t>(tokens * heads * kDim));
    out_.resize(queries_.size());
    keys_.resize(static_cast<std::size_t>(kBlock * kv_heads * kDim));
    AttentionParams& p = op_;
    p.q = matrix_view(queries_.data(), DType::kBF16, tokens, std::int64_t{heads} * kDim);
    p.out = matrix_view(out_.data(), DType::kBF16, tokens, std::int64_t{heads} * kDim);
    p.kv = {keys_.data(), keys_.data(), DType::kBF16, kBlock, 0, kBlock * kDim, kDim};
    p.cu_seqlens_q = first_tokens_.data();
    p.seq_lens = lengths_.data();
    p.block_tables = table_.data();
    p.row_slots = slots_.data();
    p.plan = memory_.data();
    p.num_heads = heads;
    p.num_kv_heads = kv_heads;
    p.head_dim = kDim;
    p.window = window;
    p.scale = 1.0F;
    p.seqs = {nullptr, num_rows};
  }

  Work said() const { return attention_work(plan_); }

  // Each warp's step of 16 rows and 32 keys: two products of 16 by 8 keys for each 16 dims and half
  // step, and as many with the values, and one a half with ones.
  std::int64_t done() {
    write_attention_plan(plan_, 5);
    const LaunchShape shape = {5, 1, kAttentionWarps * 32, attention_shared_bytes(kDim)};
    emulation::matrix_products = 0;
    EXPECT_TRUE(run_emulated(KernelId::kAttentionBf16D64, shape, &op_));
    constexpr std::uint64_t kOfStep = 2 * (2 * kDim / 16 + kDim / 8 + 1);
    EXPECT_EQ(emulation::matrix_products % kOfStep, 0U);
    return static_cast<std::int64_t>(emulation::matrix_products / kOfStep) * 16 * 32;
  }

 private:
  std::vector<std::int32_t> first_tokens_ = {0};
  std::vector<std::int32_t> lengths_;
  std::vector<std::byte> memory_;
  std::vector<std::int32_t> slots_;
  std::vector<std::int32_t> table_;
  std::vector<std::uint16_t> queries_;
  std::vector<std::uint16_t> out_;
  std::vector<std::uint16_t> keys_;
  AttentionPlanParams plan_;
  AttentionParams op_;
};

TEST(AttentionPlanWork, IsWhatTheKernelDoes) {
  const std::vector<std::vector<Row>> steps = {
      {{0, 1}},                               // a first token
      {{600, 1}, {31, 1}, {32, 1}},           // decodes, at a step's border too
      {{0, 40}},                              // a prompt
      {{100, 70}, {7, 1}, {1025, 1}, {0, 3}}  // chunks and decodes
  };
  for (const auto& rows : steps) {
    for (const std::int32_t window : {0, 20}) {
      AttentionStep step(rows, 4, 2, window);
      EXPECT_EQ(step.said().computed, step.done()) << rows.size() << " rows, window " << window;
      EXPECT_LE(step.said().used, step.said().computed);
    }
  }
}

// Two query heads of 16 rows, 601 keys in 19 steps of 32.
TEST(AttentionPlanWork, ADecodesTileIsMostlyEmpty) {
  EXPECT_EQ(AttentionStep({{600, 1}}, 4, 2, 0).said(), (Work{4L * 601, 2L * 16 * 19 * 32}));
}

}  // namespace
}  // namespace sluice::cuda
