#include "backbone/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "base/byte_stream.h"
#include "base/check.h"

namespace sluice {
namespace {

constexpr std::string_view kMagic = "sluice backbone";
constexpr std::uint32_t kVersion = 3;

constexpr std::size_t kTensorsPerLayer = 18;
// The places of q, k, v, o, gate, up and down, which may have scales, among those of a layer.
constexpr std::size_t kScaled[] = {1, 2, 3, 9, 12, 13, 14};
constexpr std::uint32_t kNumDTypes = static_cast<std::uint32_t>(DType::kI4) + 1;
constexpr std::size_t kTensorsOfModel = 3;  // and the rotary tables
// The places of the embedding and lm_head, which may have scales, among those of the model.
constexpr std::size_t kScaledOfModel[] = {0, 2};
constexpr std::uint32_t kMaxRopes = 64;

// Every view of the weights in the order of the manifest: on_tensor(view), on_scales(scales,
// matrix).
template <class Weights, class OnTensor, class OnScales>
void for_each_weight(Weights& weights, const OnTensor& on_tensor, const OnScales& on_scales) {
  on_tensor(weights.embedding);
  on_tensor(weights.final_norm);
  on_tensor(weights.lm_head);
  on_scales(weights.embedding_scales, weights.embedding);
  on_scales(weights.lm_head_scales, weights.lm_head);
  for (auto& table : weights.rope_tables) on_tensor(table);
  for (auto& layer : weights.layers) {
    for (auto* view : {&layer.input_norm, &layer.q, &layer.k, &layer.v, &layer.q_bias,
                       &layer.k_bias, &layer.v_bias, &layer.q_norm, &layer.k_norm, &layer.o,
                       &layer.o_bias, &layer.post_attention_norm, &layer.gate, &layer.up,
                       &layer.down, &layer.gate_bias, &layer.up_bias, &layer.down_bias}) {
      on_tensor(*view);
    }
    on_scales(layer.q_scales, layer.q);
    on_scales(layer.k_scales, layer.k);
    on_scales(layer.v_scales, layer.v);
    on_scales(layer.o_scales, layer.o);
    on_scales(layer.gate_scales, layer.gate);
    on_scales(layer.up_scales, layer.up);
    on_scales(layer.down_scales, layer.down);
  }
}

std::uint64_t offset_of(const void* address, const std::byte* base, const BackboneManifest& in) {
  const auto offset = static_cast<std::uint64_t>(static_cast<const std::byte*>(address) - base);
  CHECK(offset < in.bytes);
  return offset;
}

TensorPlace place_of(const TensorView& view, const std::byte* base, const BackboneManifest& in) {
  if (view.empty()) return {};
  CHECK(view.rank == 1 || view.rank == 2);
  CHECK(view.rank == 1 ||
        view.strides[0] == matrix_view(view.data, view.dtype, 1, view.dims[1]).strides[0]);
  return {offset_of(view.data, base, in),
          view.dtype,
          static_cast<std::uint32_t>(view.rank),
          {view.dims[0], view.rank == 2 ? view.dims[1] : 0}};
}

TensorView view_at(const TensorPlace& place, std::byte* base) {
  if (place.rank == 0) return {};
  std::byte* const data = base + place.offset;
  if (place.rank == 1) return vector_view(data, place.dtype, place.dims[0]);
  return matrix_view(data, place.dtype, place.dims[0], place.dims[1]);
}

// Reads with checks; the first failed one is the error.
class ManifestReader {
 public:
  explicit ManifestReader(std::span<const std::byte> bytes) : in_(bytes) {}

  Result<BackboneManifest> run() {
    require(in_.text() == kMagic, "it does not begin as one");
    require(in_.u32() == kVersion, "it has another version; restart the server");
    BackboneManifest m;
    m.config = text(ModelLimits::kConfigBytes, "config");
    m.generation = text(ModelLimits::kConfigBytes, "generation");
    for (auto& byte : m.model) {
      const auto one = in_.bytes(1);
      if (!one.empty()) byte = static_cast<std::uint8_t>(one[0]);
    }
    m.numerics = text(4096, "numerics");
    m.bytes = in_.u64();
    require(m.bytes > 0 && m.bytes <= kMaxBytes, "bytes");
    m.chunk_bytes = in_.u64();
    m.address = in_.u64();
    require(m.chunk_bytes == 0 || chunks_fit(m), "chunk_bytes or address");
    require(m.chunk_bytes != 0 || m.address == 0, "address");
    m.hash = in_.hash();
    const std::uint32_t positions = in_.u32();
    require(positions > 0 && positions <= ModelLimits::kPositions, "max_model_len");
    m.max_model_len = static_cast<std::int32_t>(positions);
    m.dtypes.matrices = dtype();
    m.dtypes.others = dtype();
    m.dtypes.ends = dtype();
    m.num_layers = in_.u32();
    require(m.num_layers > 0 && m.num_layers <= ModelLimits::kLayers, "num_layers");
    m.num_ropes = in_.u32();
    require(m.num_ropes > 0 && m.num_ropes <= kMaxRopes, "num_ropes");
    if (wrong_) return error();
    read_places(m);
    require(in_.left() == 0, "bytes follow it");
    if (wrong_ || !in_.ok()) return error();
    return m;
  }

