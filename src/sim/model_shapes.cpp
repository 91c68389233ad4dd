#include "sim/model_shapes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/text.h"

namespace sluice {
namespace {

constexpr std::array kModels = {
    ModelShape{.name = "mistral-7b",
               .layers = 32,
               .hidden = 4096,
               .heads = 32,
               .kv_heads = 8,
               .head_dim = 128,
               .mlp = 14336,
               .vocab = 32000,
               .window = 4096},
    ModelShape{.name = "llama-3-8b",
               .layers = 32,
               .hidden = 4096,
               .heads = 32,
               .kv_heads = 8,
               .head_dim = 128,
               .mlp = 14336,
               .vocab = 128256},
    ModelShape{.name = "llama-3-70b",
               .layers = 80,
               .hidden = 8192,
               .heads = 64,
               .kv_heads = 8,
               .head_dim = 128,
               .mlp = 28672,
               .vocab = 128256},
    ModelShape{.name = "opt-30b",
               .layers = 48,
               .hidden = 7168,
               .heads = 56,
               .kv_heads = 56,
               .head_dim = 128,
               .mlp = 28672,
               .vocab = 50272,
               .gated = false,
               .tied_embeddings = true},
    ModelShape{.name = "yi-34b",
               .layers = 60,
               .hidden = 7168,
               .heads = 56,
               .kv_heads = 8,
               .head_dim = 128,
               .mlp = 20480,
               .vocab = 64000},
    // As config.json of openlm-research/open_llama_7b has it.
    ModelShape{.name = "llama-7b",
               .layers = 32,
               .hidden = 4096,
               .heads = 32,
               .kv_heads = 32,
               .head_dim = 128,
               .mlp = 11008,
               .vocab = 32000},
    // As config.json of Qwen/Qwen1.5-4B has it.
    ModelShape{.name = "qwen1.5-4b",
               .layers = 40,
               .hidden = 2560,
               .heads = 20,
               .kv_heads = 20,
               .head_dim = 128,
               .mlp = 6912,
               .vocab = 151936},
    ModelShape{.name = "llama-2-70b",
               .layers = 80,
               .hidden = 8192,
               .heads = 64,
               .kv_heads = 8,
               .head_dim = 128,
               .mlp = 28672,
               .vocab = 32000},
    ModelShape{.name = "falcon-180b",
               .layers = 80,
               .hidden = 14848,
               .heads = 232,
               .kv_heads = 8,
               .head_dim = 64,
               .mlp = 59392,
               .vocab = 65024,
               .gated = false,
               .parallel = true,
               .tied_embeddings = true},
};

}  // namespace

double ModelShape::layer_parameters() const {
  const double h = hidden;
  const double qkv = h * (heads + 2.0 * kv_heads) * head_dim;
  const double out = h * heads * head_dim;
  return qkv + out + (gated ? 3.0 : 2.0) * h * mlp;
}

// A matrix of m x n has a pair of m x rank and rank x n.
double ModelShape::adapter_parameters(std::int32_t rank) const {
  const double h = hidden;
  const double q = static_cast<double>(heads) * head_dim;
  const double kv = static_cast<double>(kv_heads) * head_dim;
  const double attention = 2 * (h + q) + 2 * (h + kv);
  const double mlp_sides = (gated ? 3.0 : 2.0) * (h + mlp);
  return layers * rank * (attention + mlp_sides);
}

double ModelShape::embedding_parameters() const { return static_cast<double>(vocab) * hidden; }

double ModelShape::parameters() const {
  return layers * layer_parameters() + (tied_embeddings ? 1.0 : 2.0) * embedding_parameters();
}

// 2 operations for each parameter, 4 for each position and column of the queries.
double ModelShape::even_context() const { return layer_parameters() / (2.0 * heads * head_dim); }

std::span<const ModelShape> model_shapes() { return kModels; }

Result<ModelShape> find_model_shape(std::string_view name) {
  const auto found = std::find_if(kModels.begin(), kModels.end(),
                                  [&](const ModelShape& m) { return m.name == name; });
  if (found != kModels.end()) return *found;
  std::vector<std::string_view> names;
  for (const ModelShape& m : kModels) names.push_back(m.name);
  return invalid_argument(
      fmt::format("model '{}' is unknown; known are {}", name, join(names, ", ")));
}

}  // namespace sluice
