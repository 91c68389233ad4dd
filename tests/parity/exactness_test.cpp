// A row's result is bitwise the same whatever else is in the batch, however its prompt is cut,
// wherever its blocks lie and however many threads work: for every CPU instruction set, and on CUDA
// where it is asked for (--deterministic).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "tests/parity/attention_case.h"
#include "tests/parity/lora_case.h"
#include "tests/parity/support.h"
#include "tests/support/sanitized.h"

namespace sluice::parity {
namespace {

constexpr std::uint64_t kSeeds = kSanitized ? 2 : 6;  // races do not wait for rare numbers

class ExactnessTest : public testing::TestWithParam<DeviceCase> {
 protected:
  struct Place {
    std::unique_ptr<Device> device;
    std::unique_ptr<DeviceMemory> memory;
  };

  // One device for each of 1, 2 and 3 threads.
  void SetUp() override {
    for (int threads = 1; threads <= 3; ++threads) {
      auto device = GetParam().make(threads, true);
      if (!device) GTEST_SKIP() << device.error().message;
      places_.push_back({std::move(*device), nullptr});
      places_.back().memory = std::make_unique<DeviceMemory>(*places_.back().device);
    }
  }
  void TearDown() override {
    for (Place& place : places_) place.memory.reset();
  }
  static std::uint64_t seeds(std::uint64_t most) {
    return GetParam().slow ? std::max<std::uint64_t>(most / 6, 2) : most;
  }
  Place& any_place(SplitMix64& rng) { return places_[rng.below(places_.size())]; }

