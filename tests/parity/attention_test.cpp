#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/parity/attention_case.h"
#include "tests/parity/support.h"

namespace sluice::parity {
namespace {

class AttentionTest : public DeviceTest {
 protected:
  static bool on_tensor_cores(const AttentionConfig& config) {
    return GetParam().tensor_cores && config.kv != DType::kF32 && config.head_dim % 8 == 0;
  }

  // Parts of sequences given as (context, query).
  void check(const AttentionConfig& config,
             const std::vector<std::pair<std::int32_t, std::int32_t>>& parts, SplitMix64& rng) {
    std::vector<AttentionSequence> sequences;
    for (const auto& [context, query] : parts) {
      sequences.push_back(random_sequence(config, context + query, rng));
    }
    std::vector<AttentionRow> rows;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      rows.push_back({&sequences[i], parts[i].first, parts[i].second});
    }
    const auto want = expected_attention(config, rows);
    std::vector<double> tolerance;
    for (std::size_t i = 0; i < want.values.size(); ++i) {
      tolerance.push_back(2e-5 + rounding_error(config.out, want.values[i]) +
                          (on_tensor_cores(config) ? want.rounded_weights[i] : 0.0));
    }
    expect_close(run_attention(*device_, *memory_, config, rows, rng), want.values, tolerance,
                 "heads " + std::to_string(config.num_heads) + "/" +
                     std::to_string(config.num_kv_heads) + " of " +
                     std::to_string(config.head_dim) + ", block " +
                     std::to_string(config.block_size) + ", window " +
                     std::to_string(config.window) + ", " + dtype_name(config.kv));
  }
};

TEST_P(AttentionTest, HeadShapesAndTypes) {
  SplitMix64 rng(1);
  const std::int32_t dims[] = {8, 16, 20, 24, 64, 80, 96, 128, 256};
  const std::pair<std::int32_t, std::int32_t> heads[] = {{1, 1}, {4, 2}, {3, 1}, {8, 2}, {8, 1}};
  for (const DType kv : {DType::kF32, DType::kF16, DType::kBF16}) {
    int i = 0;
    for (const std::int32_t dim : dims) {
      const auto [h, g] = heads[i++ % 5];
      const AttentionConfig config{
          .num_heads = h, .num_kv_heads = g, .head_dim = dim, .block_size = 16, .kv = kv};
      check(config, {{0, 5}, {70, 3}, {31, 1}}, rng);
    }
  }
}

TEST_P(AttentionTest, BlockSizesAndOutputs) {
  SplitMix64 rng(2);
  for (const std::int32_t block_size : {1, 8, 16, 32, 48}) {
    for (const DType out : {DType::kF32, DType::kF16, DType::kBF16}) {
      const AttentionConfig config{.num_heads = 4,
                                   .num_kv_heads = 2,
                                   .head_dim = 32,
                                   .block_size = block_size,
                                   .kv = DType::kBF16,
                                   .out = out};
      check(config, {{0, 1}, {17, 1}, {0, 33}, {100, 20}}, rng);
    }
  }
}

TEST_P(AttentionTest, ContextsFromNothingToLong) {
  SplitMix64 rng(3);
  const AttentionConfig config{
      .num_heads = 4, .num_kv_heads = 2, .head_dim = 64, .block_size = 16, .kv = DType::kF16};
  for (const std::int32_t context : {0, 1, 15, 16, 62, 63, 64, 65, 127, 128, 500, 999}) {
    check(config, {{context, 1}}, rng);
    check(config, {{context, 2}}, rng);
  }
  check(config, {{0, 200}, {3, 90}, {999, 1}}, rng);
}

TEST_P(AttentionTest, WindowsShorterThanThePrompt) {
  SplitMix64 rng(4);
  for (const std::int32_t window : {1, 2, 16, 63, 64, 65, 100}) {
    for (const DType kv : {DType::kF32, DType::kBF16}) {
      const AttentionConfig config{.num_heads = 4,
                                   .num_kv_heads = 1,
                                   .head_dim = 24,
                                   .block_size = 8,
                                   .window = window,
                                   .kv = kv};
      check(config, {{0, 150}, {200, 1}, {130, 40}, {3, 1}}, rng);
    }
  }
}

// Steps of 32 keys, parts of 128, spans of 512; tiles of 16 and 64 (token, head) pairs: what a GPU
// cuts attention into, a little less of each and a little more.
TEST_P(AttentionTest, BordersOfStepsPartsSpansAndTiles) {
  SplitMix64 rng(14);
  const std::pair<std::int32_t, std::int32_t> heads[] = {{2, 2}, {4, 1}, {8, 1}};
  const std::int32_t contexts[] = {0, 30, 31, 32, 126, 127, 128, 510, 511, 512, 1100};
  int i = 0;
  for (const auto& [h, g] : heads) {
    for (const std::int32_t pairs : {15, 16, 17, 63, 64, 65}) {
      const AttentionConfig config{.num_heads = h,
                                   .num_kv_heads = g,
                                   .head_dim = i % 3 == 0 ? 128 : 32,
                                   .block_size = i % 2 == 0 ? 16 : 32,
                                   .window = i % 5 == 4 ? 300 : 0,
                                   .kv = i % 2 == 0 ? DType::kBF16 : DType::kF16,
                                   .out = DType::kBF16};
      const std::int32_t query = (pairs + h / g - 1) / (h / g);
      check(config, {{contexts[i % 11], query}, {contexts[(i + 5) % 11], 1}}, rng);
      ++i;
    }
  }
}

TEST_P(AttentionTest, LongContextsAloneAndTogether) {
  SplitMix64 rng(15);
  AttentionConfig config{
      .num_heads = 4, .num_kv_heads = 1, .head_dim = 64, .block_size = 16, .kv = DType::kBF16};
  check(config, {{3333, 1}}, rng);
  check(config, {{2047, 18}}, rng);
  check(config, {{2600, 1}, {5, 1}, {0, 70}, {1030, 3}, {300, 1}, {0, 1}}, rng);
  config.window = 1100;
  check(config, {{2600, 1}, {1030, 30}}, rng);
}

TEST_P(AttentionTest, CachesLaidOutInOtherWays) {
  SplitMix64 rng(18);
  for (const std::int32_t layers : {1, 3}) {
    for (const bool tokens_outermost : {false, true}) {
      const AttentionConfig config{.num_heads = 6,
                                   .num_kv_heads = 2,
                                   .head_dim = 48,
                                   .block_size = layers == 1 ? 32 : 16,
                                   .kv = DType::kF16,
                                   .layers = layers,
                                   .tokens_outermost = tokens_outermost};
      check(config, {{70, 1}, {33, 15}}, rng);
    }
  }
}

// Also where products may depend on the batch, since nothing was said of --deterministic.
TEST_P(AttentionTest, ARowIsTheSameAloneAndAmongOthers) {
  SplitMix64 rng(19);
  const AttentionConfig config{
      .num_heads = 8, .num_kv_heads = 2, .head_dim = 64, .block_size = 16, .kv = DType::kBF16};
  const auto sequence = random_sequence(config, 600, rng);
  const auto alone = run_attention(*device_, *memory_, config, {{&sequence, 599, 1}}, rng);
  const auto chunk = run_attention(*device_, *memory_, config, {{&sequence, 580, 20}}, rng);
  expect_same(std::span(chunk).last(alone.size()), alone, "the last of a chunk");
  const auto batch =
      run_attention(*device_, *memory_, config,
                    {{&sequence, 7, 3}, {&sequence, 599, 1}, {&sequence, 90, 30}}, rng);
  expect_same(std::span(batch).subspan(3 * alone.size(), alone.size()), alone, "in a batch");
}

// Decodes may have kernels of their own, for few heads that share keys: up to each number that they
// take at once, with whole tiles and parts of one at both ends.
TEST_P(AttentionTest, OneTokenHasTheBitsOfAChunk) {
  SplitMix64 rng(20);
  for (const std::int32_t heads : {1, 2, 3, 4, 7, 8, 9}) {
    for (const std::int32_t dim : {40, 96, 128}) {
      for (const std::int32_t window : {0, 101}) {
        const AttentionConfig config{.num_heads = heads,
                                     .num_kv_heads = 1,
                                     .head_dim = dim,
                                     .block_size = 16,
                                     .window = window,
                                     .kv = DType::kBF16};
        const auto sequence = random_sequence(config, 229, rng);
        const auto alone = run_attention(*device_, *memory_, config, {{&sequence, 228, 1}}, rng);
        const auto chunk = run_attention(*device_, *memory_, config, {{&sequence, 225, 4}}, rng);
        expect_same(std::span(chunk).last(alone.size()), alone,
                    std::to_string(heads) + " heads of " + std::to_string(dim) + ", window " +
                        std::to_string(window));
      }
    }
  }
}

// Layers share a plan: what a kernel keeps in it is as it was when the next one starts.
TEST_P(AttentionTest, APlanServesManyLayers) {
  SplitMix64 rng(16);
  const AttentionConfig config{
      .num_heads = 4, .num_kv_heads = 2, .head_dim = 64, .block_size = 16, .kv = DType::kBF16};
  const auto sequence = random_sequence(config, 1400, rng);
  AttentionBatch batch(*device_, *memory_, config, {{&sequence, 1399, 1}, {&sequence, 40, 20}},
                       rng);
  batch.set_rows(2);
  ops().run(batch.params());
  const auto first = result(batch.params().out);
  for (int layer = 0; layer < 3; ++layer) {
    memory_->upload(batch.params().out.data,
                    std::vector<std::byte>(first.size() * sizeof(float), std::byte{0xFF}));
    ops().run(batch.params());
    expect_same(result(batch.params().out), first, "the next layer");
  }
}

// On tensor cores a query counts as rounded to the KV dtype: as models hold it anyway.
TEST_P(AttentionTest, QueriesThatTheKvDtypeCannotHold) {
  SplitMix64 rng(17);
  const AttentionConfig config{
      .num_heads = 4, .num_kv_heads = 2, .head_dim = 64, .block_size = 16, .kv = DType::kBF16};
  auto sequence = random_sequence(config, 50, rng);
  for (float& q : sequence.q) q *= 1.01F;
  auto rounded = sequence;
  rounded.q = round_to(DType::kBF16, sequence.q);
  const auto want = expected_attention(config, {{&rounded, 30, 20}});
  std::vector<double> tolerance;
  for (const double slack : want.rounded_weights) tolerance.push_back(2e-5 + slack);
  const auto got = run_attention(*device_, *memory_, config, {{&sequence, 30, 20}}, rng);
  if (on_tensor_cores(config)) {
    expect_close(got, want.values, tolerance, "rounded queries");
  } else {
    const auto exact = expected_attention(config, {{&sequence, 30, 20}}).values;
    expect_close(got, exact, std::vector<double>(exact.size(), 2e-5), "queries as they are");
  }
}

TEST_P(AttentionTest, MoreHeadsThanAPieceHolds) {
  SplitMix64 rng(5);
  const AttentionConfig config{
      .num_heads = 71, .num_kv_heads = 1, .head_dim = 16, .block_size = 16, .kv = DType::kF32};
  check(config, {{40, 3}, {0, 2}}, rng);
}

TEST_P(AttentionTest, RowsWithoutQueriesAndNoRows) {
  SplitMix64 rng(6);
  const AttentionConfig config{.num_heads = 2, .num_kv_heads = 2, .head_dim = 16};
  check(config, {{10, 0}, {5, 2}, {0, 0}}, rng);
  check(config, {}, rng);
}

TEST_P(AttentionTest, LargeScoresDoNotOverflow) {
  SplitMix64 rng(7);
  const AttentionConfig config{.num_heads = 2, .num_kv_heads = 1, .head_dim = 64};
  auto sequence = random_sequence(config, 100, rng);
  for (float& q : sequence.q) q *= 50.0F;
  const std::vector<AttentionRow> rows = {{&sequence, 80, 20}};
  const auto want = expected_attention(config, rows).values;
  expect_close(run_attention(*device_, *memory_, config, rows, rng), want,
               std::vector<double>(want.size(), 2e-3), "large scores");
}

TEST_P(AttentionTest, NanOfATokenReachesOnlyWhoSeesIt) {
  SplitMix64 rng(8);
  const auto check_nan = [&](const AttentionConfig& config, std::int32_t nan_at, bool in_key) {
    auto sequence = random_sequence(config, 30, rng);
    (in_key ? sequence.k : sequence.v)[static_cast<std::size_t>(nan_at * 16 + 3)] = std::nanf("");
    const auto out = run_attention(*device_, *memory_, config, {{&sequence, 10, 20}}, rng);
    for (std::int32_t position = 10; position < 30; ++position) {
      const bool seen =
          position >= nan_at && (config.window == 0 || position < nan_at + config.window);
      EXPECT_EQ(std::isnan(out[static_cast<std::size_t>((position - 10) * 32 + 3)]), seen)
          << position << " sees " << nan_at << " in " << (in_key ? "key" : "value") << ", window "
          << config.window;
    }
  };
  for (const DType kv : {DType::kF32, DType::kBF16}) {
    // A GPU's tensor cores multiply a value that a row does not see by 0.
    if (kv == DType::kBF16 && GetParam().name.rfind("cuda", 0) == 0) continue;
    for (const std::int32_t window : {0, 7}) {
      // Either one of a pair of keys that are multiplied together.
      for (const std::int32_t nan_at : {20, 21}) {
        for (const bool in_key : {false, true}) {
          check_nan({.num_heads = 2, .num_kv_heads = 1, .head_dim = 16, .window = window, .kv = kv},
                    nan_at, in_key);
        }
      }
    }
  }
}

// ---- RoPE and the write into the cache

struct RopeShape {
  std::int32_t num_heads;
  std::int32_t num_kv_heads;
  std::int32_t head_dim;
  std::int32_t rotary_dim;
  std::int32_t block_size;
};

class RopeTest : public DeviceTest {
 protected:
  void check(const RopeShape& shape, DType kv, bool norms, SplitMix64& rng);
};

constexpr std::int32_t kMaxPosition = 50;

// One head normalized and rotated, in double.
std::vector<double> expected_head(const float* head, const RopeShape& shape,
                                  const std::vector<float>& norm, const float* cos_sin) {
  std::vector<double> x(head, head + shape.head_dim);
  if (!norm.empty()) {
    double squares = 0.0;
    for (const double v : x) squares += v * v;
    const double scale = 1.0 / std::sqrt(squares / shape.head_dim + 1e-6F);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] *= scale * norm[i];
  }
  const auto half = static_cast<std::size_t>(shape.rotary_dim / 2);
  for (std::size_t i = 0; i < half; ++i) {
    const double low = x[i];
    const double high = x[half + i];
    x[i] = low * cos_sin[i] - high * cos_sin[half + i];
    x[half + i] = high * cos_sin[i] + low * cos_sin[half + i];
  }
  return x;
}

