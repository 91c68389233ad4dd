// ModelShape: the properties of published models on which a step's time and memory depend.
// Constants from their config.json; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.h"

namespace sluice {

struct ModelShape {
  std::string_view name;
  std::int32_t layers = 0;
  std::int32_t hidden = 0;
  std::int32_t heads = 0;
  std::int32_t kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t mlp = 0;  // width
  std::int32_t vocab = 0;
  bool gated = true;             // the MLP has a gate beside its up projection
  bool parallel = false;         // attention and MLP share one all-reduce (Falcon)
  bool tied_embeddings = false;  // the head is the embedding
  std::int32_t window = 0;       // number of last positions that a query sees; 0: all

  // Parameters of matrices; norms do not count.
  double layer_parameters() const;
  double embedding_parameters() const;  // one of them
  double parameters() const;
  // The context at which attention costs a token as many operations as all matrices.
  double even_context() const;
  // Parameters of a LoRA adapter of this rank on all matrices of the layers.
  double adapter_parameters(std::int32_t rank) const;
};

std::span<const ModelShape> model_shapes();
// kInvalidArgument listing the known names.
Result<ModelShape> find_model_shape(std::string_view name);

}  // namespace sluice