  std::vector<Place> places_;
};

// Rows `order` of a matrix, as a matrix.
std::vector<float> pick_rows(const std::vector<float>& matrix, std::size_t cols,
                             const std::vector<std::size_t>& order) {
  std::vector<float> picked;
  for (const std::size_t row : order) {
    picked.insert(picked.end(), matrix.begin() + static_cast<std::ptrdiff_t>(row * cols),
                  matrix.begin() + static_cast<std::ptrdiff_t>((row + 1) * cols));
  }
  return picked;
}

std::vector<std::size_t> random_order(SplitMix64& rng, std::size_t rows) {
  std::vector<std::size_t> order(1 + rng.below(2 * rows));
  for (std::size_t& row : order) row = rng.below(rows);
  return order;
}

TEST_P(ExactnessTest, MatmulRowsAreIndependentOfTheBatch) {
  const std::pair<DType, DType> types[] = {{DType::kF32, DType::kF32},
                                           {DType::kF32, DType::kF16},
                                           {DType::kF32, DType::kBF16},
                                           {DType::kBF16, DType::kBF16}};
  for (std::uint64_t seed = 0; seed < seeds(kSeeds); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SplitMix64 rng(seed);
    const auto [x_type, w_type] = types[seed % 4];
    const std::size_t rows = 1 + rng.below(40);
    const std::size_t depth = 1 + rng.below(600);
    const std::size_t cols = 1 + rng.below(500);
    const auto x = random_floats(rng, rows * depth);
    const auto w = random_floats(rng, cols * depth);
    const auto bias = random_floats(rng, cols);
    // Rows `order` of x, against columns [begin, end), as one segment or cut in two.
    const auto run = [&](const std::vector<std::size_t>& order, std::size_t begin, std::size_t end,
                         std::size_t cut) {
      Place& place = any_place(rng);
      DeviceMemory& memory = *place.memory;
      memory.clear();
      MatmulParams p;
      p.x = memory.put_matrix(pick_rows(x, depth, order), static_cast<std::int64_t>(order.size()),
                              static_cast<std::int64_t>(depth), x_type);
      for (const auto& [from, to] : {std::pair(begin, cut), std::pair(cut, end)}) {
        if (from == to) continue;
        std::vector<std::size_t> picked(to - from);
        std::iota(picked.begin(), picked.end(), from);
        MatmulSegment& segment = p.segments[p.num_segments++];
        segment.weight =
            memory.put_matrix(pick_rows(w, depth, picked), static_cast<std::int64_t>(to - from),
                              static_cast<std::int64_t>(depth), w_type);
        segment.bias = memory.put_vector(pick_rows(bias, 1, picked), w_type);
      }
      const auto count = static_cast<std::int32_t>(order.size());
      p.out = memory.take_matrix(count, static_cast<std::int64_t>(end - begin), DType::kF32);
      p.rows = {memory.put_count(count), count};
      place.device->ops().run(p);
      return memory.read_matrix(p.out);
    };
    std::vector<std::size_t> all(rows);
    std::iota(all.begin(), all.end(), std::size_t{0});
    const auto whole = run(all, 0, cols, cols);
    for (int round = 0; round < 8; ++round) {
      const auto order = random_order(rng, rows);
      const std::size_t begin = rng.below(cols);
      const std::size_t end = begin + 1 + rng.below(cols - begin);
      const auto part = run(order, begin, end, begin + rng.below(end - begin));
      for (std::size_t i = 0; i < order.size(); ++i) {
        const std::size_t width = end - begin;
        expect_same(std::span(part).subspan(i * width, width),
                    std::span(whole).subspan(order[i] * cols + begin, width), "row");
        if (HasFatalFailure()) return;
      }
    }
  }
}

// run(rows) gives their products, `cols` wide: of all kProductRows, and of some, of which CUDA's
// kernels, chosen by how many rows there is room for, see the limits.
constexpr std::size_t kProductRows = 150;
void expect_independent_of_capacity(
    const std::function<std::vector<float>(const std::vector<std::size_t>&)>& run, std::size_t cols,
    SplitMix64& rng) {
  std::vector<std::size_t> all(kProductRows);
  std::iota(all.begin(), all.end(), std::size_t{0});
  const auto whole = run(all);
  for (const std::size_t count : {1, 8, 9, 16, 17, 65, 150}) {
    std::vector<std::size_t> order(count);
    for (std::size_t& row : order) row = rng.below(kProductRows);
    expect_same(run(order), pick_rows(whole, cols, order), std::to_string(count) + " rows");
    if (testing::Test::HasFatalFailure()) return;
  }
}

// Rows of 16-bit elements at whole addresses, which CUDA gives to tensor cores.
TEST_P(ExactnessTest, MatmulOfHalvesIsIndependentOfTheCapacity) {
  constexpr std::size_t kDepth = 136;
  constexpr std::int64_t kCols = 131;
  for (const DType type : {DType::kBF16, DType::kF16}) {
    SplitMix64 rng(91);
    const auto x = random_floats(rng, kProductRows * kDepth);
    const auto w = random_floats(rng, kDepth * kCols);
    const auto run = [&](const std::vector<std::size_t>& order) {
      Place& place = any_place(rng);
      DeviceMemory& memory = *place.memory;
      memory.clear();
      const auto count = static_cast<std::int32_t>(order.size());
      MatmulParams p;
      p.x = memory.put_matrix(pick_rows(x, kDepth, order), count, kDepth,
                              place.device->traits().matmul_input_dtype(type));
      p.segments[0].weight = memory.put_matrix(w, kCols, kDepth, type);
      p.num_segments = 1;
      p.out = memory.take_matrix(count, kCols, DType::kF32);
      p.rows = {memory.put_count(count), count};
      place.device->ops().run(p);
      return memory.read_matrix(p.out);
    };
    expect_independent_of_capacity(run, kCols, rng);
    if (HasFatalFailure()) return;
  }
}

// Rows `order` of a batch of tokens with adapters, and how they are listed: in another device's
// memory, in other slots, beside other adapters, in segments cut anywhere.
struct LoraBatchOfRows {
  LoraShape shape;
  std::vector<LoraAdapter> adapters;
  std::vector<std::int32_t> adapter_of;  // of each row; -1: none
  std::vector<float> x;
  std::vector<float> before;

