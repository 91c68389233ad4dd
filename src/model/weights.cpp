#include "model/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <span>
#include <utility>

#include "base/check.h"
#include "model/weight_conversion.h"

namespace sluice {
namespace {

std::size_t round_up(std::size_t n, std::size_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

std::size_t element_count(const TensorInfo& tensor) {
  std::size_t count = 1;
  for (const std::int64_t dim : tensor.shape) count *= static_cast<std::size_t>(dim);
  return count;
}

// visit(source, of_layer)
template <class Visit>
void for_each_source(const ModelWeightsPlan& sources, const Visit& visit) {
  for (const WeightSource* source : {&sources.embedding, &sources.final_norm, &sources.lm_head}) {
    if (source->present()) visit(*source, false);
  }
  for (const LayerWeightSources& layer : sources.layers) {
    for (const WeightSource& source : layer.weights) {
      if (source.present()) visit(source, true);
    }
  }
}

// The checkpoint's blocks, or our own when the matrix is quantized here.
Fp8Blocks blocks_of(const WeightSource& source) {
  const std::vector<std::int64_t>& shape = source.tensor.shape;
  const bool stored = source.block_rows != 0;
  const auto own = [](std::int64_t dim) {
    return static_cast<std::int32_t>(std::min<std::int64_t>(dim, Fp8Blocks::kOwnBlock));
  };
  return {shape[0], shape[1], stored ? source.block_rows : own(shape[0]),
          stored ? source.block_cols : own(shape[1])};
}

}  // namespace

WeightDTypes weight_dtypes(const ModelWeightsPlan& sources, std::optional<DType> wanted) {
  if (!wanted) return {sources.fp8 ? DType::kF8E4M3 : sources.dtype, sources.dtype};
  return {*wanted, *wanted == DType::kF8E4M3 ? sources.dtype : *wanted};
}

WeightsLayout WeightsLayout::plan(const Checkpoint& checkpoint, const ModelWeightsPlan& sources,
                                  std::optional<DType> dtype, const DeviceTraits& traits,
                                  std::string_view model_id, ArenaPlan& arena) {
  WeightsLayout layout;
  layout.checkpoint_ = &checkpoint;
  layout.sources_ = &sources;
  layout.dtype_ = dtype;
  layout.file_offsets_.resize(checkpoint.files().size(), 0);
  layout.file_mapped_.resize(checkpoint.files().size(), false);
  for_each_source(sources, [&](const WeightSource& source, bool of_layer) {
    const bool to_fp8 = of_layer && source.tensor.shape.size() == 2;
    const bool as_stored = !dtype || (*dtype == DType::kF8E4M3 && !to_fp8);
    DType placed = as_stored ? source.dtype : *dtype;
    // If a layer's norms and biases are copied anyway, they become F32, which is exact: libraries
    // only add biases of the type of their results.
    const bool vector = of_layer && source.tensor.shape.size() == 1;
    if (vector && !traits.maps_files && placed == source.dtype) placed = DType::kF32;
    layout.place(source, placed, traits, model_id, arena);
  });
  // Files come last, because the copied weights are backed as a prefix of the region.
  for (std::size_t i = 0; i < layout.file_offsets_.size(); ++i) {
    if (!layout.file_mapped_[i]) continue;
    const auto bytes = static_cast<std::size_t>(checkpoint.files()[i].size());
    layout.file_offsets_[i] = arena.add(RegionKind::kWeights, fmt::format("{}/file{}", model_id, i),
                                        round_up(bytes, traits.granularity), traits.granularity);
  }
  return layout;
}

void WeightsLayout::place(const WeightSource& source, DType dtype, const DeviceTraits& traits,
                          std::string_view model_id, ArenaPlan& arena) {
  const TensorInfo& tensor = source.tensor;
  if (placements_.contains(tensor.name)) return;
  Placement placement;
  placement.source = &source;
  placement.dtype = dtype;
  // Kernels load whole elements; vectors of them need no alignment.
  const bool aligned = tensor.offset % size_of(source.dtype) == 0;
  placement.mapped = !is_dummy(source) && traits.maps_files && aligned && dtype == source.dtype;
  const auto add = [&](std::string_view suffix, std::size_t bytes) {
    const std::size_t offset = arena.add(
        RegionKind::kWeights, fmt::format("{}/{}{}", model_id, tensor.name, suffix), bytes);
    copied_end_ = offset + bytes;
    copied_bytes_ += bytes;
    return offset;
  };
  if (placement.mapped) {
    file_mapped_[static_cast<std::size_t>(tensor.file)] = true;
    mapped_bytes_ += tensor.bytes;
  } else {
    placement.offset = add("", element_count(tensor) * size_of(dtype));
  }
  if (placement.scaled() || source.dtype == DType::kF8E4M3) placement.blocks = blocks_of(source);
  if (placement.scaled()) {
    placement.scales = add("_scale", placement.blocks.count() * sizeof(float));
  }
  placements_.emplace(tensor.name, placement);
}

Result<DecoderWeights> WeightsLayout::load(Arena& arena, Device& device, ThreadPool& pool) const {
  RETURN_IF_ERROR(arena.grow(RegionKind::kWeights, copied_end_));
  for (std::size_t i = 0; i < file_offsets_.size(); ++i) {
    if (!file_mapped_[i]) continue;
    const SafetensorsFile& file = checkpoint_->files()[i];
    auto mapped = arena.map(RegionKind::kWeights, file_offsets_[i],
                            static_cast<std::size_t>(file.size()), Backing::file(file.fd()));
    if (!mapped) return with_context(file.path(), std::move(mapped).error());
  }
  ASSIGN_OR_RETURN(Upload upload, Upload::create(device, pool));
  DummyValues values;
  for (const Placement* placement : copied_placements()) {
    auto written = write(*placement, arena, pool, values, upload);
    if (!written) {
      static_cast<void>(upload.finish());  // copies of its buffers may be running
      return with_context(placement->source->tensor.name, std::move(written).error());
    }
  }
  RETURN_IF_ERROR(upload.finish());
  for (const SafetensorsFile& file : checkpoint_->files()) {
    if (file.faulted()) return unavailable(file.path() + ": was truncated while it was loaded");
  }
  RETURN_IF_ERROR(arena.protect(RegionKind::kWeights, Protection::kReadOnly));

  DecoderWeights weights;
  weights.dtypes = weight_dtypes(*sources_, dtype_);
  weights.embedding = view(sources_->embedding, arena);
  weights.final_norm = view(sources_->final_norm, arena);
  weights.lm_head = view(sources_->lm_head, arena);
  for (const LayerWeightSources& layer : sources_->layers) {
    weights.layers.push_back(layer_views(layer, arena));
  }
  return weights;
}

std::vector<WeightsLayout::MappedFilePlace> WeightsLayout::mapped_files(const Arena& arena) const {
  std::vector<MappedFilePlace> places;
  for (std::size_t i = 0; i < file_offsets_.size(); ++i) {
    if (!file_mapped_[i]) continue;
    const SafetensorsFile& file = checkpoint_->files()[i];
    places.push_back({file.path(), file.fd(),
                      arena.region_base(RegionKind::kWeights) + file_offsets_[i],
                      static_cast<std::size_t>(file.size())});
  }
  return places;
}

std::vector<const WeightsLayout::Placement*> WeightsLayout::copied_placements() const {
  std::vector<const Placement*> copied;
  for (const auto& [name, placement] : placements_) {
    if (!placement.mapped || placement.scaled()) copied.push_back(&placement);
  }
  const auto begin = [](const Placement* p) { return p->mapped ? p->scales : p->offset; };
  std::sort(copied.begin(), copied.end(),
            [&](const Placement* a, const Placement* b) { return begin(a) < begin(b); });
  return copied;
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
  if (is_dummy(source)) return std::vector<float>(placement.blocks.count(), DummyValues::kFp8Scale);
  if (source.dtype != DType::kF8E4M3) {
    return choose_scales(checkpoint_->data(source.tensor).data(), source.dtype, placement.blocks,
                         pool);
  }
  ASSIGN_OR_RETURN(const DType dtype, weight_dtype(source.scales));
  return read_scales(checkpoint_->data(source.scales).data(), dtype, placement.blocks.count());
}

Status WeightsLayout::copy(const Placement& placement, std::span<const float> scales,
                           std::byte* target, Upload& upload) const {
  const TensorInfo& tensor = placement.source->tensor;
  const std::byte* from = checkpoint_->data(tensor).data();
  const DType from_type = placement.source->dtype;
  const DType type = placement.dtype;
  const std::size_t size = size_of(type);
  std::atomic<bool> nan = false;
  RETURN_IF_ERROR(upload.write(
      target, element_count(tensor) * size,
      [&](std::size_t offset, std::size_t bytes, std::byte* to) {
        const std::size_t begin = offset / size;
        const std::size_t count = bytes / size;
        const bool is_fp8 = from_type == DType::kF8E4M3;
        if (is_fp8 && has_nan({from + begin, count})) nan.store(true, std::memory_order_relaxed);
        if (type == from_type) {
          std::memcpy(to, from + offset, bytes);
        } else if (type == DType::kF8E4M3) {
          quantize(from, from_type, placement.blocks, scales, begin, count, to);
        } else if (is_fp8) {
          expand(from, placement.blocks, scales, begin, count, to, type);
        } else {
          convert_weights(from + begin * size_of(from_type), from_type, to, type, count);
        }
      }));
  if (nan) return invalid_argument("holds NaN; expected FP8 codes of finite weights");
  return {};
}

Status WeightsLayout::fill(const Placement& placement, DummyValues& values, std::byte* target,
                           Upload& upload) const {
  const TensorInfo& tensor = placement.source->tensor;
  Status status;
  values.for_each_piece(
      tensor.name, placement.dtype, element_count(tensor), [&](std::span<const std::byte> from) {
        if (!status) return;
        status = upload.write(target, from.size(),
                              [&](std::size_t offset, std::size_t bytes, std::byte* to) {
                                std::memcpy(to, from.data() + offset, bytes);
                              });
        target += from.size();
      });
  return status;
}

const WeightsLayout::Placement& WeightsLayout::placement_of(const WeightSource& source) const {
  const auto found = placements_.find(source.tensor.name);
  CHECK(found != placements_.end());
  return found->second;
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
  return w;
}

}  // namespace sluice
