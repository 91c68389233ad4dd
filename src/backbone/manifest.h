// BackboneManifest: describes the bytes of a backbone (backbone.h), so that a process without any
// file can build the model's decoder on them: the texts of its configuration, and each weight's
// place, dtype and shape. It travels in sealed memory beside the backbone.
//
//   magic, version | texts, facts | count, places of tensors | count, places of scales
//
// The places stand in the fixed order of for_each_weight (manifest.cpp). Decoding checks that every
// place lies inside the backbone, and that limits hold; it never reads the backbone.
// Limits: kMaxManifestBytes; ModelLimits for the texts and layers. Values: plain; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/hash128.h"
#include "base/result.h"
#include "base/sha256.h"
#include "model/model_config.h"
#include "model/weights.h"

namespace sluice {

inline constexpr std::size_t kMaxManifestBytes = std::size_t{16} << 20;

// A contiguous tensor in the backbone; rows of a matrix have whole blocks of its dtype. rank 0: the
// model has no such weight.
struct TensorPlace {
  std::uint64_t offset = 0;
  DType dtype = DType::kF32;
  std::uint32_t rank = 0;              // at most 2
  std::array<std::int64_t, 2> dims{};  // of unused dimensions: 0

  friend bool operator==(const TensorPlace&, const TensorPlace&) = default;
};

// The scales of a matrix in FP8 or INT8. block_rows 0: the matrix has none.
struct ScalesPlace {
  std::uint64_t offset = 0;
  std::int32_t block_rows = 0;
  std::int32_t block_cols = 0;
  std::int64_t stride = 0;
  std::int64_t rows = 0;  // of blocks

  friend bool operator==(const ScalesPlace&, const ScalesPlace&) = default;
};

struct BackboneManifest {
  std::string config;       // the text of config.json
  std::string generation;   // of generation_config.json; empty: the model has none
  Sha256Digest model{};     // model_digest()
  std::string numerics;     // DeviceTraits::numerics of the process that made the rotary tables
  std::uint64_t bytes = 0;  // of the backbone
  // 0: the bytes are one sealed shared memory of the host. Else: they are chunks of a device's
  // memory, each of this size.
  std::uint64_t chunk_bytes = 0;
  std::uint64_t address = 0;       // of the first chunk, for the writer and its readers; else 0
  Hash128 hash;                    // of all bytes
  std::int32_t max_model_len = 0;  // rows of the rotary tables
  WeightDTypes dtypes;
  std::uint32_t num_layers = 0;
  std::uint32_t num_ropes = 0;
  std::vector<TensorPlace> tensors;
  std::vector<ScalesPlace> scales;

  friend bool operator==(const BackboneManifest&, const BackboneManifest&);
};

// Fills in num_layers, num_ropes, dtypes, tensors and scales. REQUIRES: every view of `weights`
// lies in the backbone that begins at `base`.
void describe_weights(const DecoderWeights& weights, const std::byte* base,
                      BackboneManifest& manifest);

// The inverse, for a backbone that is mapped at `base`.
DecoderWeights weights_at(std::byte* base, const BackboneManifest& manifest);

std::vector<std::byte> encode_manifest(const BackboneManifest& manifest);
// kInvalidArgument, with the field, if the bytes are not a manifest of this version.
Result<BackboneManifest> decode_manifest(std::span<const std::byte> bytes);

}  // namespace sluice