void RopeTest::check(const RopeShape& shape, DType kv, bool norms, SplitMix64& rng) {
  memory_->clear();
  const std::vector<std::int32_t> positions = {0, 49, 7};
  const std::vector<std::int64_t> slots = {shape.block_size * 4 - 1, 0, shape.block_size};
  const std::int32_t total_heads = shape.num_heads + 2 * shape.num_kv_heads;
  const std::int64_t width = std::int64_t{total_heads} * shape.head_dim;
  const auto qkv = random_floats(rng, static_cast<std::size_t>(3 * width));
  const auto cos_sin =
      random_floats(rng, static_cast<std::size_t>(kMaxPosition * shape.rotary_dim), 0.7F);
  const auto dim = static_cast<std::size_t>(shape.head_dim);
  const auto q_norm = norms ? random_floats(rng, dim) : std::vector<float>();
  const auto k_norm = norms ? random_floats(rng, dim) : std::vector<float>();
  const std::int64_t half = std::int64_t{shape.num_kv_heads} * shape.block_size * shape.head_dim;
  const TensorView cache = memory_->take_matrix(4, 2 * half, kv);
  RopeWriteKvParams p;
  p.qkv = memory_->put_matrix(qkv, 3, width, DType::kF32, width + 8);
  if (norms) p.q_norm = memory_->put_vector(q_norm, DType::kF32);
  if (norms) p.k_norm = memory_->put_vector(k_norm, DType::kF32);
  p.cos_sin = memory_->put(cos_sin);
  p.positions = memory_->put(positions);
  p.slot_mapping = memory_->put(slots);
  p.kv = {
      .k_base = cache.data,
      .v_base = static_cast<std::byte*>(cache.data) + half * static_cast<std::int64_t>(size_of(kv)),
      .dtype = kv,
      .block_size = shape.block_size,
      .block_stride = 2 * half,
      .head_stride = std::int64_t{shape.block_size} * shape.head_dim,
      .token_stride = shape.head_dim};
  p.num_heads = shape.num_heads;
  p.num_kv_heads = shape.num_kv_heads;
  p.head_dim = shape.head_dim;
  p.rotary_dim = shape.rotary_dim;
  p.norm_epsilon = 1e-6F;
  p.rows = {memory_->put_count(3), 8};
  ops().run(p);

  const auto after = result(p.qkv);
  const auto stored = memory_->read_matrix(cache);
  std::vector<float> got;
  std::vector<double> want;
  std::vector<double> tolerance;
  std::size_t written = 0;
  for (std::size_t t = 0; t < 3; ++t) {
    const float* rope = cos_sin.data() + positions[t] * shape.rotary_dim;
    for (std::int32_t head = 0; head < total_heads; ++head) {
      const std::int64_t column = static_cast<std::int64_t>(t) * width + head * shape.head_dim;
      const bool is_query = head < shape.num_heads;
      const bool is_value = head >= shape.num_heads + shape.num_kv_heads;
      std::vector<double> x(qkv.begin() + column, qkv.begin() + column + shape.head_dim);
      if (!is_value)
        x = expected_head(qkv.data() + column, shape, is_query ? q_norm : k_norm, rope);
      const std::int64_t group = (head - shape.num_heads) % shape.num_kv_heads;
      const std::int64_t place =
          slots[t] / shape.block_size * 2 * half + (is_value ? half : 0) +
          (group * shape.block_size + slots[t] % shape.block_size) * shape.head_dim;
      for (std::int64_t i = 0; i < shape.head_dim; ++i) {
        got.push_back(is_query ? after[static_cast<std::size_t>(column + i)]
                               : stored[static_cast<std::size_t>(place + i)]);
        want.push_back(x[static_cast<std::size_t>(i)]);
        tolerance.push_back(1e-5 + rounding_error(is_query ? DType::kF32 : kv, want.back()));
        written += is_query ? 0 : 1;
      }
    }
  }
  expect_close(got, want, tolerance, "head_dim " + std::to_string(shape.head_dim));
  const auto finite =
      std::count_if(stored.begin(), stored.end(), [](float x) { return !std::isnan(x); });
  EXPECT_EQ(static_cast<std::size_t>(finite), written) << "only the slots of the step are written";
}

TEST_P(RopeTest, RotatesNormalizesAndWrites) {
  SplitMix64 rng(9);
  const RopeShape shapes[] = {{1, 1, 8, 8, 1},     {4, 2, 20, 20, 16},  {3, 1, 24, 24, 8},
                              {8, 2, 64, 64, 16},  {2, 2, 80, 32, 16},  {2, 1, 96, 96, 32},
                              {2, 1, 128, 128, 8}, {1, 1, 256, 64, 16}, {2, 1, 16, 0, 4}};
  for (const RopeShape& shape : shapes) {
    for (const DType kv : {DType::kF32, DType::kF16, DType::kBF16}) {
      check(shape, kv, false, rng);
      check(shape, kv, true, rng);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, AttentionTest, testing::ValuesIn(available_devices()), case_name);
INSTANTIATE_TEST_SUITE_P(Devices, RopeTest, testing::ValuesIn(available_devices()), case_name);

}  // namespace
}  // namespace sluice::parity
