#include "adapter/adapter_image.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>

#include "base/check.h"
#include "base/sha256.h"
#include "checkpoint/quote_text.h"
#include "model/weight_conversion.h"

namespace sluice {
namespace {

std::size_t aligned(std::size_t bytes) {
  constexpr auto kAlignment = static_cast<std::size_t>(LoraEntry::kAlignment);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// K and N of a module.
struct ModuleShape {
  std::size_t depth = 0;
  std::size_t width = 0;
};

ModuleShape shape_of(const ModelConfig& config, std::size_t index) {
  const auto shape = weight_shape(config, kLoraRoles[index % kNumLoraModules],
                                  static_cast<std::int32_t>(index / kNumLoraModules));
  return {static_cast<std::size_t>(shape[1]), static_cast<std::size_t>(shape[0])};
}

float largest(DType dtype) {
  if (dtype == DType::kF16) return 65504.0F;
  if (dtype == DType::kBF16) return 3.3895314e38F;
  return std::numeric_limits<float>::max();
}

class ImageWriter {
 public:
  ImageWriter(std::span<const WeightedAdapter> parts, const ModelConfig& config,
              const AdapterFormat& format, std::span<const ModuleGains> gains)
      : parts_(parts), config_(config), format_(format), gains_(gains) {}

  Result<AdapterImage> write() {
    RETURN_IF_ERROR(place());
    for (std::size_t i = 0; i < image_.entries.size(); ++i) RETURN_IF_ERROR(write_module(i));
    for (const WeightedAdapter& part : parts_) {
      if (!part.tensors->file().faulted()) continue;
      return unavailable(part.tensors->file().path() +
                         ": the file became shorter while it was read; load it again");
    }
    image_.digest = digest();
    // Shared by all copies of the image.
    auto memory = std::make_shared<const std::vector<std::byte>>(std::move(bytes_));
    image_.bytes = *memory;
    image_.memory = std::move(memory);
    return std::move(image_);
  }

 private:
  std::size_t element() const { return size_of(format_.dtype); }
  bool has_gains(std::size_t index) const { return !gains_.empty() && !gains_[index].gain.empty(); }

  // Sets ranks, scales and offsets.
  Status place() {
    image_.entries.resize(num_lora_entries(config_));
    std::size_t end = 0;
    for (std::size_t i = 0; i < image_.entries.size(); ++i) {
      LoraEntry& entry = image_.entries[i];
      for (const WeightedAdapter& part : parts_) {
        const LoraTensors& tensors = part.tensors->modules()[i];
        if (tensors.a == nullptr) continue;
        entry.rank += tensors.lora.rank;
        entry.scale = parts_.size() == 1 ? part.weight * tensors.lora.scale : 1.0F;
        if (entry.rank <= format_.max_rank) continue;
        return unsupported(fmt::format(
            "{}: tensor {} brings the module to rank {}; the engine has room for {}; raise "
            "--max-lora-rank",
            part.tensors->file().path(), quote_text(tensors.a->name), entry.rank,
            format_.max_rank));
      }
      if (entry.rank == 0) continue;
      entry = place_lora(config_, i, {entry.rank, entry.scale, has_gains(i)}, format_.dtype, end);
      image_.max_rank = std::max(image_.max_rank, entry.rank);
    }
    bytes_.resize(end);
    return {};
  }

  Status write_module(std::size_t index) {
    const LoraEntry& entry = image_.entries[index];
    const ModuleShape shape = shape_of(config_, index);
    std::size_t first = 0;  // rank of the part
    for (const WeightedAdapter& part : parts_) {
      const LoraTensors& tensors = part.tensors->modules()[index];
      if (tensors.a == nullptr) continue;
      const auto rank = static_cast<std::size_t>(tensors.lora.rank);
      RETURN_IF_ERROR(read(part, *tensors.a, 1.0F));
      store(values_, static_cast<std::size_t>(entry.a) + first * shape.depth * element());
      RETURN_IF_ERROR(
          read(part, *tensors.b, parts_.size() == 1 ? 1.0F : part.weight * tensors.lora.scale));
      transpose(shape.width, rank);
      store(turned_, static_cast<std::size_t>(entry.b) + first * shape.width * element());
      first += rank;
    }
    if (has_gains(index)) write_gains(gains_[index], static_cast<std::size_t>(entry.gain));
    return {};
  }

  void write_gains(const ModuleGains& gains, std::size_t offset) {
    const std::size_t bytes = gains.gain.size() * sizeof(float);
    std::memcpy(bytes_.data() + offset, gains.gain.data(), bytes);
    std::memcpy(bytes_.data() + offset + bytes, gains.shift.data(), bytes);
  }

  // Reads a tensor into values_, each times `factor`.
  Status read(const WeightedAdapter& part, const TensorInfo& tensor, float factor) {
    const SafetensorsFile& file = part.tensors->file();
    const std::span<const std::byte> data = file.data(tensor);
    const DType dtype = *weight_dtype(tensor);
    values_.resize(data.size() / size_of(dtype));
    convert_weights(data.data(), dtype, reinterpret_cast<std::byte*>(values_.data()), DType::kF32,
                    values_.size());
    const float most = largest(format_.dtype);
    bool fits = true;
    for (float& value : values_) {
      value *= factor;
      fits = fits && std::fabs(value) <= most;  // false for NaN
    }
    if (fits) return {};
    return invalid_argument(
        fmt::format("{}: tensor {} has values that are not finite in {}; train it again",
                    file.path(), quote_text(tensor.name), dtype_name(format_.dtype)));
  }

  // values_ [width, rank] to turned_ [rank, width].
  void transpose(std::size_t width, std::size_t rank) {
    turned_.resize(values_.size());
    constexpr std::size_t kTile = 64;  // columns, so that reads and writes stay in the cache
    for (std::size_t tile = 0; tile < width; tile += kTile) {
      const std::size_t end = std::min(width, tile + kTile);
      for (std::size_t r = 0; r < rank; ++r) {
        for (std::size_t n = tile; n < end; ++n) turned_[r * width + n] = values_[n * rank + r];
      }
    }
  }

  void store(const std::vector<float>& values, std::size_t offset) {
    convert_weights(reinterpret_cast<const std::byte*>(values.data()), DType::kF32,
                    bytes_.data() + offset, format_.dtype, values.size());
  }

  std::string digest() const {
    Sha256 sha;
    sha.update(
        fmt::format("sluice/adapter/1 {} {} ", dtype_name(format_.dtype), image_.entries.size()));
    for (const LoraEntry& entry : image_.entries) {
      std::uint32_t scale = 0;
      std::memcpy(&scale, &entry.scale, sizeof(scale));
      const char* const kind = entry.gain == LoraEntry::kNoGain ? "" : "g";
      sha.update(fmt::format("{}:{:08x}{} ", entry.rank, entry.rank == 0 ? 0 : scale, kind));
    }
    sha.update(bytes_);
    return to_hex(sha.finish());
  }

  std::span<const WeightedAdapter> parts_;
  const ModelConfig& config_;
  const AdapterFormat& format_;
  std::span<const ModuleGains> gains_;
  AdapterImage image_;
  std::vector<std::byte> bytes_;
  std::vector<float> values_;
  std::vector<float> turned_;
};

}  // namespace

std::size_t AdapterFormat::slot_bytes(const ModelConfig& config) const {
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < num_lora_entries(config); ++i) {
    place_lora(config, i, {max_rank, 1.0F, gains}, dtype, bytes);
  }
  return bytes;
}

std::size_t num_lora_entries(const ModelConfig& config) {
  return static_cast<std::size_t>(config.num_layers) * kNumLoraModules;
}

LoraEntry place_lora(const ModelConfig& config, std::size_t index, const LoraPlace& place,
                     DType dtype, std::size_t& end) {
  LoraEntry entry;
  entry.rank = place.rank;
  entry.scale = place.scale;
  if (entry.rank == 0) return entry;
  const ModuleShape shape = shape_of(config, index);
  const std::size_t column = static_cast<std::size_t>(entry.rank) * size_of(dtype);
  entry.a = static_cast<std::int64_t>(end);
  end += aligned(column * shape.depth);
  entry.b = static_cast<std::int64_t>(end);
  end += aligned(column * shape.width);
  if (!place.gains) return entry;
  entry.gain = static_cast<std::int64_t>(end);
  end += aligned(2 * shape.width * sizeof(float));
  return entry;
}

Result<AdapterImage> make_adapter_image(std::span<const WeightedAdapter> parts,
                                        const ModelConfig& config, const AdapterFormat& format,
                                        std::span<const ModuleGains> gains) {
  CHECK(!parts.empty());
  CHECK(gains.empty() || (parts.size() == 1 && format.gains));
  CHECK(format.max_rank > 0 && format.max_rank <= LoraTable::kMaxRank);
  return ImageWriter(parts, config, format, gains).write();
}

}  // namespace sluice
