#include "model/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/content_hash.h"
#include "model/weight_conversion.h"

namespace sluice {
namespace {

constexpr std::size_t kLine = 64;  // alignment of buffers
constexpr std::string_view kNotForInt4 =
    "holds NaN, infinity or a magnitude above 2^18, which cannot be quantized to int4";
constexpr std::string_view kHoldsNan = "holds NaN; expected FP8 codes of finite weights";

std::size_t round_up(std::size_t n, std::size_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

std::size_t element_count(const TensorInfo& tensor) {
  std::size_t count = 1;
  for (const std::int64_t dim : tensor.shape) count *= static_cast<std::size_t>(dim);
  return count;
}

// Bytes of a tensor in another dtype. Each row of a matrix has whole blocks.
std::size_t bytes_in(const TensorInfo& tensor, DType dtype) {
  const std::int64_t cols = tensor.shape.empty() ? 1 : tensor.shape.back();
  const auto count = static_cast<std::int64_t>(element_count(tensor));
  return static_cast<std::size_t>(cols == 0 ? 0 : count / cols * bytes_of(dtype, cols));
}

// Stages: the embedding, each layer, the head. visit(source, stage)
template <class Visit>
void for_each_source(const ModelWeightsPlan& sources, const Visit& visit) {
  std::size_t stage = 0;
  if (sources.embedding.present()) visit(sources.embedding, stage);
  for (const LayerWeightSources& layer : sources.layers) {
    ++stage;
    for (const WeightSource& source : layer.weights) {
      if (source.present()) visit(source, stage);
    }
  }
  ++stage;
  if (sources.final_norm.present()) visit(sources.final_norm, stage);
  if (sources.lm_head.present()) visit(sources.lm_head, stage);
}

// The checkpoint's blocks, or our own when the matrix is quantized here.
QuantizedBlocks blocks_of(const WeightSource& source, DType dtype) {
  const std::vector<std::int64_t>& shape = source.tensor.shape;
  if (source.block_rows == 0) return QuantizedBlocks::own(dtype, shape[0], shape[1]);
  return {shape[0], shape[1], source.block_rows, source.block_cols, source.dtype};
}

enum class Kind : std::uint8_t { kMatrix, kEnd, kVector };  // kMatrix: of a layer
Kind kind_of(const WeightSource& source, bool of_layer) {
  if (source.tensor.shape.size() == 1) return Kind::kVector;
  return of_layer ? Kind::kMatrix : Kind::kEnd;
}

}  // namespace

WeightDTypes weight_dtypes(const ModelWeightsPlan& sources, std::optional<DType> wanted) {
  if (!wanted && sources.blocks) {
    const bool head = sources.lm_head.present();
    return {*sources.blocks, sources.dtype, head ? sources.lm_head.dtype : sources.dtype};
  }
  if (!wanted) {
    return {sources.codes.value_or(sources.dtype), sources.dtype, sources.dtype};
  }
  switch (*wanted) {
    case DType::kF8E4M3: return {*wanted, sources.dtype, sources.dtype};
    case DType::kI8:
    case DType::kI4: return {*wanted, sources.dtype, DType::kI8};
    default: return {*wanted, *wanted, *wanted};
  }
}

WeightsLayout WeightsLayout::plan(const Checkpoint& checkpoint, const ModelWeightsPlan& sources,
                                  std::optional<DType> dtype, const DeviceTraits& traits,
                                  std::string_view model_id, ArenaPlan& arena,
                                  WeightsMemory memory) {
  WeightsLayout layout;
  layout.memory_ = memory;
  layout.checkpoint_ = &checkpoint;
  layout.sources_ = &sources;
  layout.dtype_ = dtype;
  layout.file_offsets_.resize(checkpoint.files().size(), 0);
  layout.file_mapped_.resize(checkpoint.files().size(), false);
  const WeightDTypes dtypes = weight_dtypes(sources, dtype);
  const auto placed_dtype = [&](const WeightSource& source, Kind kind) {
    // Norms and biases of a quantized model keep their dtype, as do all weights if none is wanted.
    const bool as_stored = !dtype || (kind == Kind::kVector && !is_float(*dtype));
    if (as_stored) return source.dtype;
    return kind == Kind::kMatrix ? dtypes.matrices
           : kind == Kind::kEnd  ? dtypes.ends
                                 : dtypes.others;
  };
  for_each_source(sources, [&](const WeightSource& source, std::size_t stage) {
    const bool of_layer = stage > 0 && stage <= sources.layers.size();
    const Kind kind = kind_of(source, of_layer);
    DType placed = placed_dtype(source, kind);
    // If a layer's norms and biases are copied anyway, they become F32, which is exact: libraries
    // only add biases of the type of their results.
    const bool vector = of_layer && kind == Kind::kVector;
    if (vector && !traits.maps_files && placed == source.dtype) placed = DType::kF32;
    layout.place(source, stage, placed, traits);
  });
  layout.add_copied(model_id, traits, arena);
  // Files come last, because the copied weights are backed as a prefix of the region.
  for (std::size_t i = 0; i < layout.file_offsets_.size(); ++i) {
    if (!layout.file_mapped_[i]) continue;
    const auto bytes = static_cast<std::size_t>(checkpoint.files()[i].size());
    layout.file_offsets_[i] = arena.add(RegionKind::kWeights, fmt::format("{}/file{}", model_id, i),
                                        round_up(bytes, traits.granularity), traits.granularity);
  }
  return layout;
}

void WeightsLayout::place(const WeightSource& source, std::size_t stage, DType dtype,
                          const DeviceTraits& traits) {
  const TensorInfo& tensor = source.tensor;
  if (index_.contains(tensor.name)) return;
  Placement placement;
  placement.source = &source;
  placement.stage = stage;
  placement.dtype = dtype;
  // Kernels load whole elements; vectors of them need no alignment, and neither do blocks.
  const bool aligned = is_blocks(source.dtype) || tensor.offset % size_of(source.dtype) == 0;
  const bool mappable = memory_ == WeightsMemory::kOwn && traits.maps_files && !is_dummy(source);
  placement.mapped = mappable && aligned && dtype == source.dtype;
  placement.derived = !is_dummy(source) && (dtype != source.dtype || placement.scaled());
  if (placement.scaled() || has_scales(source.dtype)) placement.blocks = blocks_of(source, dtype);
  if (placement.mapped) {
    file_mapped_[static_cast<std::size_t>(tensor.file)] = true;
    mapped_bytes_ += tensor.bytes;
  }
  index_.emplace(tensor.name, placements_.size());
  placements_.push_back(placement);
}

// `alignment`: of the first buffer.
void WeightsLayout::add_buffers(Placement& placement, std::string_view model_id,
                                std::size_t alignment, ArenaPlan& arena) {
  const TensorInfo& tensor = placement.source->tensor;
  const auto add = [&](std::string_view suffix, std::size_t bytes) {
    const std::size_t offset =
        arena.add(RegionKind::kWeights, fmt::format("{}/{}{}", model_id, tensor.name, suffix),
                  bytes, std::exchange(alignment, kLine));
    copied_end_ = offset + bytes;
    copied_bytes_ += bytes;
    return offset;
  };
  if (!placement.mapped) {
    placement.offset = add("", bytes_in(tensor, placement.dtype));
  }
  if (placement.scaled()) {
    placement.scales = add("_scale", placement.blocks.count() * sizeof(float));
  }
}

// The derived range begins where memory can be mapped.
void WeightsLayout::add_copied(std::string_view model_id, const DeviceTraits& traits,
                               ArenaPlan& arena) {
  for (Placement& placement : placements_) {
    if (!placement.derived) add_buffers(placement, model_id, kLine, arena);
  }
  for (Placement& placement : placements_) {
    if (!placement.derived) continue;
    const bool first = derived_.bytes == 0;
    add_buffers(placement, model_id, first ? traits.granularity : kLine, arena);
    if (first) derived_.offset = copied_range(placement).offset;
    derived_.bytes = copied_end_ - derived_.offset;
  }
}

// REQUIRES: the weight is copied, or its scales are.
WeightsRange WeightsLayout::copied_range(const Placement& placement) const {
  const std::size_t begin = placement.mapped ? placement.scales : placement.offset;
  const std::size_t end = placement.scaled()
                              ? placement.scales + placement.blocks.count() * sizeof(float)
                              : begin + bytes_in(placement.source->tensor, placement.dtype);
  return {begin, end - begin};
}

Hash128 WeightsLayout::derived_layout() const {
  ContentHasher hasher;
  for (const Placement& placement : placements_) {
    if (!placement.derived) continue;
    const QuantizedBlocks& blocks = placement.blocks;
    const WeightsRange range = copied_range(placement);
    hasher.update_part(placement.source->tensor.name);
    hasher.update_part(fmt::format("{} {} {} {} {} {}", dtype_name(placement.source->dtype),
                                   dtype_name(placement.dtype), range.offset - derived_.offset,
                                   range.bytes, blocks.block_rows, blocks.block_cols));
  }
  return hasher.digest();
}

Result<DecoderWeights> WeightsLayout::load(Arena& arena, Device& device, ThreadPool& pool,
                                           const StoredWeights* stored,
                                           Conversion conversion) const {
  CHECK(stored == nullptr || stored->bytes.size() == derived_.bytes);
  const bool later = conversion == Conversion::kLater;
  CHECK(!later || (stored == nullptr && device.traits().maps_files));
  const bool maps_stored = stored != nullptr && device.traits().maps_files;
  const bool own = memory_ == WeightsMemory::kOwn;
  CHECK(own || (stored == nullptr && !later));
  if (own) {
    RETURN_IF_ERROR(arena.grow(RegionKind::kWeights, maps_stored ? derived_.offset : copied_end_));
  }
  if (maps_stored) {
    RETURN_IF_ERROR(arena.map(RegionKind::kWeights, derived_.offset, derived_.bytes,
                              Backing::file(stored->fd, static_cast<std::size_t>(stored->offset))));
  }
  for (std::size_t i = 0; i < file_offsets_.size(); ++i) {
    if (!file_mapped_[i]) continue;
    const CheckpointFile& file = checkpoint_->files()[i];
    auto mapped = arena.map(RegionKind::kWeights, file_offsets_[i],
                            static_cast<std::size_t>(file.size()), Backing::file(file.fd()));
    if (!mapped) return with_context(file.path(), std::move(mapped).error());
  }
  ASSIGN_OR_RETURN(Upload upload, Upload::create(device, pool));
  Status written = write_part(Part::kAsStored, arena, pool, upload);
  if (written && !maps_stored) {
    written = stored != nullptr
                  ? write_stored(*stored, arena, upload)
                  : write_part(later ? Part::kScales : Part::kDerived, arena, pool, upload);
  }
  const Status finished = upload.finish();  // in any case: copies of its buffers may be running
  RETURN_IF_ERROR(written);
  RETURN_IF_ERROR(finished);
  for (const CheckpointFile& file : checkpoint_->files()) {
    if (file.faulted()) return unavailable(file.path() + ": was truncated while it was loaded");
  }
  if (own && !later) {
    RETURN_IF_ERROR(arena.protect(RegionKind::kWeights, Protection::kReadOnly));
  }

  DecoderWeights weights;
  weights.dtypes = dtypes();
  weights.embedding = view(sources_->embedding, arena);
  weights.final_norm = view(sources_->final_norm, arena);
  weights.lm_head = view(sources_->lm_head, arena);
  weights.embedding_scales = scales_view(sources_->embedding, arena);
  weights.lm_head_scales = scales_view(sources_->lm_head, arena);
  weights.lm_head_order = order_view(sources_->lm_head, arena);
  for (const LayerWeightSources& layer : sources_->layers) {
    weights.layers.push_back(layer_views(layer, arena));
  }
  return weights;
}

Status WeightsLayout::remake_derived(Arena& arena, Device& device, ThreadPool& pool) const {
  arena.unmap(RegionKind::kWeights, derived_.offset);
  RETURN_IF_ERROR(arena.grow(RegionKind::kWeights, copied_end_));
  ASSIGN_OR_RETURN(Upload upload, Upload::create(device, pool));
  const Status written = write_part(Part::kDerived, arena, pool, upload);
  const Status finished = upload.finish();
  RETURN_IF_ERROR(written);
  RETURN_IF_ERROR(finished);
  return arena.protect(RegionKind::kWeights, Protection::kReadOnly);
}

std::vector<WeightStage> WeightsLayout::stages(const Arena& arena) const {
  const std::byte* const region = arena.region_base(RegionKind::kWeights);
  const std::size_t head = sources_->layers.size() + 1;
  std::vector<WeightStage> stages(head + 2);
  for (const Placement& placement : placements_) {
    if (placement.derived) {
      // Buffers lie in the order of stages, so those of one stage are one range.
      const WeightsRange copied = copied_range(placement);
      WeightsRange& range = stages[placement.stage].derived;
      if (range.bytes == 0) range.offset = copied.offset;
      range.bytes = copied.offset + copied.bytes - range.offset;
    }
    if (!placement.mapped) continue;
    // A step reads few rows of the embedding, unless it is the head too.
    const TensorInfo& tensor = placement.source->tensor;
    const bool tied = tensor.name == sources_->lm_head.tensor.name;
    const std::size_t stage = placement.stage > 0 ? placement.stage : (tied ? head : head + 1);
    stages[stage].mapped.emplace_back(region +
                                          file_offsets_[static_cast<std::size_t>(tensor.file)] +
                                          static_cast<std::size_t>(tensor.offset),
                                      static_cast<std::size_t>(tensor.bytes));
  }
  return stages;
}

std::vector<WeightsLayout::MappedFilePlace> WeightsLayout::mapped_files(const Arena& arena) const {
  std::vector<MappedFilePlace> places;
  for (std::size_t i = 0; i < file_offsets_.size(); ++i) {
    if (!file_mapped_[i]) continue;
    const CheckpointFile& file = checkpoint_->files()[i];
    places.push_back({file.path(), file.fd(),
                      arena.region_base(RegionKind::kWeights) + file_offsets_[i],
                      static_cast<std::size_t>(file.size())});
  }
  return places;
}

Status WeightsLayout::write_part(Part part, const Arena& arena, ThreadPool& pool,
                                 Upload& upload) const {
  DummyValues values;
  for (const Placement& placement : placements_) {
    if (placement.derived != (part != Part::kAsStored)) continue;
    if (placement.mapped && !placement.scaled()) continue;
    if (part == Part::kScales && !placement.mapped) continue;
    auto written = write(placement, arena, pool, values, upload);
    if (!written) return with_context(placement.source->tensor.name, std::move(written).error());
  }
  return {};
}

Status WeightsLayout::write_stored(const StoredWeights& stored, const Arena& arena,
                                   Upload& upload) const {
  return upload.write(arena.region_base(RegionKind::kWeights) + derived_.offset, derived_.bytes,
                      [&](std::size_t offset, std::size_t bytes, std::byte* to) {
                        std::memcpy(to, stored.bytes.data() + offset, bytes);
                      });
}

// Also handles a mapped matrix whose scales must be copied.
Status WeightsLayout::write(const Placement& placement, const Arena& arena, ThreadPool& pool,
                            DummyValues& values, Upload& upload) const {
  std::byte* const region = arena.region_base(RegionKind::kWeights);
  std::vector<float> scales;
  if (placement.blocks.count() > 0) {
    ASSIGN_OR_RETURN(scales, scales_of(placement, pool));
  }
  if (placement.scaled()) {
    RETURN_IF_ERROR(upload.write(region + placement.scales, scales.size() * sizeof(float),
                                 [&](std::size_t offset, std::size_t bytes, std::byte* to) {
                                   std::memcpy(to, std::as_bytes(std::span(scales)).data() + offset,
                                               bytes);
                                 }));
  }
  if (placement.mapped) return {};
  std::byte* const target = region + placement.offset;
  return is_dummy(*placement.source) ? fill(placement, values, target, upload)
                                     : copy(placement, scales, target, upload);
}

Result<std::vector<float>> WeightsLayout::scales_of(const Placement& placement,
                                                    ThreadPool& pool) const {
  const WeightSource& source = *placement.source;
  if (is_dummy(source)) {
    return std::vector<float>(placement.blocks.count(), DummyValues::scale_of(placement.dtype));
  }
  if (!has_scales(source.dtype)) {
    return choose_scales(checkpoint_->data(source.tensor).data(), source.dtype, placement.blocks,
                         pool);
  }
  ASSIGN_OR_RETURN(const DType dtype, weight_dtype(source.scales));
  return read_scales(checkpoint_->data(source.scales).data(), dtype, placement.blocks.count());
}

Status WeightsLayout::copy_to_int4(const Placement& placement, std::byte* target,
                                   Upload& upload) const {
  const WeightSource& source = *placement.source;
  const std::byte* from = checkpoint_->data(source.tensor).data();
  std::atomic<bool> fits = true;
  RETURN_IF_ERROR(upload.write(target, bytes_in(source.tensor, DType::kI4),
                               [&](std::size_t offset, std::size_t bytes, std::byte* to) {
                                 if (!quantize_to_int4(from, source.dtype, source.tensor.shape[1],
                                                       offset, {to, bytes})) {
                                   fits.store(false, std::memory_order_relaxed);
                                 }
                               }));
  if (fits) return {};
  return invalid_argument(std::string(kNotForInt4));
}

Status WeightsLayout::copy(const Placement& placement, std::span<const float> scales,
                           std::byte* target, Upload& upload) const {
  if (is_blocks(placement.source->dtype)) {
    const std::span<const std::byte> from = checkpoint_->data(placement.source->tensor);
    return upload.write(target, from.size(),
                        [&](std::size_t offset, std::size_t bytes, std::byte* to) {
                          std::memcpy(to, from.data() + offset, bytes);
                        });
  }
  if (placement.dtype == DType::kI4) return copy_to_int4(placement, target, upload);
  const std::size_t size = size_of(placement.dtype);
  std::atomic<bool> nan = false;
  RETURN_IF_ERROR(
      upload.write(target, element_count(placement.source->tensor) * size,
                   [&](std::size_t offset, std::size_t bytes, std::byte* to) {
                     if (!convert_elements(placement, scales, offset / size, bytes / size, to)) {
                       nan.store(true, std::memory_order_relaxed);
                     }
                   }));
  if (nan) return invalid_argument(std::string(kHoldsNan));
  return {};
}

// False if the checkpoint's codes hold NaN.
bool WeightsLayout::convert_elements(const Placement& placement, std::span<const float> scales,
                                     std::size_t begin, std::size_t count, std::byte* to) const {
  const std::byte* from = checkpoint_->data(placement.source->tensor).data();
  const DType from_type = placement.source->dtype;
  const DType type = placement.dtype;
  if (from_type == DType::kF8E4M3 && has_nan({from + begin, count})) return false;
  if (type == from_type) {
    std::memcpy(to, from + begin * size_of(type), count * size_of(type));
  } else if (placement.scaled()) {
    quantize(from, from_type, placement.blocks, scales, begin, count, to);
  } else if (has_scales(from_type)) {
    expand(from, placement.blocks, scales, begin, count, to, type);
  } else {
    convert_weights(from + begin * size_of(from_type), from_type, to, type, count);
  }
  return true;
}

// A matrix that is quantized here is cut between its blocks, so that each piece has its own scales.
std::vector<DerivedPiece> WeightsLayout::pieces(std::size_t elements) const {
  std::vector<DerivedPiece> pieces;
  for (std::size_t i = 0; i < placements_.size(); ++i) {
    const Placement& placement = placements_[i];
    if (!placement.derived || placement.mapped) continue;
    const QuantizedBlocks& blocks = placement.blocks;
    const auto unit =
        static_cast<std::size_t>(placement.scaled()              ? blocks.block_rows * blocks.cols
                                 : placement.dtype == DType::kI4 ? placement.source->tensor.shape[1]
                                                                 : std::int64_t{kLine});
    const std::size_t most = std::max<std::size_t>(elements / unit, 1) * unit;
    const std::span<const std::byte> source = checkpoint_->data(placement.source->tensor);
    const std::size_t size = size_of(placement.source->dtype);
    const std::size_t all = element_count(placement.source->tensor);
    for (std::size_t begin = 0; begin < all; begin += most) {
      const std::size_t count = std::min(most, all - begin);
      pieces.push_back(
          {placement.stage, source.subspan(begin * size, count * size), i, begin, count});
    }
  }
  return pieces;
}

Status WeightsLayout::convert(const DerivedPiece& piece, const Arena& arena) const {
  const Placement& placement = placements_[piece.placement];
  const TensorInfo& tensor = placement.source->tensor;
  std::byte* const region = arena.region_base(RegionKind::kWeights);
  std::vector<float> own;
  std::span<const float> scales;  // of all blocks
  ThreadPool this_thread(1);
  if (placement.scaled()) {
    QuantizedBlocks rows = placement.blocks;
    rows.rows = static_cast<std::int64_t>(piece.count) / rows.cols;
    auto chosen = choose_scales(piece.source.data(), placement.source->dtype, rows, this_thread);
    if (!chosen) return with_context(tensor.name, std::move(chosen).error());
    auto* const stored = reinterpret_cast<float*>(region + placement.scales);
    const std::size_t first_row = piece.begin / static_cast<std::size_t>(rows.cols);
    std::ranges::copy(*chosen, stored + first_row / static_cast<std::size_t>(rows.block_rows) *
                                            static_cast<std::size_t>(rows.across()));
    scales = {stored, placement.blocks.count()};
  } else if (placement.blocks.count() > 0) {
    auto read = scales_of(placement, this_thread);
    if (!read) return with_context(tensor.name, std::move(read).error());
    own = *std::move(read);
    scales = own;
  }
  const auto offset_of = [&](std::size_t element) {
    if (placement.dtype != DType::kI4) return element * size_of(placement.dtype);
    const auto cols = static_cast<std::size_t>(tensor.shape[1]);  // pieces have whole rows
    return element / cols * static_cast<std::size_t>(bytes_of(DType::kI4, tensor.shape[1]));
  };
  const std::size_t first = offset_of(piece.begin);
  std::byte* const to = region + placement.offset + first;
  if (placement.dtype == DType::kI4) {
    const std::size_t bytes = offset_of(piece.begin + piece.count) - first;
    if (!quantize_to_int4(checkpoint_->data(tensor).data(), placement.source->dtype,
                          tensor.shape[1], first, {to, bytes})) {
      return with_context(tensor.name, invalid_argument(std::string(kNotForInt4)));
    }
  } else if (!convert_elements(placement, scales, piece.begin, piece.count, to)) {
    return with_context(tensor.name, invalid_argument(std::string(kHoldsNan)));
  }
  const CheckpointFile& file = checkpoint_->file_of(tensor);
  if (file.faulted()) return unavailable(file.path() + ": was truncated while it was loaded");
  return {};
}

Status WeightsLayout::fill(const Placement& placement, DummyValues& values, std::byte* target,
                           Upload& upload) const {
  const TensorInfo& tensor = placement.source->tensor;
  Status status;
  values.for_each_piece(tensor.name, placement.dtype, bytes_in(tensor, placement.dtype),
                        [&](std::span<const std::byte> from) {
                          if (!status) return;
                          status = upload.write(
                              target, from.size(),
                              [&](std::size_t offset, std::size_t bytes, std::byte* to) {
                                std::memcpy(to, from.data() + offset, bytes);
                              });
                          target += from.size();
                        });
  return status;
}

const WeightsLayout::Placement& WeightsLayout::placement_of(const WeightSource& source) const {
  const auto found = index_.find(source.tensor.name);
  CHECK(found != index_.end());
  return placements_[found->second];
}

TensorView WeightsLayout::view(const WeightSource& source, const Arena& arena) const {
  if (!source.present()) return {};
  const TensorInfo& tensor = source.tensor;
  const Placement& placement = placement_of(source);
  const std::size_t offset = placement.mapped
                                 ? file_offsets_[static_cast<std::size_t>(tensor.file)] +
                                       static_cast<std::size_t>(tensor.offset)
                                 : placement.offset;
  std::byte* data = arena.region_base(RegionKind::kWeights) + offset;
  CHECK(tensor.shape.size() == 1 || tensor.shape.size() == 2);
  return tensor.shape.size() == 1
             ? vector_view(data, placement.dtype, tensor.shape[0])
             : matrix_view(data, placement.dtype, tensor.shape[0], tensor.shape[1]);
}

BlockScales WeightsLayout::scales_view(const WeightSource& source, const Arena& arena) const {
  if (!source.present()) return {};
  const Placement& placement = placement_of(source);
  if (!placement.scaled()) return {};
  const std::byte* data = arena.region_base(RegionKind::kWeights) + placement.scales;
  return {reinterpret_cast<const float*>(data), placement.blocks.block_rows,
          placement.blocks.block_cols, placement.blocks.across()};
}

// It lies in the file of its matrix. Blocks are on devices that map files only.
const std::int32_t* WeightsLayout::order_view(const WeightSource& source,
                                              const Arena& arena) const {
  if (source.order.name.empty()) return nullptr;
  CHECK(placement_of(source).mapped && source.order.file == source.tensor.file);
  const std::size_t offset = file_offsets_[static_cast<std::size_t>(source.order.file)] +
                             static_cast<std::size_t>(source.order.offset);
  return reinterpret_cast<const std::int32_t*>(arena.region_base(RegionKind::kWeights) + offset);
}

LayerWeights WeightsLayout::layer_views(const LayerWeightSources& sources,
                                        const Arena& arena) const {
  const auto get = [&](WeightRole role) { return view(sources[role], arena); };
  LayerWeights w;
  w.input_norm = get(WeightRole::kInputNorm);
  w.q = get(WeightRole::kQ);
  w.k = get(WeightRole::kK);
  w.v = get(WeightRole::kV);
  w.q_bias = get(WeightRole::kQBias);
  w.k_bias = get(WeightRole::kKBias);
  w.v_bias = get(WeightRole::kVBias);
  w.q_norm = get(WeightRole::kQNorm);
  w.k_norm = get(WeightRole::kKNorm);
  w.o = get(WeightRole::kO);
  w.o_bias = get(WeightRole::kOBias);
  w.post_attention_norm = get(WeightRole::kPostAttentionNorm);
  w.gate = get(WeightRole::kGate);
  w.up = get(WeightRole::kUp);
  w.gate_bias = get(WeightRole::kGateBias);
  w.up_bias = get(WeightRole::kUpBias);
  w.down = get(WeightRole::kDown);
  w.down_bias = get(WeightRole::kDownBias);
  const auto scales = [&](WeightRole role) { return scales_view(sources[role], arena); };
  w.q_scales = scales(WeightRole::kQ);
  w.k_scales = scales(WeightRole::kK);
  w.v_scales = scales(WeightRole::kV);
  w.o_scales = scales(WeightRole::kO);
  w.gate_scales = scales(WeightRole::kGate);
  w.up_scales = scales(WeightRole::kUp);
  w.down_scales = scales(WeightRole::kDown);
  const auto order = [&](WeightRole role) { return order_view(sources[role], arena); };
  w.q_order = order(WeightRole::kQ);
  w.k_order = order(WeightRole::kK);
  w.v_order = order(WeightRole::kV);
  w.o_order = order(WeightRole::kO);
  w.gate_order = order(WeightRole::kGate);
  w.up_order = order(WeightRole::kUp);
  w.down_order = order(WeightRole::kDown);
  return w;
}

}  // namespace sluice
