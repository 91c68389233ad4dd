// Weights of a model without weight files: small random values, for tests of speed and load.
// One buffer of values per dtype is drawn once and copied repeatedly, so filling many gigabytes
// takes about as long as copying them. The values of a tensor depend on its name and dtype alone;
// no two rows of a matrix are equal. Owner: the engine's loader. One thread.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "model/families.h"
#include "model/model_config.h"
#include "tensor/dtype.h"

namespace sluice {

// The plan that resolve_weights() would make for a checkpoint of `dtype` with every weight that
// config.json requires; its tensors are in no file. REQUIRES: dtype is F32, F16 or BF16.
ModelWeightsPlan plan_dummy_weights(const ModelConfig& config, DType dtype);

// Whether the weight is a dummy.
inline bool is_dummy(const WeightSource& source) { return source.tensor.file < 0; }

class DummyValues {
 public:
  // The scale of codes: the largest value divided by the largest code.
  static constexpr float scale_of(DType codes) {
    return 0.035F / (codes == DType::kI8 ? 127.0F : 448.0F);
  }

  // Calls `take` with the values of a tensor, in order, piece by piece. A piece is valid as long as
  // this object. `bytes`: of the tensor.
  void for_each_piece(std::string_view tensor, DType dtype, std::size_t bytes,
                      FunctionRef<void(std::span<const std::byte>)> take);

 private:
  const std::vector<std::byte>& values_of(DType dtype);

  std::map<DType, std::vector<std::byte>> values_;
};

}  // namespace sluice
