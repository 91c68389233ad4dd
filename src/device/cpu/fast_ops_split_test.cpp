// How far the fast ops' split of a step's work goes: real ops over a real pool of 8, 32 or 64
// threads, with kernels that compute nothing and note their pieces. Counts and shares do not depend
// on how fast this machine is. docs/cpu.md has the figures.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "device/cpu/attention_plan.h"
#include "device/cpu/fast_ops.h"
#include "device/cpu/kernels/kernel_table.h"

namespace sluice {
namespace {

// One core of the machine of docs/performance.md.
constexpr double kReadBytesPerNs = 13;
constexpr double kOperationsPerNs = 3000;

// The time of each piece of the op that runs.
class Pieces {
 public:
  void add(double bytes, double operations) {
    const std::lock_guard lock(mutex_);
    ns_.push_back(std::max(bytes / kReadBytesPerNs, operations / kOperationsPerNs));
  }
  std::vector<double> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(ns_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<double> ns_;
};
Pieces noted;  // kernels are plain functions

// Pieces of attention and of products that knew what their thread does next. It does that.
std::atomic<int> known_next = 0;
std::atomic<int> known_weights = 0;

void note_order(const kernels::AttentionPiece& piece) {
  using Place = std::tuple<std::int32_t, std::int32_t, std::int32_t, std::int32_t>;
  const auto place_of = [](const kernels::AttentionPiece& p) {
    return Place(p.seq, p.first_query, p.first_head, p.first_key);
  };
  thread_local std::optional<Place> expected;
  EXPECT_EQ(place_of(piece), expected.value_or(place_of(piece)));
  expected.reset();
  if (piece.next == nullptr) return;
  expected = place_of(*piece.next);
  ++known_next;
}

void note_matmul(const kernels::MatmulPiece& p) {
  if (p.next_weight != nullptr) ++known_weights;
  const auto elements = static_cast<double>((p.col_end - p.col_begin) * p.depth);
  noted.add(2 * elements, 2 * elements * (p.row_end - p.row_begin));
}

void note_rows(std::int64_t bytes_per_row, std::int32_t begin, std::int32_t end) {
  noted.add(static_cast<double>(bytes_per_row * (end - begin)), 0);
}

// Only what Llama's ops in BF16 call.
kernels::KernelTable noting_kernels(bool tiles) {
  kernels::KernelTable table = {};
  table.matmul_bf16_bf16 = note_matmul;
  if (tiles) table.packed_matmul = [](DType) -> kernels::MatmulKernel { return note_matmul; };
  table.pack_rows = [](const TensorView& x, std::int32_t, std::int32_t begin, std::int32_t end,
                       std::uint16_t*) {
    note_rows(2 * x.dims[1] * kernels::kPackedTile, begin, end);
  };
  table.packed_from = 1;
  table.packed_cols = 2 * kernels::kPackedTile;
  table.matmul_cols = 24;
  table.lanes = 16;
  table.rms_norm = [](const RmsNormParams& p, std::int32_t begin, std::int32_t end) {
    note_rows(10 * p.out.dims[1], begin, end);
  };
  table.rope_write_kv = [](const RopeWriteKvParams& p, std::int32_t begin, std::int32_t end) {
    note_rows(8 * p.qkv.dims[1], begin, end);
  };
  table.gated_activation = [](const GatedActivationParams& p, std::int32_t begin,
                              std::int32_t end) { note_rows(5 * p.out.dims[1], begin, end); };
  table.attention = [](const AttentionParams& p, const kernels::AttentionPiece& piece) {
    note_order(piece);
    const auto keys = static_cast<double>(piece.end_key - piece.first_key) * p.head_dim;
    noted.add(4 * keys, 4 * keys * piece.num_queries * piece.num_heads);
  };
  table.add_attention_spans = [](const AttentionParams& p, const kernels::AttentionPiece& piece) {
    const std::int32_t spans = (piece.end_key - piece.first_key) / kernels::kAttentionSpan;
    const std::int32_t rows = piece.num_queries * piece.num_heads;
    noted.add(4.0 * static_cast<double>(spans * kernels::span_sums_floats(rows, p.head_dim)), 0);
  };
  return table;
}

// The time until the last thread is done, when each takes the next piece as soon as it is free.
double time_on(int threads, const std::vector<double>& pieces) {
  std::vector<double> busy(static_cast<std::size_t>(threads), 0.0);
  for (const double piece : pieces) *std::ranges::min_element(busy) += piece;
  return std::ranges::max(busy);
}

struct Shape {
  std::int64_t hidden, ffn;
  std::int32_t heads, kv_heads, head_dim;
};
constexpr Shape kSmall = {1024, 3072, 16, 8, 128};   // Qwen3-0.6B
constexpr Shape kMedium = {2048, 8192, 32, 8, 64};   // Llama-3.2-1B
constexpr Shape kLarge = {4096, 14336, 32, 8, 128};  // Llama-3.1-8B

// One layer of a step. No kernel reads memory, so tensors have no data.
class Layer {
 public:
  Layer(const Shape& shape, std::int32_t seqs, std::int32_t tokens, std::int32_t context,
        int threads, bool tiles)
      : shape_(shape),
        rows_{nullptr, seqs * tokens},
        table_(noting_kernels(tiles)),
        pool_(threads),
        ops_(pool_, table_) {
    for (std::int32_t i = 0; i <= seqs; ++i) starts_.push_back(i * tokens);
    lengths_.assign(static_cast<std::size_t>(seqs), context + tokens);
  }

