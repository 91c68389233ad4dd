// Weights in the arena. Planning decides for each weight whether it is used in place in its mapped
// file (the normal case) or copied and converted: when another dtype is wanted, the device maps no
// files, or the file aligns the weight badly. Loading then maps and copies. No weight is held
// twice. If the device maps no files, the norms and biases of layers become F32, which is exact.
// Dummy weights (dummy_weights.h) are copied from generated values.
//
// If FP8, INT8 or INT4 is wanted, matrices are quantized while they are copied
// (quantized_weights.h). All three apply to the matrices of layers. The embedding and lm_head are
// in INT8 beside layers in INT8 or INT4, and unchanged beside layers in FP8. If another dtype is
// wanted, matrices stored in FP8 or INT8 are expanded. Scales are copied, in F32, to the place
// after their matrix.
//
// Weights region: [ copied as stored | derived: converted weights, scales | mapped files, whole ]
//                   one named buffer each, in the order in which a forward pass uses them
//
// Matrices that are stored in blocks keep their blocks: they are refused beside a wanted dtype.
//
// If the region is shared memory (WeightsMemory), everything is copied, so that the region holds
// all that a forward pass reads.
//
// Where the device maps files, conversions may wait: load() leaves them, and they are made in
// pieces in the order of use, while the first steps run (engine/weight_stream.h).
//
// The derived range depends on the checkpoint, the wanted dtype and the layout alone. So a snapshot
// can hold its bytes unchanged: then they are mapped from there, or copied unconverted where the
// device maps no files.
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

#include "base/hash128.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "device/arena.h"
#include "device/device.h"
#include "device/op_params.h"
#include "device/upload.h"
#include "model/dummy_weights.h"
#include "model/families.h"
#include "model/quantized_weights.h"
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
  // The scales of matrices in FP8 and INT8.
  BlockScales q_scales, k_scales, v_scales, o_scales, gate_scales, up_scales, down_scales;
  // MatmulSegment::order of matrices in blocks.
  const std::int32_t *q_order = nullptr, *k_order = nullptr, *v_order = nullptr, *o_order = nullptr,
                     *gate_order = nullptr, *up_order = nullptr, *down_order = nullptr;
};

// The dtypes in the arena: quantized matrices may lie beside weights in a float dtype.
struct WeightDTypes {
  DType matrices = DType::kF32;  // of layers
  DType others = DType::kF32;    // a float dtype; norms and biases may be F32 instead
  DType ends = DType::kF32;      // embedding and lm_head
};
// Blocks of several types may be mixed; `matrices` is then that of most. `wanted`: a quantized
// dtype applies to matrices alone, any other dtype to all weights; nothing keeps all as stored.
WeightDTypes weight_dtypes(const ModelWeightsPlan& sources, std::optional<DType> wanted);

struct DecoderWeights {
  WeightDTypes dtypes;
  TensorView embedding;   // [V, hidden]; first stage
  TensorView final_norm;  // [hidden]; last stage
  TensorView lm_head;     // [V, hidden]; last stage; the embedding again when tied
  BlockScales embedding_scales, lm_head_scales;  // in INT8
  const std::int32_t* lm_head_order = nullptr;
  std::vector<LayerWeights> layers;
  // The rotary tables, [positions, rotary_dim] for each of ModelConfig::ropes, if they lie with the
  // weights. Empty: the decoder makes its own.
  std::vector<TensorView> rope_tables;
};

// Bytes of the weights region.
struct WeightsRange {
  std::size_t offset = 0;
  std::size_t bytes = 0;
};

// The weights that a forward pass reads at one of its points.
struct WeightStage {
  std::vector<std::span<const std::byte>> mapped;  // from files, in place
  WeightsRange derived;
};

// The bytes of a derived range in a file.
struct StoredWeights {
  int fd = -1;  // borrowed for load()
  std::uint64_t offset = 0;
  std::span<const std::byte> bytes;
};

// The memory behind the weights region.
enum class WeightsMemory : std::uint8_t {
  kOwn,     // load() backs it: with memory and mapped files
  kShared,  // the caller backs all of it before load(), with memory that other processes will map
};

// A piece of the derived weights, which one thread converts.
struct DerivedPiece {
  std::size_t stage = 0;              // of WeightsLayout::stages()
  std::span<const std::byte> source;  // what it reads, in a file of the checkpoint
  std::size_t placement = 0;          // of WeightsLayout
  std::size_t begin = 0;              // elements of the weight
  std::size_t count = 0;
};

enum class Conversion : std::uint8_t { kNow, kLater };

class WeightsLayout {
 public:
  // A few milliseconds of conversion.
  static constexpr std::size_t kPieceElements = std::size_t{1} << 19;

