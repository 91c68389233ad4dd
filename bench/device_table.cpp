#include "bench/device_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <numeric>
#include <vector>

#include "base/rng.h"
#include "bench/bench_device.h"
#include "bench/lora_table.h"
#include "device/device.h"

namespace sluice::bench {
namespace {

constexpr std::int64_t kColdBytes = std::int64_t{512} << 20;  // ten times an H200's L2 cache

struct Table {
  double copy_rate = 0;     // bytes a second
  double product_rate = 0;  // operations a second

  void row(const std::string& what, double seconds, double bytes, double flops) const {
    std::string of_copy = "-";
    std::string of_product = "-";
    if (copy_rate > 0) of_copy = fmt::format("{:.0f} %", 100 * bytes / seconds / copy_rate);
    if (product_rate > 0 && flops > 0) {
      of_product = fmt::format("{:.0f} %", 100 * flops / seconds / product_rate);
    }
    fmt::print("| {:<56} | {:>9.1f} | {:>7.0f} | {:>7.1f} | {:>7} | {:>10} |\n", what,
               seconds * 1e6, bytes / seconds * 1e-9, flops / seconds * 1e-12, of_copy, of_product);
    std::fflush(stdout);
  }
};

double measure_copy(Device& device, std::int64_t bytes) {
  Memory memory(device, 2 * bytes);
  CopyBlocksParams p;
  p.kv_base = memory.take_numbers(2 * bytes);
  p.block_bytes = bytes;
  p.pairs = memory.put<std::int32_t>({0, 1});
  p.rows = {nullptr, 1};
  return time_ops(device, 4, [&](int) { device.ops().run(p); });
}

struct Product {
  std::string name;
  std::vector<std::int64_t> widths;  // of weights side by side
  std::int64_t depth;
  bool gated = false;  // two weights, and the activation
  DType weights = DType::kBF16;

  std::int64_t width() const { return std::accumulate(widths.begin(), widths.end(), 0LL); }
  std::int64_t weight_bytes() const {
    return width() * depth * static_cast<std::int64_t>(size_of(weights));
  }
};

// A weight, in FP8 with the scales of published checkpoints.
MatmulSegment make_weight(Memory& memory, DType dtype, std::int64_t rows, std::int64_t cols) {
  constexpr std::int32_t kBlock = 128;
  MatmulSegment segment;
  segment.weight = memory.matrix(dtype, rows, cols);
  if (dtype != DType::kF8E4M3) return segment;
  const std::int64_t across = (cols + kBlock - 1) / kBlock;
  const std::vector<float> scales(static_cast<std::size_t>((rows + kBlock - 1) / kBlock * across),
                                  0.01F);
  segment.scales = {memory.put(scales), kBlock, kBlock, across};
  return segment;
}

double measure_product(Device& device, const Product& product, std::int64_t rows) {
  const std::int64_t width = product.width();
  const std::int64_t weight_bytes = product.weight_bytes();
  // As in a model: each weight was last used long ago.
  const std::int64_t copies = std::clamp<std::int64_t>(kColdBytes / weight_bytes, 1, 16);
  const DType input = device.traits().matmul_input_dtype(product.weights, DType::kBF16);
  Memory memory(device, copies * (weight_bytes + weight_bytes / 1024 + 4096) +
                            rows * (4 * product.depth + 5 * width));
  MatmulParams p;
  p.x = memory.matrix(input, rows, product.depth);
  p.out = memory.matrix(DType::kF32, rows, width);
  p.rows = {nullptr, static_cast<std::int32_t>(rows)};
  std::vector<MatmulParams> ops(static_cast<std::size_t>(copies), p);
  for (MatmulParams& op : ops) {
    for (const std::int64_t n : product.widths) {
      op.segments[op.num_segments++] = make_weight(memory, product.weights, n, product.depth);
    }
  }
  const TensorView activated = memory.matrix(DType::kBF16, rows, product.gated ? width / 2 : 0);
  return time_ops(device, static_cast<int>(copies), [&](int i) {
    const MatmulParams& op = ops[static_cast<std::size_t>(i)];
    if (!product.gated) return device.ops().run(op);
    device.ops().run(GatedMatmulParams{op.x, op.segments[0], op.segments[1], op.out, activated,
                                       GatedActivation::kSilu, op.rows});
  });
}

// ---- Attention

struct Heads {
  std::int32_t queries = 32;
  std::int32_t kv = 8;
  std::int32_t dim = 128;
};

struct RowsOfStep {
  std::int32_t count;
  std::int32_t context;
  std::int32_t query;
};

// A step's attention in each of some layers, whose caches lie as one of two layouts has them.
class AttentionRun {
 public:
  static constexpr std::int32_t kLayers = 8;
  static constexpr std::int32_t kBlockSize = 16;