  void run() {
    const std::int64_t wide = std::int64_t{shape_.heads} * shape_.head_dim;
    const std::int64_t kv = std::int64_t{shape_.kv_heads} * shape_.head_dim;
    norm();
    product(shape_.hidden, {wide, kv, kv});
    RopeWriteKvParams rope;
    rope.qkv = matrix(wide + 2 * kv, DType::kF32);
    rope.kv.dtype = DType::kBF16;
    rope.rotary_dim = rope.head_dim = shape_.head_dim;
    rope.rows = rows_;
    do_op(rope);
    attention(wide);
    product(wide, {shape_.hidden});
    norm();
    GatedMatmulParams gated;
    gated.x = matrix(shape_.hidden, DType::kBF16);
    gated.gate.weight = gated.up.weight = weight(shape_.ffn, shape_.hidden);
    gated.scratch = matrix(2 * shape_.ffn, DType::kF32);
    gated.out = matrix(shape_.ffn, DType::kBF16);
    gated.rows = rows_;
    do_op(gated);
    product(shape_.ffn, {shape_.hidden});
  }

  // How many times as fast as on one thread, without what handing out costs.
  double speedup() const { return alone_ns_ / shared_ns_; }
  std::uint32_t barriers() const { return pool_.jobs(); }
  double alone_ns() const { return alone_ns_; }

 private:
  TensorView matrix(std::int64_t cols, DType dtype) const {
    return matrix_view(nullptr, dtype, rows_.capacity, cols);
  }
  static TensorView weight(std::int64_t out, std::int64_t in) {
    return matrix_view(nullptr, DType::kBF16, out, in);
  }

  template <class Params>
  void do_op(const Params& params) {
    const std::uint32_t before = pool_.jobs();
    ops_.run(params);
    const std::vector<double> pieces = noted.take();
    const int threads = pool_.jobs() == before ? 1 : pool_.size();
    alone_ns_ += time_on(1, pieces);
    shared_ns_ += time_on(threads, pieces);
  }

  void norm() {
    RmsNormParams p;
    p.residual = matrix(shape_.hidden, DType::kF32);
    p.weight = matrix_view(nullptr, DType::kBF16, 1, shape_.hidden);
    p.out = matrix(shape_.hidden, DType::kBF16);
    p.rows = rows_;
    do_op(p);
  }