 private:
  static constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 44;

  static constexpr std::uint64_t kMaxAddress = std::uint64_t{1} << 57;

  static bool chunks_fit(const BackboneManifest& m) {
    return m.bytes % m.chunk_bytes == 0 && m.address != 0 && m.address % m.chunk_bytes == 0 &&
           m.address < kMaxAddress;
  }
  void require(bool right, std::string_view what) {
    if (!right && !wrong_) wrong_ = what;
  }
  Error error() const {
    return invalid_argument(fmt::format("backbone manifest: {}", wrong_.value_or("it is cut off")));
  }
  std::string text(std::uint64_t most, std::string_view name) {
    const std::string_view value = in_.text();
    require(value.size() <= most, name);
    return std::string(value.substr(0, static_cast<std::size_t>(most)));
  }
  DType dtype() {
    const std::uint32_t value = in_.u32();
    require(value < kNumDTypes, "dtype");
    return wrong_ ? DType::kF32 : static_cast<DType>(value);
  }

  void read_places(BackboneManifest& m) {
    const std::size_t tensors =
        kTensorsOfModel + m.num_ropes + std::size_t{m.num_layers} * kTensorsPerLayer;
    for (std::size_t i = 0; i < tensors && !wrong_ && in_.ok(); ++i) {
      m.tensors.push_back(tensor(m.bytes));
    }
    for (const std::size_t scaled : kScaledOfModel) {
      if (wrong_ || !in_.ok()) return;
      m.scales.push_back(scale(m.bytes, m.tensors[scaled]));
    }
    for (std::size_t layer = 0; layer < m.num_layers; ++layer) {
      for (const std::size_t scaled : kScaled) {
        if (wrong_ || !in_.ok()) return;
        const std::size_t first = kTensorsOfModel + m.num_ropes + layer * kTensorsPerLayer;
        m.scales.push_back(scale(m.bytes, m.tensors[first + scaled]));
      }
    }
  }

  // Whether `count` elements of `size` bytes at `offset` lie inside.
  static bool inside(std::uint64_t offset, std::uint64_t count, std::uint64_t size,
                     std::uint64_t bytes) {
    return offset < bytes && offset % size == 0 && count <= (bytes - offset) / size;
  }

  TensorPlace tensor(std::uint64_t bytes) {
    constexpr std::uint64_t kMaxDim = std::uint64_t{1} << 31;
    TensorPlace place;
    place.rank = in_.u32();
    require(place.rank <= 2, "a tensor's rank");
    if (place.rank == 0 || wrong_) return {};
    place.dtype = dtype();
    place.offset = in_.u64();
    for (std::uint32_t i = 0; i < place.rank; ++i) {
      const std::uint64_t dim = in_.u64();
      require(dim > 0 && dim < kMaxDim, "a tensor's shape");
      if (wrong_) return {};
      place.dims[i] = static_cast<std::int64_t>(dim);
    }
    require(place.rank == 2 || !is_blocks(place.dtype), "a vector in blocks");
    const std::uint64_t rows = place.rank == 2 ? static_cast<std::uint64_t>(place.dims[0]) : 1;
    const auto row =
        static_cast<std::uint64_t>(bytes_of(place.dtype, place.dims[place.rank == 2 ? 1 : 0]));
    require(place.offset < bytes && rows <= (bytes - place.offset) / row, "a tensor lies outside");
    // Blocks need no alignment.
    require(is_blocks(place.dtype) || place.offset % size_of(place.dtype) == 0,
            "a tensor lies between two elements");
    return place;
  }

