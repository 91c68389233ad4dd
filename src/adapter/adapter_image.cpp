#include "adapter/adapter_image.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
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

// The values that are read, or hashed, between two checks of whether to go on.
constexpr std::size_t kReadValues = std::size_t{1} << 16;
constexpr std::size_t kHashBytes = std::size_t{1} << 18;

class ImageWriter {
 public:
  ImageWriter(std::span<const WeightedAdapter> parts, const ModelConfig& config,
              const AdapterFormat& format, std::span<const ModuleGains> gains,
              const StopCheck& stop)
      : parts_(parts), config_(config), format_(format), gains_(gains), stop_(stop) {}

  Result<AdapterImage> write() {
    RETURN_IF_ERROR(place());
    for (std::size_t i = 0; i < image_.entries.size(); ++i) RETURN_IF_ERROR(write_module(i));
    for (const WeightedAdapter& part : parts_) {
      if (!part.tensors->file().faulted()) continue;
      return unavailable(part.tensors->file().path() +
                         ": the file became shorter while it was read; load it again");
    }
    image_.bytes = {bytes_.get(), size_};
    ASSIGN_OR_RETURN(image_.digest, digest());
    // Shared by all copies of the image.
    image_.memory = std::shared_ptr<const std::byte[]>(std::move(bytes_));
    return std::move(image_);
  }

 private:
  std::size_t element() const { return size_of(format_.dtype); }
  bool has_gains(std::size_t index) const { return !gains_.empty() && !gains_[index].gain.empty(); }
  Status check_stop() const { return stop_ ? stop_() : Status(); }