  void product(std::int64_t in, const std::vector<std::int64_t>& widths) {
    MatmulParams p;
    p.x = matrix(in, DType::kBF16);
    std::int64_t all = 0;
    for (const std::int64_t width : widths) {
      p.segments[p.num_segments++].weight = weight(width, in);
      all += width;
    }
    p.out = matrix(all, DType::kF32);
    p.rows = rows_;
    do_op(p);
  }

  void attention(std::int64_t wide) {
    const auto seqs = static_cast<std::int32_t>(lengths_.size());
    AttentionPlanParams plan;
    plan.limits = {.max_tokens = rows_.capacity,
                   .max_seqs = seqs,
                   .max_positions = lengths_.front(),
                   .num_heads = shape_.heads,
                   .num_kv_heads = shape_.kv_heads,
                   .head_dim = shape_.head_dim};
    plan.cu_seqlens_q = starts_.data();
    plan.seq_lens = lengths_.data();
    plan.num_seqs = seqs;
    const std::int64_t bytes = attention_plan_size(plan.limits).device_bytes;
    std::vector<std::int64_t> memory(static_cast<std::size_t>(bytes / 8 + 1));
    plan.plan = memory.data();
    ops_.plan_attention(plan);
    AttentionParams p;
    p.q = matrix(wide, DType::kF32);
    p.kv.dtype = DType::kBF16;
    p.seq_lens = lengths_.data();
    p.plan = memory.data();
    p.num_heads = shape_.heads;
    p.num_kv_heads = shape_.kv_heads;
    p.head_dim = shape_.head_dim;
    p.out = matrix(wide, DType::kBF16);
    p.seqs = {nullptr, seqs};
    do_op(p);
  }

