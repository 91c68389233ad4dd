// Capture and replay: a graph captured once at capacity gives what the same ops give eagerly, for
// every real size of the batch.
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "tests/parity/attention_case.h"
#include "tests/parity/lora_case.h"
#include "tests/parity/support.h"

namespace sluice::parity {
namespace {

class GraphTest : public DeviceTest {};

// A made-up piece of a decoder: embedding, norm, projection, activation, both again in one op,
// gather.
struct Chain {
  static constexpr std::int32_t kCapacity = 24;
  static constexpr std::int32_t kHidden = 40;
  static constexpr std::int32_t kWide = 70;

  Chain(DeviceMemory& memory, SplitMix64& rng) {
    const auto matrix = [&](std::int32_t rows, std::int32_t cols) {
      return memory.put_matrix(random_floats(rng, static_cast<std::size_t>(rows * cols)), rows,
                               cols, DType::kBF16);
    };
    const TensorView table = matrix(50, kHidden);
    ids = memory.put(std::vector<std::int32_t>(kCapacity, 0));
    count = memory.put(std::vector<std::int32_t>{0});
    const RowCount rows = {count, kCapacity};
    const TensorView residual = memory.take_matrix(kCapacity, kHidden, DType::kF32);
    const TensorView normed = memory.take_matrix(kCapacity, kHidden, DType::kBF16);
    const TensorView wide = memory.take_matrix(kCapacity, 2 * kWide, DType::kF32);
    const TensorView active = memory.take_matrix(kCapacity, kWide, DType::kBF16);
    const TensorView deeper = memory.take_matrix(kCapacity, kWide, DType::kBF16);
    const TensorView back = memory.take_matrix(kCapacity, kHidden, DType::kF32);
    embed = {table, ids, residual, rows};
    norm = {residual, {},    memory.put_vector(random_floats(rng, kHidden), DType::kBF16),
            normed,   1e-5F, rows};
    up.x = normed;
    up.segments[0].weight = matrix(kWide, kHidden);
    up.segments[1].weight = matrix(kWide, kHidden);
    up.num_segments = 2;
    up.out = wide;
    up.rows = rows;
    activation = {wide, active, GatedActivation::kSilu, rows};
    gated = {active, {}, {}, wide, deeper, GatedActivation::kGeluTanh, rows};
    gated.gate.weight = matrix(kWide, kWide);
    gated.up.weight = matrix(kWide, kWide);
    down.x = deeper;
    down.segments[0].weight = matrix(kHidden, kWide);
    down.num_segments = 1;
    down.out = back;
    down.rows = rows;
    indices = memory.put(std::vector<std::int32_t>(kCapacity, 0));
    out = memory.take_matrix(kCapacity, kHidden, DType::kF32);
    gather = {back, indices, out, rows};
  }

  void run(Ops& ops) const {
    ops.run(embed);
    ops.run(norm);
    ops.run(up);
    ops.run(activation);
    ops.run(gated);
    ops.run(down);
    ops.run(AllReduceParams{down.out, 1, down.rows});
    ops.run(gather);
  }