  std::vector<float> run(Device& device, DeviceMemory& memory,
                         const std::vector<std::size_t>& order, SplitMix64& rng) const {
    memory.clear();
    memory.take(64 * rng.below(50));  // so that the region lies elsewhere
    const auto num_slots = static_cast<std::int32_t>(adapters.size() + 3);
    LoraSite site(memory, shape, static_cast<std::int32_t>(order.size() + rng.below(9)), num_slots,
                  std::size_t{1} << 20);
    std::vector<std::int32_t> slots(static_cast<std::size_t>(num_slots));
    std::iota(slots.begin(), slots.end(), 0);
    for (std::size_t i = slots.size(); i > 1; --i) std::swap(slots[i - 1], slots[rng.below(i)]);
    for (std::size_t a = 0; a < adapters.size(); ++a) site.load(slots[a], adapters[a], rng);
    std::vector<std::int32_t> slot_of;
    for (const std::size_t row : order) {
      const std::int32_t adapter = adapter_of[row];
      slot_of.push_back(adapter < 0 ? -1 : slots[static_cast<std::size_t>(adapter)]);
    }
    const auto depth = static_cast<std::size_t>(shape.depth);
    site.set_batch(pick_rows(x, depth, order), pick_rows(before, width(), order), slot_of,
                   rng.below(3) == 0 ? nullptr : &rng);
    site.run(device.ops());
    return memory.read_matrix(site.out());
  }
  std::size_t width() const {
    return static_cast<std::size_t>(
        std::accumulate(shape.widths.begin(), shape.widths.end(), std::int64_t{0}));
  }
};

LoraBatchOfRows random_lora(Device& device, std::uint64_t seed, SplitMix64& rng) {
  const std::pair<DType, DType> types[] = {
      {DType::kBF16, DType::kBF16},
      {device.traits().matmul_input_dtype(DType::kF16), DType::kF16},
      {DType::kF32, DType::kF32},
      {DType::kF32, DType::kBF16}};
  LoraBatchOfRows batch;
  const std::int64_t depth = 8 * static_cast<std::int64_t>(1 + rng.below(40));
  batch.shape = {seed % 5 == 4 ? depth + LoraHidden::kPartDepth : depth,
                 {},
                 static_cast<std::int32_t>(1 + rng.below(40)),
                 types[seed % 4].first,
                 types[seed % 4].second};
  for (std::uint64_t m = 0; m < 1 + rng.below(3); ++m) {
    batch.shape.widths.push_back(static_cast<std::int64_t>(1 + rng.below(300)));
  }
  const auto max_rank = static_cast<std::uint64_t>(batch.shape.max_rank);
  batch.adapters.resize(1 + rng.below(5));
  for (LoraAdapter& adapter : batch.adapters) {
    std::vector<std::int32_t> ranks;
    while (ranks.size() < batch.shape.widths.size()) {
      ranks.push_back(static_cast<std::int32_t>(rng.below(max_rank + 1)));
    }
    adapter = random_adapter(batch.shape, ranks, rng);
  }
  const std::size_t rows = 1 + rng.below(90);
  for (std::size_t r = 0; r < rows; ++r) {
    batch.adapter_of.push_back(static_cast<std::int32_t>(rng.below(batch.adapters.size() + 1)) - 1);
  }
  batch.x = random_floats(rng, rows * static_cast<std::size_t>(batch.shape.depth));
  batch.before = random_floats(rng, rows * batch.width());
  return batch;
}

TEST_P(ExactnessTest, LoraRowsAreIndependentOfTheBatch) {
  for (std::uint64_t seed = 0; seed < seeds(12); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SplitMix64 rng(seed);
    const LoraBatchOfRows batch = random_lora(*places_[0].device, seed, rng);
    const std::size_t rows = batch.adapter_of.size();
    std::vector<std::size_t> all(rows);
    std::iota(all.begin(), all.end(), std::size_t{0});
    const auto whole = batch.run(*places_[0].device, *places_[0].memory, all, rng);
    for (int round = 0; round < (GetParam().slow ? 2 : 6); ++round) {
      const auto order = random_order(rng, rows);
      Place& place = any_place(rng);
      expect_same(batch.run(*place.device, *place.memory, order, rng),
                  pick_rows(whole, batch.width(), order), "rows");
      if (HasFatalFailure()) return;
    }
  }
}

// In whatever kernel, and with the activation in the same launch or not.
TEST_P(ExactnessTest, GatedProductsAreIndependentOfTheCapacity) {
  constexpr std::size_t kDepth = 136;
  constexpr std::int64_t kWidth = 67;
  SplitMix64 rng(92);
  const auto x = random_floats(rng, kProductRows * kDepth);
  const auto gate = random_floats(rng, kDepth * kWidth);
  const auto up = random_floats(rng, kDepth * kWidth);
  const auto run = [&](const std::vector<std::size_t>& order) {
    Place& place = any_place(rng);
    DeviceMemory& memory = *place.memory;
    memory.clear();
    const auto count = static_cast<std::int32_t>(order.size());
    GatedMatmulParams p;
    p.x = memory.put_matrix(pick_rows(x, kDepth, order), count, kDepth, DType::kBF16);
    p.gate.weight = memory.put_matrix(gate, kWidth, kDepth, DType::kBF16);
    p.up.weight = memory.put_matrix(up, kWidth, kDepth, DType::kBF16);
    p.scratch = memory.take_matrix(count, 2 * kWidth, DType::kF32);
    p.out = memory.take_matrix(count, kWidth, DType::kF32);
    p.rows = {memory.put_count(count), count};
    place.device->ops().run(p);
    return memory.read_matrix(p.out);
  };
  expect_independent_of_capacity(run, kWidth, rng);
}

TEST_P(ExactnessTest, RowOpsAreIndependentOfTheBatch) {
  for (std::uint64_t seed = 0; seed < seeds(kSeeds); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SplitMix64 rng(seed);
    const std::size_t rows = 1 + rng.below(300);
    const std::size_t width = 2 * (1 + rng.below(400));
    const auto x = random_floats(rng, rows * width, 3.0F);
    const auto weight = random_floats(rng, width);
    const DType out_type = seed % 2 == 0 ? DType::kF32 : DType::kBF16;
    enum class RowOp { kActivation, kRmsNorm, kLayerNorm };
    const auto run = [&](const std::vector<std::size_t>& order, RowOp op) {
      Place& place = any_place(rng);
      DeviceMemory& memory = *place.memory;
      memory.clear();
      const auto count = static_cast<std::int32_t>(order.size());
      const auto cols = static_cast<std::int64_t>(width);
      const TensorView in = memory.put_matrix(pick_rows(x, width, order), count, cols, DType::kF32);
      const std::int64_t out_cols = op == RowOp::kActivation ? cols / 2 : cols;
      const TensorView out = memory.take_matrix(count, out_cols, out_type);
      const TensorView weights = memory.put_vector(weight, DType::kF32);
      const RowCount in_use = {memory.put_count(count), count};
      Ops& ops = place.device->ops();
      switch (op) {
        case RowOp::kActivation:
          ops.run(GatedActivationParams{in, out, GatedActivation::kSilu, in_use});
          break;
        case RowOp::kRmsNorm: ops.run(RmsNormParams{in, in, weights, out, 1e-5F, in_use}); break;
        case RowOp::kLayerNorm:
          ops.run(LayerNormParams{in, in, weights, weights, out, 1e-5F, in_use});
          break;
      }
      return memory.read_matrix(out);
    };
    std::vector<std::size_t> all(rows);
    std::iota(all.begin(), all.end(), std::size_t{0});
    for (const RowOp op : {RowOp::kActivation, RowOp::kRmsNorm, RowOp::kLayerNorm}) {
      const std::size_t cols = op == RowOp::kActivation ? width / 2 : width;
      const auto whole = run(all, op);
      for (int round = 0; round < 4; ++round) {
        const auto order = random_order(rng, rows);
        expect_same(run(order, op), pick_rows(whole, cols, order), "rows");
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Two query heads, a key and a value per token, normalized, rotated and stored.
struct RopeCase {
  static constexpr std::int32_t kBlockSize = 8;
  static constexpr std::int32_t kBlocks = 20;

  RopeCase(std::int32_t head_dim, std::size_t rows, SplitMix64& rng)
      : dim(head_dim),
        width(static_cast<std::size_t>(4 * head_dim)),
        qkv(random_floats(rng, rows * width)),
        cos_sin(random_floats(rng, static_cast<std::size_t>(100 * head_dim))),
        norm(random_floats(rng, static_cast<std::size_t>(head_dim))) {}

  static std::vector<std::int64_t> random_slots(std::size_t count, SplitMix64& rng) {
    std::vector<std::int64_t> slots(kBlockSize * kBlocks);
    std::iota(slots.begin(), slots.end(), std::int64_t{0});
    for (std::size_t i = slots.size() - 1; i > 0; --i) std::swap(slots[i], slots[rng.below(i + 1)]);
    slots.resize(count);
    return slots;
  }

  // Queries, then key and value as they were stored, of rows `order`.
  std::vector<float> run(Device& device, DeviceMemory& memory,
                         const std::vector<std::size_t>& order, SplitMix64& rng) const {
    memory.clear();
    const auto count = static_cast<std::int32_t>(order.size());
    const auto slots = random_slots(order.size(), rng);
    std::vector<std::int32_t> positions;
    for (const std::size_t row : order) positions.push_back(static_cast<std::int32_t>(row + 7));
    const std::int64_t values = std::int64_t{kBlocks} * kBlockSize * dim;  // after the keys
    const TensorView cache = memory.take_matrix(2 * kBlocks * kBlockSize, dim, DType::kBF16);
    RopeWriteKvParams p;
    p.qkv = memory.put_matrix(pick_rows(qkv, width, order), count, 4 * dim, DType::kF32);
    p.q_norm = memory.put_vector(norm, DType::kF32);
    p.k_norm = p.q_norm;
    p.cos_sin = memory.put(cos_sin);
    p.positions = memory.put(positions);
    p.slot_mapping = memory.put(slots);
    p.kv = {cache.data,
            static_cast<std::uint16_t*>(cache.data) + values,
            DType::kBF16,
            kBlockSize,
            std::int64_t{kBlockSize} * dim,
            0,
            dim};
    p.num_heads = 2;
    p.num_kv_heads = 1;
    p.head_dim = dim;
    p.rotary_dim = dim;
    p.norm_epsilon = 1e-6F;
    p.rows = {memory.put_count(count), count};
    device.ops().run(p);
    const auto after = memory.read_matrix(p.qkv);
    const auto stored = memory.read_matrix(cache);
    std::vector<float> result;
    for (std::size_t i = 0; i < order.size(); ++i) {
      const auto* query = after.data() + i * width;
      result.insert(result.end(), query, query + 2 * dim);
      for (const std::int64_t base : {std::int64_t{0}, values}) {
        const auto* kv = stored.data() + base + slots[i] * dim;
        result.insert(result.end(), kv, kv + dim);
      }
    }
    return result;
  }

  std::int32_t dim;
  std::size_t width;
  std::vector<float> qkv;
  std::vector<float> cos_sin;
  std::vector<float> norm;
};

TEST_P(ExactnessTest, RopeIsIndependentOfTheBatchAndOfTheSlot) {
  constexpr std::int32_t kDims[] = {8, 20, 64, 80, 128};
  for (std::uint64_t seed = 0; seed < seeds(kSeeds); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SplitMix64 rng(seed);
    const std::size_t rows = 1 + rng.below(60);
    const RopeCase rope(kDims[seed % 5], rows, rng);
    const auto run = [&](const std::vector<std::size_t>& order) {
      Place& place = any_place(rng);
      return rope.run(*place.device, *place.memory, order, rng);
    };
    std::vector<std::size_t> all(rows);
    std::iota(all.begin(), all.end(), std::size_t{0});
    const auto whole = run(all);
    for (int round = 0; round < 4; ++round) {
      const auto order = random_order(rng, rows);
      expect_same(run(order), pick_rows(whole, rope.width, order), "rows");
      if (HasFatalFailure()) return;
    }
  }
}

AttentionConfig random_config(SplitMix64& rng) {
  constexpr std::int32_t kDims[] = {8, 20, 24, 64, 80, 96, 128};
  constexpr std::int32_t kRatios[] = {1, 2, 3, 4, 8};
  constexpr std::int32_t kBlocks[] = {1, 8, 16, 32};
  constexpr std::int32_t kWindows[] = {0, 0, 7, 64, 100};
  constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
  AttentionConfig config;
  config.num_kv_heads = static_cast<std::int32_t>(1 + rng.below(2));
  config.num_heads = config.num_kv_heads * kRatios[rng.below(5)];
  config.head_dim = kDims[rng.below(7)];
  config.block_size = kBlocks[rng.below(4)];
  config.window = kWindows[rng.below(5)];
  config.kv = kTypes[rng.below(3)];
  return config;
}

TEST_P(ExactnessTest, AttentionIsIndependentOfChunksBatchAndBlocks) {
  for (std::uint64_t seed = 0; seed < seeds(3 * kSeeds); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SplitMix64 rng(seed);
    const AttentionConfig config = random_config(rng);
    const auto length = static_cast<std::int32_t>(1 + rng.below(300));
    const auto sequence = random_sequence(config, length, rng);
    const auto other = random_sequence(config, 200, rng);
    const std::size_t width =
        static_cast<std::size_t>(config.num_heads) * static_cast<std::size_t>(config.head_dim);
    Place& first = any_place(rng);
    const auto whole =
        run_attention(*first.device, *first.memory, config, {{&sequence, 0, length}}, rng);

    // The same sequence in chunks, each in a batch with parts of another one around it.
    std::int32_t context = 0;
    while (context < length) {
      const std::int32_t left = length - context;
      const std::int32_t chunk =
          rng.below(3) == 0
              ? 1
              : static_cast<std::int32_t>(1 + rng.below(static_cast<std::uint64_t>(left)));
      std::vector<AttentionRow> rows;
      std::size_t before = 0;
      for (std::uint64_t i = rng.below(3); i > 0; --i) {
        rows.push_back({&other, static_cast<std::int32_t>(rng.below(150)),
                        static_cast<std::int32_t>(1 + rng.below(50))});
        before += static_cast<std::size_t>(rows.back().query);
      }
      rows.push_back({&sequence, context, chunk});
      if (rng.below(2) == 0) rows.push_back({&other, 20, 1});
      Place& place = any_place(rng);
      const auto out = run_attention(*place.device, *place.memory, config, rows, rng);
      const std::size_t count = static_cast<std::size_t>(chunk) * width;
      expect_same(std::span(out).subspan(before * width, count),
                  std::span(whole).subspan(static_cast<std::size_t>(context) * width, count),
                  "chunk at " + std::to_string(context) + " of " + std::to_string(chunk));
      if (HasFatalFailure()) return;
      context += chunk;
    }
  }
}

// Contexts that a GPU cuts where a step has little else to do, and not where it has much.
TEST_P(ExactnessTest, AttentionOfLongContextsIsIndependentOfTheBatch) {
  SplitMix64 rng(5);
  const AttentionConfig config{
      .num_heads = 4, .num_kv_heads = 2, .head_dim = 72, .block_size = 16, .kv = DType::kBF16};
  constexpr std::int32_t kLength = 560;
  const auto sequence = random_sequence(config, kLength, rng);
  const auto run = [&](const std::vector<AttentionRow>& rows) {
    Place& place = any_place(rng);
    return run_attention(*place.device, *place.memory, config, rows, rng);
  };
  constexpr std::size_t kWidth = 4 * 72;
  const auto alone = run({{&sequence, kLength - 1, 1}});
  const auto in_chunk = run({{&sequence, kLength - 20, 20}});
  expect_same(std::span(in_chunk).last(kWidth), alone, "the last of a chunk");
  const auto among_many = run(std::vector<AttentionRow>(17, {&sequence, kLength - 1, 1}));
  for (std::size_t i = 0; i < 17; ++i) {
    expect_same(std::span(among_many).subspan(i * kWidth, kWidth), alone, "one of many");
  }
}

// Contexts of several spans of a CPU (1,024 keys), which many threads share if they have nothing
// else to do.
TEST_P(ExactnessTest, SpansOfAContextAreTheSameOnAnyThread) {
  if (GetParam().name.rfind("cuda", 0) == 0) GTEST_SKIP() << "a GPU has no pool of threads";
  struct Case {
    DType kv;
    std::int32_t heads, dim, window;
  };
  for (const Case& c :
       {Case{DType::kF32, 2, 24, 0}, Case{DType::kF16, 4, 64, 1500}, Case{DType::kBF16, 4, 72, 0},
        Case{DType::kBF16, 2, 128, 1100}, Case{DType::kBF16, 17, 32, 0}}) {
    SCOPED_TRACE(dtype_name(c.kv) + std::to_string(c.window));
    SplitMix64 rng(6);
    const AttentionConfig config{.num_heads = c.heads,
                                 .num_kv_heads = 1,
                                 .head_dim = c.dim,
                                 .block_size = 16,
                                 .window = c.window,
                                 .kv = c.kv};
    constexpr std::int32_t kLength = 2600;
    const auto sequence = random_sequence(config, kLength, rng);
    const auto width = static_cast<std::size_t>(c.heads * c.dim);
    std::vector<float> first;
    for (Place& place : places_) {
      const auto run = [&](const std::vector<AttentionRow>& rows) {
        return run_attention(*place.device, *place.memory, config, rows, rng);
      };
      const auto alone = run({{&sequence, kLength - 1, 1}});
      if (first.empty()) first = alone;
      expect_same(alone, first, "on one thread and on more");
      const auto in_chunk = run({{&sequence, kLength - 11, 11}});
      expect_same(std::span(in_chunk).last(width), alone, "in a chunk");
      const auto among_many = run(std::vector<AttentionRow>(7, {&sequence, kLength - 1, 1}));
      for (std::size_t i = 0; i < 7; ++i) {
        expect_same(std::span(among_many).subspan(i * width, width), alone, "one of many");
      }
      // The chunk's first rows see a span less than its last ones.
      const auto across = run({{&sequence, 2040, 20}});
      expect_same(std::span(across).subspan(7 * width, width), run({{&sequence, 2047, 1}}),
                  "the last of a span");
      expect_same(std::span(across).subspan(8 * width, width), run({{&sequence, 2048, 1}}),
                  "the first of a span");
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(ExactnessTest, InfinitiesOfLaterTokensDoNotReachEarlierOnes) {
  SplitMix64 rng(77);
  constexpr std::int32_t kDim = 24;
  for (const DType kv : {DType::kF32, DType::kBF16}) {
    // A GPU's tensor cores multiply a value that a row does not see by 0.
    if (kv == DType::kBF16 && GetParam().name.rfind("cuda", 0) == 0) continue;
    const AttentionConfig config{.num_heads = 4, .num_kv_heads = 2, .head_dim = kDim, .kv = kv};
    const auto clean = random_sequence(config, 90, rng);
    auto spoilt = clean;
    for (std::size_t i = 45 * 2 * kDim; i < spoilt.k.size(); ++i) {
      spoilt.k[i] = rng.below(2) == 0 ? INFINITY : std::nanf("");
      spoilt.v[i] = -spoilt.k[i];
    }
    Place& place = any_place(rng);
    const auto want = run_attention(*place.device, *place.memory, config, {{&clean, 0, 90}}, rng);
    const auto got = run_attention(*place.device, *place.memory, config, {{&spoilt, 0, 90}}, rng);
    constexpr std::size_t kInFront = 45 * 4 * kDim;
    expect_same(std::span(got).first(kInFront), std::span(want).first(kInFront), dtype_name(kv));
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, ExactnessTest, testing::ValuesIn(available_devices()), case_name);

}  // namespace
}  // namespace sluice::parity