  AttentionRun(Device& device, const Heads& heads, const std::vector<RowsOfStep>& step,
               bool block_major)
      : device_(device), heads_(heads) {
    for (const RowsOfStep& rows : step) {
      for (std::int32_t i = 0; i < rows.count; ++i) add_row(rows);
    }
    const std::int32_t rows = static_cast<std::int32_t>(lengths_.size());
    const std::int32_t longest = *std::max_element(lengths_.begin(), lengths_.end());
    const std::int32_t width = (longest + kBlockSize - 1) / kBlockSize;
    const std::vector<std::int32_t> tables = make_tables(width);
    const std::int64_t half = std::int64_t{heads.kv} * kBlockSize * heads.dim;  // elements
    const std::int64_t layer_bytes = 4 * half;                                  // K and V
    const std::int32_t tokens = first_tokens_.back();
    const std::int64_t q_width = std::int64_t{heads.queries} * heads.dim;
    const AttentionPlanLimits limits = {
        tokens, rows, width * kBlockSize, heads.queries, heads.kv, heads.dim, 0};
    const AttentionPlanSize plan_size = device.ops().attention_plan_size(limits);
    memory_ = std::make_unique<Memory>(
        device, blocks_ * layer_bytes * kLayers + tokens * q_width * 6 + plan_size.device_bytes +
                    static_cast<std::int64_t>(tables.size()) * 4 + (std::int64_t{1} << 20));
    std::byte* cache = memory_->take_numbers(blocks_ * layer_bytes * kLayers);
    AttentionParams p;
    p.q = memory_->matrix(DType::kF32, tokens, q_width);
    p.out = memory_->matrix(DType::kBF16, tokens, q_width);
    p.cu_seqlens_q = memory_->put(first_tokens_);
    p.seq_lens = memory_->put(lengths_);
    p.block_tables = memory_->put(tables);
    std::vector<std::int32_t> slots(lengths_.size());
    std::iota(slots.begin(), slots.end(), 0);
    p.row_slots = memory_->put(slots);
    p.table_stride = width;
    p.num_heads = heads.queries;
    p.num_kv_heads = heads.kv;
    p.head_dim = heads.dim;
    p.scale = 1.0F / std::sqrt(static_cast<float>(heads.dim));
    p.seqs = {nullptr, rows};
    std::vector<std::byte> plan(static_cast<std::size_t>(plan_size.plan_bytes));
    const auto used = static_cast<std::size_t>(device.ops().plan_attention(
        {limits, first_tokens_.data(), lengths_.data(), rows, plan.data()}));
    p.plan = memory_->take(plan_size.device_bytes);
    must(device.copy_to_device(p.plan, plan.data(), used));
    must(device.synchronize());
    const std::int64_t layer_stride = block_major ? layer_bytes : layer_bytes * blocks_;
    for (std::int32_t layer = 0; layer < kLayers; ++layer) {
      std::byte* base = cache + layer * layer_stride;
      p.kv = {base,
              base + 2 * half,
              DType::kBF16,
              kBlockSize,
              block_major ? 2 * half * kLayers : 2 * half,
              std::int64_t{kBlockSize} * heads.dim,
              heads.dim};
      layers_.push_back(p);
    }
  }

  double seconds() {
    return time_ops(device_, kLayers,
                    [&](int i) { device_.ops().run(layers_[static_cast<std::size_t>(i)]); });
  }
  double bytes() const { return 4.0 * heads_.kv * heads_.dim * positions_; }
  double flops() const { return 4.0 * heads_.queries * heads_.dim * seen_; }

 private:
  void add_row(const RowsOfStep& rows) {
    first_tokens_.push_back(first_tokens_.back() + rows.query);
    lengths_.push_back(rows.context + rows.query);
    positions_ += rows.context + rows.query;
    seen_ += rows.query * (rows.context + 0.5 * (rows.query + 1));
  }
  // Blocks in no order, as after some hours of service.
  std::vector<std::int32_t> make_tables(std::int32_t width) {
    for (const std::int32_t length : lengths_) blocks_ += (length + kBlockSize - 1) / kBlockSize;
    std::vector<std::int32_t> ids(static_cast<std::size_t>(blocks_));
    std::iota(ids.begin(), ids.end(), 0);
    SplitMix64 rng(2);
    for (std::size_t i = ids.size() - 1; i > 0; --i) std::swap(ids[i], ids[rng.below(i + 1)]);
    std::vector<std::int32_t> tables(lengths_.size() * static_cast<std::size_t>(width), 0);
    auto next = ids.begin();
    for (std::size_t row = 0; row < lengths_.size(); ++row) {
      const std::int32_t count = (lengths_[row] + kBlockSize - 1) / kBlockSize;
      std::copy_n(next, count, tables.begin() + static_cast<std::ptrdiff_t>(row) * width);
      next += count;
    }
    return tables;
  }