  ScalesPlace scale(std::uint64_t bytes, const TensorPlace& matrix) {
    constexpr std::uint64_t kMaxDim = std::uint64_t{1} << 31;
    const std::uint64_t rows_in_block = in_.u32();
    if (rows_in_block == 0) return {};
    const std::uint64_t cols_in_block = in_.u32();
    const std::uint64_t offset = in_.u64();
    const std::uint64_t stride = in_.u64();
    const std::uint64_t rows = in_.u64();
    require(rows_in_block < kMaxDim && cols_in_block > 0 && cols_in_block < kMaxDim && stride > 0 &&
                stride < kMaxDim && rows > 0 && rows < kMaxDim,
            "the shape of scales");
    if (wrong_) return {};
    const auto blocks = [](std::int64_t dim, std::uint64_t block) {
      return (static_cast<std::uint64_t>(dim) + block - 1) / block;
    };
    require(matrix.rank == 2 && rows == blocks(matrix.dims[0], rows_in_block) &&
                stride == blocks(matrix.dims[1], cols_in_block),
            "scales do not cover their matrix");
    require(inside(offset, rows * stride, sizeof(float), bytes), "scales lie outside");
    return {offset, static_cast<std::int32_t>(rows_in_block),
            static_cast<std::int32_t>(cols_in_block), static_cast<std::int64_t>(stride),
            static_cast<std::int64_t>(rows)};
  }

  ByteReader in_;
  std::optional<std::string_view> wrong_;
};

}  // namespace

bool operator==(const BackboneManifest& a, const BackboneManifest& b) {
  return encode_manifest(a) == encode_manifest(b);
}

void describe_weights(const DecoderWeights& weights, const std::byte* base,
                      BackboneManifest& manifest) {
  manifest.dtypes = weights.dtypes;
  manifest.num_layers = static_cast<std::uint32_t>(weights.layers.size());
  manifest.num_ropes = static_cast<std::uint32_t>(weights.rope_tables.size());
  for_each_weight(
      weights,
      [&](const TensorView& view) { manifest.tensors.push_back(place_of(view, base, manifest)); },
      [&](const BlockScales& scales, const TensorView& matrix) {
        if (scales.values == nullptr) return manifest.scales.push_back({});
        const std::int64_t rows = (matrix.dims[0] + scales.block_rows - 1) / scales.block_rows;
        manifest.scales.push_back({offset_of(scales.values, base, manifest), scales.block_rows,
                                   scales.block_cols, scales.stride, rows});
      });
}

DecoderWeights weights_at(std::byte* base, const BackboneManifest& manifest) {
  DecoderWeights weights;
  weights.dtypes = manifest.dtypes;
  weights.layers.resize(manifest.num_layers);
  weights.rope_tables.resize(manifest.num_ropes);
  auto tensor = manifest.tensors.begin();
  auto scales = manifest.scales.begin();
  for_each_weight(
      weights, [&](TensorView& view) { view = view_at(*tensor++, base); },
      [&](BlockScales& view, const TensorView&) {
        const ScalesPlace& place = *scales++;
        if (place.block_rows == 0) return;
        view = {reinterpret_cast<const float*>(base + place.offset), place.block_rows,
                place.block_cols, place.stride};
      });
  CHECK(tensor == manifest.tensors.end() && scales == manifest.scales.end());
  return weights;
}

std::vector<std::byte> encode_manifest(const BackboneManifest& m) {
  ByteWriter out;
  out.text(kMagic);
  out.u32(kVersion);
  out.text(m.config);
  out.text(m.generation);
  out.bytes(std::as_bytes(std::span(m.model)));
  out.text(m.numerics);
  out.u64(m.bytes);
  out.u64(m.chunk_bytes);
  out.u64(m.address);
  out.hash(m.hash);
  out.u32(static_cast<std::uint32_t>(m.max_model_len));
  out.u32(static_cast<std::uint32_t>(m.dtypes.matrices));
  out.u32(static_cast<std::uint32_t>(m.dtypes.others));
  out.u32(static_cast<std::uint32_t>(m.dtypes.ends));
  out.u32(m.num_layers);
  out.u32(m.num_ropes);
  for (const TensorPlace& place : m.tensors) {
    out.u32(place.rank);
    if (place.rank == 0) continue;
    out.u32(static_cast<std::uint32_t>(place.dtype));
    out.u64(place.offset);
    for (std::uint32_t i = 0; i < place.rank; ++i)
      out.u64(static_cast<std::uint64_t>(place.dims[i]));
  }
  for (const ScalesPlace& place : m.scales) {
    out.u32(static_cast<std::uint32_t>(place.block_rows));
    if (place.block_rows == 0) continue;
    out.u32(static_cast<std::uint32_t>(place.block_cols));
    out.u64(place.offset);
    out.u64(static_cast<std::uint64_t>(place.stride));
    out.u64(static_cast<std::uint64_t>(place.rows));
  }
  return out.take();
}

Result<BackboneManifest> decode_manifest(std::span<const std::byte> bytes) {
  if (bytes.size() > kMaxManifestBytes) {
    return invalid_argument("backbone manifest: it is larger than 16 MiB");
  }
  return ManifestReader(bytes).run();
}

}  // namespace sluice
