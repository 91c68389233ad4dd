#include "engine/step_costs.h"

#include <algorithm>

#include "tensor/dtype.h"

namespace sluice {
namespace {

constexpr double kDecodeSteps = 3;
constexpr double kFirstMargin = 1.25;

// Positions that attention sees; 0 if some layer sees all.
std::int32_t largest_window(const ModelConfig& config) {
  std::int32_t largest = 0;
  for (const LayerConfig& layer : config.layers) {
    if (layer.window == 0) return 0;
    largest = std::max(largest, layer.window);
  }
  return largest;
}

double bytes_per_element(DType dtype) {
  const ElementBlock block = block_of(dtype);
  return static_cast<double>(block.bytes) / static_cast<double>(block.elements);
}

}  // namespace

StepCosts step_costs(const ModelConfig& config, WeightDTypes dtypes, const KvLayout& kv) {
  double weights = 0;  // of the layers' matrices: products a token, and elements read
  double pair = 0;     // products of a query-key pair: scores and values
  for (const LayerConfig& layer : config.layers) {
    const double attention = 2.0 * (layer.q_width() + layer.kv_width());
    weights += config.hidden_size * (attention + 3.0 * layer.intermediate_size);
    pair += 2.0 * layer.q_width();
  }
  const double head = static_cast<double>(config.hidden_size) * config.vocab_size;
  const double bytes =
      weights * bytes_per_element(dtypes.matrices) + head * bytes_per_element(dtypes.ends);
  StepCosts costs;
  costs.pair_tokens = pair / weights;
  costs.position_reads = static_cast<double>(kv.block_bytes) / kv.block_size / bytes;
  costs.window = largest_window(config);
  return costs;
}

TimeBudget budget_by_decodes(const StepCosts& costs) {
  TimeBudget time;
  time.costs = costs;
  time.decode_steps = kDecodeSteps;
  time.margin = kFirstMargin;
  return time;
}

}  // namespace sluice