  Device& device_;
  Heads heads_;
  std::vector<std::int32_t> first_tokens_ = {0};
  std::vector<std::int32_t> lengths_;
  std::int64_t blocks_ = 0;
  double positions_ = 0;
  double seen_ = 0;
  std::unique_ptr<Memory> memory_;
  std::vector<AttentionParams> layers_;
};

struct Step {
  std::string name;
  std::vector<RowsOfStep> rows;
};

std::vector<Step> steps_of_a_server(std::int32_t by) {
  const auto row = [by](std::int32_t count, std::int32_t context, std::int32_t query) {
    return RowsOfStep{count, context / by, std::max(1, query / by)};
  };
  return {{"decode 1 x 1k", {row(1, 1023, 1)}},
          {"decode 1 x 8k", {row(1, 8191, 1)}},
          {"decode 1 x 32k", {row(1, 32767, 1)}},
          {"decode 1 x 128k", {row(1, 131071, 1)}},
          {"decode 16 x 1k", {row(16, 1023, 1)}},
          {"decode 64 x 1k", {row(64, 1023, 1)}},
          {"decode 64 x 8k", {row(64, 8191, 1)}},
          {"decode 256 x 1k", {row(256, 1023, 1)}},
          {"decode 63 x 500 and 1 x 64k", {row(63, 499, 1), row(1, 65535, 1)}},
          {"prefill 512", {row(1, 0, 512)}},
          {"prefill 2048", {row(1, 0, 2048)}},
          {"prefill 512 after 8k", {row(1, 8192, 512)}},
          {"prefill 512 after 32k", {row(1, 32768, 512)}},
          {"decode 64 x 1k, prefill 448 after 2k", {row(64, 1023, 1), row(1, 2048, 448)}}};
}

void print_attention(Device& device, const Table& table, std::int32_t by) {
  const std::pair<const char*, Heads> models[] = {{"32/8 heads of 128", {}},
                                                  {"32/8 heads of 64", {32, 8, 64}},
                                                  {"16/8 heads of 256", {16, 8, 256}}};
  for (const auto& [name, heads] : models) {
    for (const Step& step : steps_of_a_server(by)) {
      for (const bool block_major : {true, false}) {
        // The layouts are told apart where it is asked for most.
        if (!block_major && heads.dim != 128) continue;
        AttentionRun run(device, heads, step.rows, block_major);
        table.row(fmt::format("{}, {}{}", step.name, heads.dim, block_major ? "" : ", layer-major"),
                  run.seconds(), run.bytes(), run.flops());
      }
    }
  }
}

void print_products(Device& device, Table& table, std::int64_t by) {
  const Product products[] = {{"qkv", {4096 / by, 1024 / by, 1024 / by}, 4096 / by},
                              {"o", {4096 / by}, 4096 / by},
                              {"gate_up, activated", {14336 / by, 14336 / by}, 4096 / by, true},
                              {"down", {4096 / by}, 14336 / by},
                              {"lm_head", {128256 / by}, 4096 / by}};
  const auto flops = [](const Product& p, std::int64_t rows) {
    return 2.0 * static_cast<double>(p.width() * p.depth * rows);
  };
  const auto measure = [&](const Product& p, std::int64_t rows, const char* kind) {
    table.row(fmt::format("{}{}, {} rows", p.name, kind, rows), measure_product(device, p, rows),
              static_cast<double>(p.weight_bytes()), flops(p, rows));
  };
  const Product largest = {"ceiling", {8192 / by}, 8192 / by};
  const double seconds = measure_product(device, largest, 8192 / by);
  table.product_rate = flops(largest, 8192 / by) / seconds;
  table.row("product of 8192 x 8192 x 8192", seconds, 0, flops(largest, 8192 / by));
  for (const Product& product : products) {
    for (const std::int64_t rows : {1, 16, 64, 256, 512, 2048}) {
      if (product.name == "lm_head" && rows > 256) continue;
      measure(product, rows, "");
    }
  }
  if (!device.traits().no_fp8.empty()) return;
  for (Product product : products) {
    if (product.name == "lm_head") continue;  // never in FP8
    product.weights = DType::kF8E4M3;
    for (const std::int64_t rows : {1, 16, 64, 2048}) measure(product, rows, " in FP8");
  }
}

}  // namespace

int print_device_table(const std::string& name, bool small) {
  auto device = open_device(name);
  if (!device) {
    fmt::print(stderr, "ops_bench: {}\n", device.error().message);
    return 1;
  }
  fmt::print("{}: {}{}\n\n", (*device)->traits().name, (*device)->traits().description,
             small ? "; every size a 16th of what it says" : "");
  fmt::print("| {:<56} | {:>9} | {:>7} | {:>7} | {:>7} | {:>10} |\n", "op", "us", "GB/s", "TFLOP/s",
             "of copy", "of product");
  fmt::print("|{:-<58}|{:-<11}|{:-<9}|{:-<9}|{:-<9}|{:-<12}|\n", "", "", "", "", "", "");
  Table table;
  const std::int64_t bytes = (std::int64_t{1} << 30) / (small ? 16 : 1);
  const double seconds = measure_copy(**device, bytes);
  table.copy_rate = 2.0 * static_cast<double>(bytes) / seconds;
  table.row("copy, read and written", seconds, 2.0 * static_cast<double>(bytes), 0);
  print_products(**device, table, small ? 16 : 1);
  print_attention(**device, table, small ? 16 : 1);
  print_lora(**device, small);
  return 0;
}

}  // namespace sluice::bench
