// Weights in the arena. Planning decides for each weight whether it is used in place in its mapped
// file (the normal case) or copied and converted: when another dtype is wanted, the device maps no
// files, or the file aligns the weight badly. Loading then maps and copies. No weight is held
// twice. If the device maps no files, the norms and biases of layers become F32, which is exact.
// Dummy weights (dummy_weights.h) are copied from generated values.
//
// If FP8 is wanted, the matrices of layers are quantized while they are copied (fp8_weights.h). If
// another dtype is wanted, matrices stored in FP8 are expanded. Scales are copied, in F32, to the
// place after their matrix.
//
// Weights region: [ copied weights and scales, one named buffer each | mapped files, whole ]
//
// Owner: the engine's loader; the views that it gets point into the arena and are valid as long as
// the arena. Threads: the engine's thread; conversion splits over the pool.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "device/arena.h"
#include "device/device.h"
#include "device/op_params.h"
#include "device/upload.h"
#include "model/dummy_weights.h"
#include "model/families.h"
#include "model/fp8_weights.h"
#include "tensor/tensor_view.h"

namespace sluice {

// Views are empty where the model has no such weight.
struct LayerWeights {
  TensorView input_norm;  // [hidden]
  TensorView q, k, v;     // [H * D, hidden], [G * D, hidden] twice
  TensorView q_bias, k_bias, v_bias;
  TensorView q_norm, k_norm;  // [D]
  TensorView o;               // [hidden, H * D]
  TensorView o_bias;
  TensorView post_attention_norm;  // [hidden]
  TensorView gate, up;             // [F, hidden]
  TensorView gate_bias, up_bias;
  TensorView down;  // [hidden, F]
  TensorView down_bias;
  // The scales of matrices in FP8.
  BlockScales q_scales, k_scales, v_scales, o_scales, gate_scales, up_scales, down_scales;
};

// The dtypes in the arena: the matrices of layers may be in FP8 when everything else is not.
struct WeightDTypes {
  DType matrices = DType::kF32;
  DType others = DType::kF32;  // embedding and lm_head; norms and biases may be F32 instead
};
// `wanted`: FP8 applies to the layers' matrices, any other dtype to all weights; nothing keeps all
// as stored.
WeightDTypes weight_dtypes(const ModelWeightsPlan& sources, std::optional<DType> wanted);

struct DecoderWeights {
  WeightDTypes dtypes;
  TensorView embedding;   // [V, hidden]; first stage
  TensorView final_norm;  // [hidden]; last stage
  TensorView lm_head;     // [V, hidden]; last stage; the embedding again when tied
  std::vector<LayerWeights> layers;
};

class WeightsLayout {
 public:
  // Adds the weights' buffers to `arena`. `dtype`: see weight_dtypes().
  // `model_id` is the prefix of buffer names. `sources` and `checkpoint` must stay valid until
  // load().
  static WeightsLayout plan(const Checkpoint& checkpoint, const ModelWeightsPlan& sources,
                            std::optional<DType> dtype, const DeviceTraits& traits,
                            std::string_view model_id, ArenaPlan& arena);

  // Maps and copies the weights. The checkpoint is not needed afterwards.
  Result<DecoderWeights> load(Arena& arena, Device& device, ThreadPool& pool) const;

  // The files that the arena maps as a whole after load(). The checkpoint owns the descriptors.
  struct MappedFilePlace {
    std::string path;
    int fd = -1;
    const std::byte* data = nullptr;
    std::size_t bytes = 0;
  };
  std::vector<MappedFilePlace> mapped_files(const Arena& arena) const;

  // Sizes, for messages.
  std::uint64_t copied_bytes() const { return copied_bytes_; }
  std::uint64_t mapped_bytes() const { return mapped_bytes_; }

 private:
  struct Placement {
    const WeightSource* source = nullptr;
    DType dtype = DType::kF32;  // in the arena
    bool mapped = false;
    std::size_t offset = 0;  // in the weights region, when copied
    Fp8Blocks blocks;        // of a matrix in FP8, here or in the checkpoint
    std::size_t scales = 0;  // offset in the weights region, of a matrix in FP8 here
    bool scaled() const { return dtype == DType::kF8E4M3; }
  };

  WeightsLayout() = default;
  void place(const WeightSource& source, DType dtype, const DeviceTraits& traits,
             std::string_view model_id, ArenaPlan& arena);
  // In the order of the arena: layer by layer.
  std::vector<const Placement*> copied_placements() const;
  Status write(const Placement& placement, const Arena& arena, ThreadPool& pool,
               DummyValues& values, Upload& upload) const;
  Result<std::vector<float>> scales_of(const Placement& placement, ThreadPool& pool) const;
  Status copy(const Placement& placement, std::span<const float> scales, std::byte* target,
              Upload& upload) const;
  Status fill(const Placement& placement, DummyValues& values, std::byte* target,
              Upload& upload) const;
  const Placement& placement_of(const WeightSource& source) const;
  TensorView view(const WeightSource& source, const Arena& arena) const;
  BlockScales scales_view(const WeightSource& source, const Arena& arena) const;
  LayerWeights layer_views(const LayerWeightSources& sources, const Arena& arena) const;

  const Checkpoint* checkpoint_ = nullptr;
  const ModelWeightsPlan* sources_ = nullptr;
  std::optional<DType> dtype_;  // the requested dtype
  std::map<std::string, Placement, std::less<>>
      placements_;                         // by tensor; a tied tensor appears once
  std::vector<std::size_t> file_offsets_;  // in the region; by file
  std::vector<bool> file_mapped_;
  std::size_t copied_end_ = 0;
  std::uint64_t copied_bytes_ = 0;
  std::uint64_t mapped_bytes_ = 0;
};

}  // namespace sluice
