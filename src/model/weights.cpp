#include "model/weights.h"

#include <fmt/format.h>

#include <algorithm>
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

template <class Visit>
void for_each_source(const ModelWeightsPlan& sources, const Visit& visit) {
  for (const WeightSource* source : {&sources.embedding, &sources.final_norm, &sources.lm_head}) {
    if (source->present()) visit(*source);
  }
  for (const LayerWeightSources& layer : sources.layers) {
    for (const WeightSource& source : layer.weights) {
      if (source.present()) visit(source);
    }
  }
}

}  // namespace

WeightsLayout WeightsLayout::plan(const Checkpoint& checkpoint, const ModelWeightsPlan& sources,
                                  std::optional<DType> dtype, const DeviceTraits& traits,
                                  std::string_view model_id, ArenaPlan& arena) {
  WeightsLayout layout;
  layout.checkpoint_ = &checkpoint;
  layout.sources_ = &sources;
  layout.file_offsets_.resize(checkpoint.files().size(), 0);
  layout.file_mapped_.resize(checkpoint.files().size(), false);
  for_each_source(sources, [&](const WeightSource& source) {
    std::optional<DType> placed = dtype;
    // A layer's norms and biases, where they are copied anyway: libraries add biases of the type of
    // their results only. Nothing is rounded by it.
    const bool vector = source.tensor.shape.size() == 1 && &source != &sources.final_norm;
    if (vector && !traits.maps_files && placed.value_or(source.dtype) == source.dtype) {
      placed = DType::kF32;
    }
    layout.place(source, placed, traits, model_id, arena);
  });
  // Files come last: what is copied is backed as a prefix of the region.
  for (std::size_t i = 0; i < layout.file_offsets_.size(); ++i) {
    if (!layout.file_mapped_[i]) continue;
    const auto bytes = static_cast<std::size_t>(checkpoint.files()[i].size());
    layout.file_offsets_[i] = arena.add(RegionKind::kWeights, fmt::format("{}/file{}", model_id, i),
                                        round_up(bytes, traits.granularity), traits.granularity);
  }
  return layout;
}

void WeightsLayout::place(const WeightSource& source, std::optional<DType> dtype,
                          const DeviceTraits& traits, std::string_view model_id, ArenaPlan& arena) {
  const TensorInfo& tensor = source.tensor;
  if (placements_.contains(tensor.name)) return;
  Placement placement{&source, dtype.value_or(source.dtype), false, 0};
  // Kernels load whole elements; vectors of them need no alignment.
  const bool aligned = tensor.offset % size_of(source.dtype) == 0;
  placement.mapped =
      !is_dummy(source) && traits.maps_files && aligned && placement.dtype == source.dtype;
  if (placement.mapped) {
    file_mapped_[static_cast<std::size_t>(tensor.file)] = true;
    mapped_bytes_ += tensor.bytes;
  } else {
    const std::size_t bytes = element_count(tensor) * size_of(placement.dtype);
    placement.offset =
        arena.add(RegionKind::kWeights, fmt::format("{}/{}", model_id, tensor.name), bytes);
    copied_end_ = placement.offset + bytes;
    copied_bytes_ += bytes;
  }
  placements_.emplace(tensor.name, placement);
}

Result<DecoderWeights> WeightsLayout::load(Arena& arena, Device& device, ThreadPool& pool) const {
  RETURN_IF_ERROR(arena.grow(RegionKind::kWeights, copied_end_));
  for (std::size_t i = 0; i < file_offsets_.size(); ++i) {
    if (!file_mapped_[i]) continue;
    const SafetensorsFile& file = checkpoint_->files()[i];
    auto mapped = arena.map_file(RegionKind::kWeights, file_offsets_[i], file.fd(),
                                 static_cast<std::size_t>(file.size()));
    if (!mapped) return with_context(file.path(), std::move(mapped).error());
  }
  ASSIGN_OR_RETURN(Upload upload, Upload::create(device, pool));
  DummyValues values;
  for (const Placement* placement : copied_placements()) {
    auto copied = is_dummy(*placement->source) ? fill(*placement, values, arena, upload)
                                               : copy(*placement, arena, upload);
    if (!copied) return with_context(placement->source->tensor.name, std::move(copied).error());
  }
  RETURN_IF_ERROR(upload.finish());
  RETURN_IF_ERROR(arena.protect(RegionKind::kWeights, Protection::kReadOnly));

  DecoderWeights weights;
  weights.dtype = sources_->dtype;
  for (const auto& [name, placement] : placements_) {
    if (placement.source == &sources_->layers.front()[WeightRole::kQ]) {
      weights.dtype = placement.dtype;
    }
  }
  weights.embedding = view(sources_->embedding, arena);
  weights.final_norm = view(sources_->final_norm, arena);
  weights.lm_head = view(sources_->lm_head, arena);
  for (const LayerWeightSources& layer : sources_->layers) {
    weights.layers.push_back(layer_views(layer, arena));
  }
  return weights;
}

std::vector<const WeightsLayout::Placement*> WeightsLayout::copied_placements() const {
  std::vector<const Placement*> copied;
  for (const auto& [name, placement] : placements_) {
    if (!placement.mapped) copied.push_back(&placement);
  }
  std::sort(copied.begin(), copied.end(),
            [](const Placement* a, const Placement* b) { return a->offset < b->offset; });
  return copied;
}

Status WeightsLayout::copy(const Placement& placement, const Arena& arena, Upload& upload) const {
  const TensorInfo& tensor = placement.source->tensor;
  const std::byte* from = checkpoint_->data(tensor).data();
  const DType from_type = placement.source->dtype;
  const std::size_t from_size = size_of(from_type);
  const std::size_t size = size_of(placement.dtype);
  return upload.write(arena.region_base(RegionKind::kWeights) + placement.offset,
                      element_count(tensor) * size,
                      [&](std::size_t offset, std::size_t bytes, std::byte* to) {
                        convert_weights(from + offset / size * from_size, from_type, to,
                                        placement.dtype, bytes / size);
                      });
}

Status WeightsLayout::fill(const Placement& placement, DummyValues& values, const Arena& arena,
                           Upload& upload) const {
  const TensorInfo& tensor = placement.source->tensor;
  std::byte* target = arena.region_base(RegionKind::kWeights) + placement.offset;
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

TensorView WeightsLayout::view(const WeightSource& source, const Arena& arena) const {
  if (!source.present()) return {};
  const TensorInfo& tensor = source.tensor;
  const auto found = placements_.find(tensor.name);
  CHECK(found != placements_.end());
  const Placement& placement = found->second;
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
  return w;
}

}  // namespace sluice
