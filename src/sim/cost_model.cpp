#include "sim/cost_model.h"

#include <algorithm>
#include <cmath>

namespace sluice {
namespace {

constexpr double kTile = 128;  // rows and columns of a GEMM's tile
constexpr std::int64_t kTileRows = 128;
// Kernels of a layer besides its four GEMMs, attention and all-reduces: two norms, rotary
// positions, the write into the KV cache, the activation.
constexpr double kSmallKernels = 5;
// A sampler's passes over the logits, in FP32: scale, mask, softmax, draw.
constexpr double kSamplerPasses = 4;
constexpr double kLogitBytes = 4;

double round_up(double a, double b) { return std::ceil(a / b); }

Duration rounded(double seconds) {
  return Duration(static_cast<Duration::rep>(std::llround(seconds * 1e9)));
}

// The number of query-key pairs: query i of `count` after `context` tokens sees min(context + i +
// 1, window) keys.
double visible_pairs(double context, double count, double window) {
  const double full = count * context + count * (count + 1) / 2;
  if (window <= 0 || context + count <= window) return full;
  const double growing =
      std::max(0.0, window - context);  // the first queries, which see less than a window
  return growing * context + growing * (growing + 1) / 2 + (count - growing) * window;
}

}  // namespace

CostModel::CostModel(const Deployment& deployment)
    : deployment_(deployment),
      flops_(deployment.gpu.flops * kAchievable.matmul_flops),
      attention_flops_(deployment.gpu.flops * kAchievable.attention_flops),
      bandwidth_(deployment.gpu.bandwidth * kAchievable.bandwidth - deployment.lent_traffic) {
  const Deployment& d = deployment_;
  const ModelShape& m = d.model;
  const double heads = static_cast<double>(m.heads) / d.tp;
  const double mlp = static_cast<double>(m.mlp) / d.tp;
  layer_ops_ = {{{(heads + 2.0 * d.rank_kv_heads()) * m.head_dim, static_cast<double>(m.hidden)},
                 {static_cast<double>(m.hidden), heads * m.head_dim},
                 {(m.gated ? 2.0 : 1.0) * mlp, static_cast<double>(m.hidden)},
                 {static_cast<double>(m.hidden), mlp}}};
  head_ = {static_cast<double>(m.vocab) / d.tp, static_cast<double>(m.hidden)};
}

// Tiles run in whole waves. A library may split K in two or four to fill the last one.
double CostModel::compute_time(const Matmul& op, std::int64_t tile_rows) const {
  const double sms = deployment_.gpu.num_sms;
  const double tiles = static_cast<double>(tile_rows) * round_up(op.n, kTile);
  double waves = round_up(tiles, sms);
  for (const double split : {2.0, 4.0}) {
    waves = std::min(waves, round_up(tiles * split, sms) / split);
  }
  const double tile_time = 2 * kTile * kTile * op.k / (flops_ / sms);
  return waves * tile_time;
}

double CostModel::matmul_time(const Matmul& op, double tokens) const {
  const double bytes = kNumberBytes * (op.n * op.k + tokens * (op.n + op.k));
  const auto tile_rows = static_cast<std::int64_t>(round_up(tokens, kTile));
  return std::max(compute_time(op, tile_rows), bytes / bandwidth_) + kAchievable.kernel;
}

double CostModel::layer_matmul_time(std::int64_t tokens) {
  const std::int64_t tile_rows = (tokens + kTileRows - 1) / kTileRows;
  while (static_cast<std::int64_t>(tile_times_.size()) <= tile_rows) {
    const auto rows = static_cast<std::int64_t>(tile_times_.size());
    std::array<double, 4> times{};
    for (std::size_t i = 0; i < times.size(); ++i) times[i] = compute_time(layer_ops_[i], rows);
    tile_times_.push_back(times);
  }
  const std::array<double, 4>& compute = tile_times_[static_cast<std::size_t>(tile_rows)];
  double sum = 0;
  for (std::size_t i = 0; i < layer_ops_.size(); ++i) {
    const Matmul& op = layer_ops_[i];
    const double bytes = kNumberBytes * (op.n * op.k + static_cast<double>(tokens) * (op.n + op.k));
    sum += std::max(compute[i], bytes / bandwidth_) + kAchievable.kernel;
  }
  return sum;
}

// The time of chunks is bound by their operations or by the KV that each chunk reads, the time of
// decodes by the KV that they read.
double CostModel::attention_time(const BatchPlan& plan) const {
  const Deployment& d = deployment_;
  const std::int32_t window = d.model.window;
  const double kv_bytes = d.kv_bytes();
  const double pair_flops = 4.0 * d.model.heads / d.tp * d.model.head_dim;
  std::int64_t decode_positions = 0;
  double chunks = 0;
  for (const PlanRow& row : plan.rows) {
    if (row.query_len == 1) {
      const std::int32_t seen = row.context_len + 1;
      decode_positions += window > 0 ? std::min(seen, window) : seen;
      continue;
    }
    const double count = row.query_len;
    const double context = row.context_len;
    const double read = window > 0 ? std::min(context, static_cast<double>(window)) : context;
    chunks += std::max(visible_pairs(context, count, window) * pair_flops / attention_flops_,
                       (read + count) * kv_bytes / bandwidth_);
  }
  double time = 0;
  if (chunks > 0) time += chunks + kAchievable.kernel;
  if (decode_positions > 0) {
    time += static_cast<double>(decode_positions) * kv_bytes / bandwidth_ + kAchievable.kernel;
  }
  return time;
}

// Latency as of a tree, bytes as of a ring whose slowest link counts. NVLink or PCIe joins the
// ranks of one node, the network joins nodes.
double CostModel::all_reduce_time(double bytes) const {
  const Deployment& d = deployment_;
  if (d.tp == 1) return 0;
  const auto levels = [](double ranks) { return std::ceil(std::log2(ranks)); };
  const double in_node = std::min(d.tp, d.gpus_per_node);
  const bool nvlink = d.tp <= d.gpu.nvlink_group;
  const double hop = nvlink ? kAchievable.nvlink_hop : kAchievable.pcie_hop;
  double slowest =
      (nvlink ? d.gpu.nvlink_bandwidth : d.gpu.pcie_bandwidth) * kAchievable.link_bandwidth;
  // In the worst case all of it goes in the direction that counts. Two flows share a link equally.
  if (nvlink) slowest = std::max(slowest - d.lent_traffic, slowest / 2);
  double latency = kAchievable.collective + 2 * levels(in_node) * hop;
  if (d.tp > d.gpus_per_node) {
    const double nodes = round_up(d.tp, d.gpus_per_node);
    latency += 2 * levels(nodes) * kAchievable.network_hop;
    slowest = std::min(slowest, d.network_bandwidth * kAchievable.network_bandwidth);
  }
  return latency + 2.0 * (d.tp - 1) / d.tp * bytes / slowest;
}

LayerTime CostModel::layer_time(const BatchPlan& plan) {
  const Deployment& d = deployment_;
  const ModelShape& m = d.model;
  const auto tokens = static_cast<double>(plan.token_ids.size());
  LayerTime time;
  time.matmul = layer_matmul_time(static_cast<std::int64_t>(plan.token_ids.size()));
  time.attention = attention_time(plan);
  // Two norms read and write the residual stream and their result; rotary positions and the KV
  // write touch queries, keys and values twice; the activation reads the MLP's width.
  const double qkv = layer_ops_[0].n;
  const double inner = (m.gated ? 3.0 : 2.0) * m.mlp / d.tp;
  const double bytes = (8.0 * m.hidden + 2.0 * qkv + inner) * kNumberBytes;
  time.other = tokens * bytes / bandwidth_ + kSmallKernels * kAchievable.kernel;
  time.all_reduce = (m.parallel ? 1 : 2) * all_reduce_time(tokens * m.hidden * kNumberBytes);
  return time;
}

double CostModel::head_time(double rows) const {
  const double passes =
      kSamplerPasses * (rows * head_.n * kLogitBytes / bandwidth_ + kAchievable.kernel);
  return matmul_time(head_, rows) + passes;
}

void CostModel::stage_times(const BatchPlan& plan, std::span<Duration> stages) {
  const Deployment& d = deployment_;
  const double layer = layer_time(plan).total();
  const auto rows = static_cast<double>(plan.rows.size());
  for (std::int32_t stage = 0; stage < d.pp; ++stage) {
    const double layers = d.stage_layers(stage);
    double gpu = layers * layer;
    if (stage == d.pp - 1) gpu += head_time(static_cast<double>(plan.logit_positions.size()));
    const double busy = std::max(gpu, layers * d.host.launch_per_layer);
    stages[static_cast<std::size_t>(stage)] = rounded(busy + d.host.step + rows * d.host.per_row);
  }
}

// Each rank sends its share of the hidden states to its peer of the next stage; when that is on
// another node, they share the network.
Duration CostModel::collective_time(const BatchPlan& plan) {
  if (deployment_.tp == 1) return Duration(0);
  return from_seconds(layer_time(plan).all_reduce * deployment_.stage_layers(0));
}

Duration CostModel::send_time(const BatchPlan& plan) const {
  const Deployment& d = deployment_;
  if (d.pp == 1) return Duration(0);
  const double bytes = static_cast<double>(plan.token_ids.size()) * d.model.hidden * kNumberBytes;
  if (d.num_gpus() > d.gpus_per_node) {
    return rounded(kAchievable.network_hop +
                   bytes / (d.network_bandwidth * kAchievable.network_bandwidth));
  }
  const bool nvlink = d.num_gpus() <= d.gpu.nvlink_group;
  const double link = (nvlink ? d.gpu.nvlink_bandwidth : d.gpu.pcie_bandwidth);
  return rounded((nvlink ? kAchievable.nvlink_hop : kAchievable.pcie_hop) +
                 bytes / d.tp / (link * kAchievable.link_bandwidth));
}

}  // namespace sluice