  // New tokens and a new count, as the engine writes its input buffers before a step.
  void set_batch(DeviceMemory& memory, std::int32_t size, SplitMix64& rng) const {
    std::vector<std::int32_t> tokens(kCapacity, -1);  // what is not in use must not be looked at
    std::vector<std::int32_t> order(kCapacity, -1);
    for (std::int32_t i = 0; i < size; ++i) {
      tokens[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(rng.below(50));
      order[static_cast<std::size_t>(i)] = size - 1 - i;
    }
    memory.upload(ids, std::as_bytes(std::span(tokens)));
    memory.upload(indices, std::as_bytes(std::span(order)));
    memory.upload(count, std::as_bytes(std::span(&size, 1)));
  }

  std::int32_t* ids = nullptr;
  std::int32_t* indices = nullptr;
  std::int32_t* count = nullptr;
  TensorView out;
  EmbedParams embed;
  RmsNormParams norm;
  MatmulParams up;
  GatedActivationParams activation;
  GatedMatmulParams gated;
  MatmulParams down;
  GatherRowsParams gather;
};

TEST_P(GraphTest, ReplayEqualsEagerAtEverySize) {
  SplitMix64 rng(1);
  const Chain chain(*memory_, rng);
  ASSERT_TRUE(device_->begin_capture());
  chain.run(ops());
  auto graph = device_->end_capture();
  ASSERT_TRUE(graph) << graph.error().message;
  EXPECT_GE((*graph)->ops().size(), 8U);
  const std::vector<float> blank(Chain::kCapacity * Chain::kHidden, -7.0F);
  for (const std::int32_t size : {1, 0, 24, 3, 17, 24, 2}) {
    SCOPED_TRACE("size " + std::to_string(size));
    chain.set_batch(*memory_, size, rng);
    memory_->upload(chain.out.data, std::as_bytes(std::span(blank)));
    chain.run(ops());
    const auto eager = result(chain.out);
    memory_->upload(chain.out.data, std::as_bytes(std::span(blank)));
    ASSERT_TRUE(device_->replay(**graph));
    const auto replayed = result(chain.out);
    expect_same(replayed, eager, "output");
    const auto written = static_cast<std::size_t>(size * Chain::kHidden);
    expect_same(std::span(replayed).subspan(written), std::span(blank).subspan(written),
                "rows that are not in use");
  }
}

// A list that no capture of the device gave: a copy of one, as if it had been read from a file.
TEST_P(GraphTest, AGraphMadeOfAListRunsAsTheCapturedOne) {
  SplitMix64 rng(1);
  const Chain chain(*memory_, rng);
  ASSERT_TRUE(device_->begin_capture());
  chain.run(ops());
  auto captured = device_->end_capture();
  ASSERT_TRUE(captured) << captured.error().message;
  OpList list;
  for (std::size_t i = 0; i < (*captured)->ops().size(); ++i) {
    const OpCall call = (*captured)->ops()[i];
    ASSERT_TRUE(list.append_bytes(call.op, call.params));
  }
  const auto made = device_->make_graph(list);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ((*made)->ops(), (*captured)->ops());
  const std::vector<float> blank(Chain::kCapacity * Chain::kHidden, -7.0F);
  for (const std::int32_t size : {5, 24, 1}) {
    SCOPED_TRACE("size " + std::to_string(size));
    chain.set_batch(*memory_, size, rng);
    ASSERT_TRUE(device_->replay(**captured));
    const auto expected = result(chain.out);
    memory_->upload(chain.out.data, std::as_bytes(std::span(blank)));
    ASSERT_TRUE(device_->replay(**made));
    const auto replayed = result(chain.out);
    const auto written = static_cast<std::size_t>(size * Chain::kHidden);
    expect_same(std::span(replayed).first(written), std::span(expected).first(written), "output");
  }
}

TEST_P(GraphTest, AttentionReadsLengthsAndPlanWhenItRuns) {
  SplitMix64 rng(2);
  const AttentionConfig config{
      .num_heads = 4, .num_kv_heads = 2, .head_dim = 24, .block_size = 8, .kv = DType::kBF16};
  std::vector<AttentionSequence> sequences;
  for (const std::int32_t length : {40, 3, 100, 70}) {
    sequences.push_back(random_sequence(config, length, rng));
  }
  const std::vector<AttentionRow> rows = {{&sequences[0], 39, 1},
                                          {&sequences[1], 0, 3},
                                          {&sequences[2], 80, 20},
                                          {&sequences[3], 69, 1}};
  AttentionBatch batch(*device_, *memory_, config, rows, rng);
  ASSERT_TRUE(device_->begin_capture());
  ops().run(batch.params());
  auto graph = device_->end_capture();
  ASSERT_TRUE(graph) << graph.error().message;
  for (const std::int32_t size : {4, 1, 0, 3, 4}) {
    SCOPED_TRACE("rows " + std::to_string(size));
    batch.set_rows(size);
    ops().run(batch.params());
    const auto eager = result(batch.params().out);
    ASSERT_TRUE(device_->replay(**graph));
    expect_same(result(batch.params().out), eager, "output");
  }
}

// One graph serves every step: how many tokens have adapters, which, in which slots and of which
// ranks is read when it runs.
TEST_P(GraphTest, LoraReadsSegmentsAndSlotsWhenItRuns) {
  constexpr std::int32_t kTokens = 24;
  SplitMix64 rng(3);
  const LoraShape shape{72, {40, 16}, 20, DType::kBF16, DType::kBF16};
  LoraSite site(*memory_, shape, kTokens, 4, std::size_t{1} << 18);
  ASSERT_TRUE(device_->begin_capture());
  site.run(ops());
  auto graph = device_->end_capture();
  ASSERT_TRUE(graph) << graph.error().message;
  EXPECT_EQ((*graph)->ops()[0].op, LoraShrinkParams::kOp);
  EXPECT_EQ((*graph)->ops()[1].op, LoraExpandParams::kOp);
  for (const std::uint64_t size : {5, 0, 24, 1, 17}) {
    SCOPED_TRACE("size " + std::to_string(size));
    // Other adapters each time, as slots are given to others.
    site.unload_all();
    for (std::int32_t slot = 0; slot < 4; ++slot) {
      const auto rank = [&] { return static_cast<std::int32_t>(rng.below(21)); };
      site.load(slot, random_adapter(shape, {rank(), rank()}, rng), rng);
    }
    std::vector<std::int32_t> slots(size);
    for (std::int32_t& slot : slots) slot = static_cast<std::int32_t>(rng.below(5)) - 1;
    const auto x = random_floats(rng, size * 72);
    const auto before = random_floats(rng, size * 56);
    site.set_batch(x, before, slots);
    site.run(ops());
    const auto eager = result(site.out());
    site.set_batch(x, before, slots);
    ASSERT_TRUE(device_->replay(**graph));
    expect_same(result(site.out()), eager, "output");
    // With more than 4 tokens, some have an adapter with a rank.
    if (size > 4) {
      EXPECT_NE(eager, before);
    }
  }
}

TEST_P(GraphTest, CapturesDoNotNest) {
  ASSERT_TRUE(device_->begin_capture());
  EXPECT_FALSE(device_->begin_capture());
  int word = 0;
  EXPECT_FALSE(device_->copy_to_device(memory_->take(4), &word, 4)) << "no copies in a capture";
  ASSERT_TRUE(device_->end_capture());
}

INSTANTIATE_TEST_SUITE_P(Devices, GraphTest, testing::ValuesIn(available_devices()), case_name);

}  // namespace
}  // namespace sluice::parity
