#include "sim/deployment.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace sluice {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

double weight_bytes(const Deployment& d, std::int32_t stage) {
  double parameters = d.stage_layers(stage) * d.model.layer_parameters();
  if (stage == 0) parameters += d.model.embedding_parameters();
  const bool has_head = stage == d.pp - 1;
  if (has_head && (!d.model.tied_embeddings || stage > 0)) {
    parameters += d.model.embedding_parameters();
  }
  return parameters * kNumberBytes / d.tp;
}

// A layer's buffers hold at the same time: the residual stream, a normalised copy and two results
// of the hidden width, the queries, keys and values, and the MLP's inner results.
double activation_bytes_per_token(const Deployment& d) {
  const ModelShape& m = d.model;
  const double qkv = (static_cast<double>(m.heads) / d.tp + 2.0 * d.rank_kv_heads()) * m.head_dim;
  const double inner = (m.gated ? 3.0 : 2.0) * m.mlp / d.tp;
  return (4.0 * m.hidden + qkv + inner) * kNumberBytes;
}

}  // namespace

Status check_deployment(const Deployment& d) {
  const ModelShape& m = d.model;
  if (d.tp < 1 || d.pp < 1) return invalid_argument("tp and pp must be at least 1");
  if (m.heads % d.tp != 0 || m.mlp % d.tp != 0) {
    return invalid_argument(
        fmt::format("tp {} does not divide the {} heads and the MLP width {} of {}", d.tp, m.heads,
                    m.mlp, m.name));
  }
  if (std::max(m.kv_heads, d.tp) % std::min(m.kv_heads, d.tp) != 0) {
    return invalid_argument(fmt::format("tp {} and the {} KV heads of {} do not divide each other",
                                        d.tp, m.kv_heads, m.name));
  }
  if (d.pp > m.layers) {
    return invalid_argument(
        fmt::format("pp {} is more than the {} layers of {}", d.pp, m.layers, m.name));
  }
  const double link = d.gpu.nvlink_bandwidth * kAchievable.link_bandwidth;
  if (d.lent_traffic < 0 || (d.lent_traffic > 0 && d.lent_traffic >= link)) {
    return invalid_argument(fmt::format(
        "traffic of {:.1f} GB/s from and to lent memory must be below the {:.1f} GB/s of {}'s "
        "NVLink in one direction",
        d.lent_traffic / 1e9, link / 1e9, d.gpu.name));
  }
  return {};
}

Result<MemoryPlan> plan_memory(const Deployment& d, std::int64_t max_step_tokens,
                               std::int32_t context, std::int32_t block_size) {
  RETURN_IF_ERROR(check_deployment(d));
  MemoryPlan plan;
  plan.usable = d.gpu.memory_bytes * kAchievable.usable_memory;
  plan.activations = activation_bytes_per_token(d) * static_cast<double>(max_step_tokens);
  plan.kv_per_token = d.stage_layers(0) * d.kv_bytes();
  for (std::int32_t stage = 0; stage < d.pp; ++stage) {
    plan.weights = std::max(plan.weights, weight_bytes(d, stage));
  }
  plan.kv = plan.usable - plan.weights - plan.activations;
  const std::int32_t seen =
      d.model.window > 0 ? std::min(context, d.model.window + block_size) : context;
  const double block_bytes = plan.kv_per_token * block_size;
  const double needed = std::ceil(static_cast<double>(seen) / block_size + 2) * block_bytes;
  if (plan.kv < needed) {
    return resource_exhausted(fmt::format(
        "{} with tp {} and pp {} does not fit {}: a GPU needs {:.1f} GiB for weights, {:.1f} GiB "
        "for activations of a step of {} tokens and {:.1f} GiB for the KV of one context, and has "
        "{:.1f} GiB to use: {:.1f} GiB are missing; raise --tp or --pp",
        d.model.name, d.tp, d.pp, d.gpu.name, plan.weights / kGiB, plan.activations / kGiB,
        max_step_tokens, needed / kGiB, plan.usable / kGiB, (needed - plan.kv) / kGiB));
  }
  plan.num_blocks = static_cast<std::int32_t>(std::min(plan.kv / block_bytes, 1e8)) + 1;
  return plan;
}

}  // namespace sluice