  Shape shape_;
  RowCount rows_;
  std::vector<std::int32_t> starts_;
  std::vector<std::int32_t> lengths_;
  kernels::KernelTable table_;
  ThreadPool pool_;
  FastOps ops_;
  double alone_ns_ = 0;
  double shared_ns_ = 0;
};

struct Case {
  const char* name;
  Shape shape;
  std::int32_t seqs, tokens, context;
  bool tiles;
  double least[4];  // speedup on 2, 8, 32 and 64 threads
};
void PrintTo(const Case& c, std::ostream* os) { *os << c.name; }

class WorkSplit : public testing::TestWithParam<Case> {};

TEST_P(WorkSplit, KeepsManyThreadsBusy) {
  const Case& c = GetParam();
  constexpr int kThreads[] = {2, 8, 32, 64};
  for (std::size_t i = 0; i < std::size(kThreads); ++i) {
    const int threads = kThreads[i];
    Layer layer(c.shape, c.seqs, c.tokens, c.context, threads, c.tiles);
    layer.run();
    const std::string name = "threads_" + std::to_string(threads);
    RecordProperty(name + "_barriers", std::to_string(layer.barriers()));
    RecordProperty(name + "_speedup", std::to_string(layer.speedup()));
    RecordProperty("alone_us", std::to_string(layer.alone_ns() / 1000));
    EXPECT_GE(layer.speedup(), c.least[i]) << threads << " threads";
    EXPECT_LE(layer.speedup(), threads + 1e-6);  // the sums of two threads are rounded apart
    // Decodes: each op of the eight shares its work at most once, and packing once more. A prompt's
    // products run in parts of at least 256 rows.
    EXPECT_GE(layer.barriers(), 4U);
    EXPECT_LE(layer.barriers(), c.tokens == 1 ? 12U : 24U);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Steps, WorkSplit,
    testing::Values(Case{"decode_small", kSmall, 1, 1, 512, true, {1.9, 7, 20, 29}},
                    Case{"decode_small_rows", kSmall, 1, 1, 512, false, {1.9, 7, 20, 32}},
                    Case{"decode_small_long", kSmall, 1, 1, 32767, true, {1.9, 7.4, 27, 50}},
                    Case{"decode_16_small", kSmall, 16, 1, 512, true, {1.9, 7, 23, 38}},
                    Case{"prefill_small", kSmall, 1, 512, 0, true, {1.9, 7.2, 26, 42}},
                    Case{"decode_large", kLarge, 1, 1, 512, true, {1.9, 7.2, 27, 46}},
                    Case{"decode_large_rows", kLarge, 1, 1, 512, false, {1.9, 7.2, 27, 50}},
                    Case{"decode_large_long", kLarge, 1, 1, 32767, true, {1.9, 7.4, 28, 49}},
                    Case{"decode_16_large", kLarge, 16, 1, 512, true, {1.9, 7.2, 27, 47}},
                    Case{"decode_16_medium", kMedium, 16, 1, 512, true, {1.9, 7.2, 24, 42}},
                    Case{"prefill_medium", kMedium, 1, 512, 0, true, {1.9, 7.4, 28, 50}},
                    Case{"prefill_large", kLarge, 1, 512, 0, true, {1.9, 7.4, 28, 52}}),
    [](const auto& c) { return std::string(c.param.name); });

// A rest of q that came before all of k and v would leave one thread alone with the last of them.
TEST(WorkOrder, ShortPiecesOfAProductComeLast) {
  const kernels::KernelTable table = noting_kernels(true);
  ThreadPool pool(1);
  FastOps ops(pool, table);
  MatmulParams p;
  p.x = matrix_view(nullptr, DType::kBF16, 256, 2048);
  for (const std::int64_t width : {2000, 512, 700}) {
    p.segments[p.num_segments++].weight = matrix_view(nullptr, DType::kBF16, width, 2048);
  }
  p.out = matrix_view(nullptr, DType::kF32, 256, 2000 + 512 + 700);
  p.rows = RowCount{nullptr, 256};
  noted.take();
  ops.run(p);
  std::vector<double> products = noted.take();
  std::erase_if(products, [&](double ns) { return ns < products.back(); });  // packing
  ASSERT_EQ(products.size(), 7U);
  EXPECT_TRUE(std::ranges::is_sorted(products, std::greater())) << testing::PrintToString(products);
}

// Not the last two of each of several threads: others may be there for them sooner.
TEST(WorkOrder, PiecesOfAttentionKnowWhatTheirThreadDoesNext) {
  known_next = 0;
  Layer(kSmall, 16, 1, 512, 1, true).run();
  EXPECT_EQ(known_next, 16 * kSmall.kv_heads - 1);
  known_next = 0;
  Layer(kSmall, 16, 1, 512, 8, true).run();
  EXPECT_LE(known_next, 16 * kSmall.kv_heads - 2 * 8);
}

TEST(WorkOrder, PiecesOfProductsKnowTheWeightThatComesNext) {
  for (const bool fetches : {false, true}) {
    kernels::KernelTable table = noting_kernels(true);
    table.packed_fetches_next = fetches;
    ThreadPool pool(1);
    FastOps ops(pool, table);
    const TensorView weight = matrix_view(&known_weights, DType::kBF16, 1024, 64);  // not read
    MatmulParams p;
    p.x = matrix_view(nullptr, DType::kBF16, 128, 64);
    p.segments[p.num_segments++].weight = weight;
    p.out = matrix_view(nullptr, DType::kF32, 128, 1024);
    p.rows = RowCount{nullptr, 128};
    known_weights = 0;
    ops.run(p);
    EXPECT_EQ(known_weights, fetches ? 3 : 0);  // of four pieces
    GatedMatmulParams gated;
    gated.x = p.x;
    gated.gate.weight = gated.up.weight = weight;
    gated.scratch = matrix_view(nullptr, DType::kF32, 128, 2048);
    gated.out = matrix_view(nullptr, DType::kBF16, 128, 1024);
    gated.rows = p.rows;
    known_weights = 0;
    ops.run(gated);
    EXPECT_EQ(known_weights, fetches ? 2 * 7 : 0);  // of eight pieces of 128 columns each
  }
  noted.take();
}

}  // namespace
}  // namespace sluice