  // Sets ranks, scales and offsets.
  Status place() {
    image_.entries.resize(num_lora_entries(config_));
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
      entry = place_lora(config_, i, {entry.rank, entry.scale, has_gains(i)}, format_.dtype, size_);
      image_.max_rank = std::max(image_.max_rank, entry.rank);
    }
    // The pages are taken as they are written, which is part of the pieces.
    bytes_ = std::make_unique_for_overwrite<std::byte[]>(size_);
    return {};
  }

  Status write_module(std::size_t index) {
    const LoraEntry& entry = image_.entries[index];
    if (entry.rank == 0) return {};
    const ModuleShape shape = shape_of(config_, index);
    const std::size_t column = static_cast<std::size_t>(entry.rank) * element();
    const auto a = static_cast<std::size_t>(entry.a);
    const auto b = static_cast<std::size_t>(entry.b);
    std::size_t first = 0;  // rank of the part
    for (const WeightedAdapter& part : parts_) {
      const LoraTensors& tensors = part.tensors->modules()[index];
      if (tensors.a == nullptr) continue;
      const auto rank = static_cast<std::size_t>(tensors.lora.rank);
      RETURN_IF_ERROR(write_a(part, *tensors.a, a + first * shape.depth * element()));
      const float factor = parts_.size() == 1 ? 1.0F : part.weight * tensors.lora.scale;
      RETURN_IF_ERROR(write_b(part, *tensors.b, {factor, shape.width, rank},
                              b + first * shape.width * element()));
      first += rank;
    }
    pad(a + column * shape.depth);
    pad(b + column * shape.width);
    if (has_gains(index)) write_gains(gains_[index], static_cast<std::size_t>(entry.gain));
    return {};
  }

  void write_gains(const ModuleGains& gains, std::size_t offset) {
    const std::size_t bytes = gains.gain.size() * sizeof(float);
    std::memcpy(bytes_.get() + offset, gains.gain.data(), bytes);
    std::memcpy(bytes_.get() + offset + bytes, gains.shift.data(), bytes);
    pad(offset + 2 * bytes);
  }

  // Clears the bytes from `end` of a matrix to the next one.
  void pad(std::size_t end) { std::memset(bytes_.get() + end, 0, aligned(end) - end); }

  Status write_a(const WeightedAdapter& part, const TensorInfo& tensor, std::size_t offset) {
    const std::size_t count = part.tensors->file().data(tensor).size() / size_of(dtype_of(tensor));
    for (std::size_t from = 0; from < count; from += kReadValues) {
      const std::size_t values = std::min(kReadValues, count - from);
      RETURN_IF_ERROR(read(part, tensor, from, values, 1.0F));
      store(values_.data(), values, offset + from * element());
      RETURN_IF_ERROR(check_stop());
    }
    return {};
  }

  // A part's B is [width, rank]; the image has [rank, width].
  struct PartOfB {
    float factor = 1.0F;
    std::size_t width = 0;
    std::size_t rank = 0;
  };
  Status write_b(const WeightedAdapter& part, const TensorInfo& tensor, const PartOfB& b,
                 std::size_t offset) {
    const std::size_t most = std::max<std::size_t>(1, kReadValues / b.rank);
    for (std::size_t from = 0; from < b.width; from += most) {
      const std::size_t columns = std::min(most, b.width - from);
      RETURN_IF_ERROR(read(part, tensor, from * b.rank, columns * b.rank, b.factor));
      transpose(columns, b.rank);
      for (std::size_t r = 0; r < b.rank; ++r) {
        store(turned_.data() + r * columns, columns, offset + (r * b.width + from) * element());
      }
      RETURN_IF_ERROR(check_stop());
    }
    return {};
  }

  static DType dtype_of(const TensorInfo& tensor) { return *weight_dtype(tensor); }

  // Reads `count` values of a tensor into values_, each times `factor`.
  Status read(const WeightedAdapter& part, const TensorInfo& tensor, std::size_t from,
              std::size_t count, float factor) {
    const SafetensorsFile& file = part.tensors->file();
    const DType dtype = dtype_of(tensor);
    values_.resize(count);
    convert_weights(file.data(tensor).data() + from * size_of(dtype), dtype,
                    reinterpret_cast<std::byte*>(values_.data()), DType::kF32, count);
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

  // values_ [columns, rank] to turned_ [rank, columns].
  void transpose(std::size_t columns, std::size_t rank) {
    turned_.resize(values_.size());
    constexpr std::size_t kTile = 64;  // columns, so that reads and writes stay in the cache
    for (std::size_t tile = 0; tile < columns; tile += kTile) {
      const std::size_t end = std::min(columns, tile + kTile);
      for (std::size_t r = 0; r < rank; ++r) {
        for (std::size_t n = tile; n < end; ++n) turned_[r * columns + n] = values_[n * rank + r];
      }
    }
  }

  void store(const float* values, std::size_t count, std::size_t offset) {
    convert_weights(reinterpret_cast<const std::byte*>(values), DType::kF32, bytes_.get() + offset,
                    format_.dtype, count);
  }

  Result<std::string> digest() const {
    Sha256 sha;
    sha.update(
        fmt::format("sluice/adapter/1 {} {} ", dtype_name(format_.dtype), image_.entries.size()));
    for (const LoraEntry& entry : image_.entries) {
      std::uint32_t scale = 0;
      std::memcpy(&scale, &entry.scale, sizeof(scale));
      const char* const kind = entry.gain == LoraEntry::kNoGain ? "" : "g";
      sha.update(fmt::format("{}:{:08x}{} ", entry.rank, entry.rank == 0 ? 0 : scale, kind));
    }
    for (std::size_t from = 0; from < size_; from += kHashBytes) {
      sha.update(image_.bytes.subspan(from, std::min(kHashBytes, size_ - from)));
      RETURN_IF_ERROR(check_stop());
    }
    return to_hex(sha.finish());
  }

  std::span<const WeightedAdapter> parts_;
  const ModelConfig& config_;
  const AdapterFormat& format_;
  std::span<const ModuleGains> gains_;
  const StopCheck& stop_;
  AdapterImage image_;
  std::unique_ptr<std::byte[]> bytes_;
  std::size_t size_ = 0;
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
                                        std::span<const ModuleGains> gains, const StopCheck& stop) {
  CHECK(!parts.empty());
  CHECK(gains.empty() || (parts.size() == 1 && format.gains));
  CHECK(format.max_rank > 0 && format.max_rank <= LoraTable::kMaxRank);
  return ImageWriter(parts, config, format, gains, stop).write();
}

}  // namespace sluice