  // Adds the weights' buffers to `arena`. `dtype`: see weight_dtypes().
  // `model_id` is the prefix of buffer names. `sources` and `checkpoint` must stay valid until
  // load().
  static WeightsLayout plan(const Checkpoint& checkpoint, const ModelWeightsPlan& sources,
                            std::optional<DType> dtype, const DeviceTraits& traits,
                            std::string_view model_id, ArenaPlan& arena,
                            WeightsMemory memory = WeightsMemory::kOwn);

  // Maps and copies the weights. The checkpoint is not needed afterwards. `stored`: the bytes of
  // the derived range, mapped if the device maps files and copied otherwise; null = convert them.
  // kLater: converted weights are missing until all pieces() are converted and the caller has
  // protected the region; until then the checkpoint is needed. REQUIRES for kLater: the device maps
  // files, and nothing is stored.
  Result<DecoderWeights> load(Arena& arena, Device& device, ThreadPool& pool,
                              const StoredWeights* stored = nullptr,
                              Conversion conversion = Conversion::kNow) const;
  // The conversions that kLater leaves, in the order of use.
  // Pieces have about `elements`, but whole blocks where they are quantized.
  std::vector<DerivedPiece> pieces(std::size_t elements = kPieceElements) const;
  // Converts one of them. Any thread, each piece once. Errors name the tensor or the file.
  Status convert(const DerivedPiece& piece, const Arena& arena) const;
  // Replaces a mapped derived range by converted weights, at the same addresses. REQUIRES: load()
  // mapped it; nothing reads it meanwhile.
  Status remake_derived(Arena& arena, Device& device, ThreadPool& pool) const;

  WeightDTypes dtypes() const { return weight_dtypes(*sources_, dtype_); }
  const WeightsRange& derived() const { return derived_; }  // empty: nothing is converted
  // Digest of the tensors, dtypes and places in the derived range.
  Hash128 derived_layout() const;
  // The stages of a forward pass: the embedding, each layer, the head. One more has an embedding
  // that is not the head: a step reads few of its rows.
  std::vector<WeightStage> stages(const Arena& arena) const;

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
    std::size_t stage = 0;
    bool mapped = false;
    bool derived = false;    // converted, or a matrix whose scales are copied
    std::size_t offset = 0;  // in the weights region, when copied
    QuantizedBlocks blocks;  // of a matrix with scales, here or in the checkpoint
    std::size_t scales = 0;  // offset in the weights region, of a matrix with scales here
    bool scaled() const { return has_scales(dtype); }
  };

  WeightsLayout() = default;
  void place(const WeightSource& source, std::size_t stage, DType dtype,
             const DeviceTraits& traits);
  void add_buffers(Placement& placement, std::string_view model_id, std::size_t alignment,
                   ArenaPlan& arena);
  void add_copied(std::string_view model_id, const DeviceTraits& traits, ArenaPlan& arena);
  // kScales: of mapped matrices. They are derived too.
  enum class Part { kAsStored, kScales, kDerived };
  Status write_part(Part part, const Arena& arena, ThreadPool& pool, Upload& upload) const;
  Status write_stored(const StoredWeights& stored, const Arena& arena, Upload& upload) const;
  WeightsRange copied_range(const Placement& placement) const;
  Status write(const Placement& placement, const Arena& arena, ThreadPool& pool,
               DummyValues& values, Upload& upload) const;
  Result<std::vector<float>> scales_of(const Placement& placement, ThreadPool& pool) const;
  Status copy(const Placement& placement, std::span<const float> scales, std::byte* target,
              Upload& upload) const;
  bool convert_elements(const Placement& placement, std::span<const float> scales,
                        std::size_t begin, std::size_t count, std::byte* to) const;
  Status copy_to_int4(const Placement& placement, std::byte* target, Upload& upload) const;
  Status fill(const Placement& placement, DummyValues& values, std::byte* target,
              Upload& upload) const;
  const Placement& placement_of(const WeightSource& source) const;
  TensorView view(const WeightSource& source, const Arena& arena) const;
  BlockScales scales_view(const WeightSource& source, const Arena& arena) const;
  const std::int32_t* order_view(const WeightSource& source, const Arena& arena) const;
  LayerWeights layer_views(const LayerWeightSources& sources, const Arena& arena) const;

  const Checkpoint* checkpoint_ = nullptr;
  const ModelWeightsPlan* sources_ = nullptr;
  WeightsMemory memory_ = WeightsMemory::kOwn;
  std::optional<DType> dtype_;         // the requested dtype
  std::vector<Placement> placements_;  // in the order of use; a tied tensor appears once
  std::map<std::string, std::size_t, std::less<>> index_;  // by tensor
  std::vector<std::size_t> file_offsets_;                  // in the region; by file
  std::vector<bool> file_mapped_;
  WeightsRange derived_;
  std::size_t copied_end_ = 0;  // of both parts
  std::uint64_t copied_bytes_ = 0;
  std::uint64_t mapped_bytes_ = 0;
};

}  // namespace sluice
