// AdapterImage: an adapter prepared for the device: the A and B of all modules in one block of
// bytes, in the dtype of matmul inputs, B transposed, each aligned to LoraEntry::kAlignment, and
// the gains of DoRA in F32. Its entries hold offsets within the block. The digest covers everything
// that the ops read, so equal content has equal digests, whatever its name or file.
//
// A mix of adapters is an image whose ranks are those of all parts, one after another. Each part's
// B is multiplied by its weight and scale before it is rounded.
// Values: immutable after make_adapter_image(); any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "adapter/adapter_tensors.h"
#include "adapter/dora_gains.h"
#include "base/result.h"
#include "base/stop_check.h"
#include "device/op_params.h"
#include "model/model_config.h"
#include "tensor/dtype.h"

namespace sluice {

// All images of one engine have the same format.
struct AdapterFormat {
  DType dtype = DType::kF32;  // of matmul inputs
  std::int32_t max_rank = 0;  // of a module; at most LoraTable::kMaxRank
  bool gains = false;         // images may have gains (DoRA)

  // The bytes of the largest image.
  std::size_t slot_bytes(const ModelConfig& config) const;
};

struct AdapterImage {
  std::vector<LoraEntry> entries;  // by layer and module, as AdapterTensors::modules()
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> memory;  // keeps `bytes`; shared by copies of the image
  std::int32_t max_rank = 0;
  std::string digest;  // hexadecimal
};

// A part of a mix. REQUIRES: of the same model.
struct WeightedAdapter {
  const AdapterTensors* tensors = nullptr;
  float weight = 1.0F;
};

// The number of entries of an image.
std::size_t num_lora_entries(const ModelConfig& config);
// The parts of a module that an image holds.
struct LoraPlace {
  std::int32_t rank = 0;
  float scale = 0.0F;
  bool gains = false;
};
// An entry whose A begins at `end`, followed by its B and its gains; moves `end` behind all, with
// padding. Rank 0 takes no bytes.
LoraEntry place_lora(const ModelConfig& config, std::size_t index, const LoraPlace& place,
                     DType dtype, std::size_t& end);

// Errors: a rank above the format's, a value that is not finite in the format's dtype, a file that
// was truncated meanwhile. They name the file and the tensor. `gains`: of the only part, by entry;
// empty: none. REQUIRES: at least one part.
Result<AdapterImage> make_adapter_image(std::span<const WeightedAdapter> parts,
                                        const ModelConfig& config, const AdapterFormat& format,
                                        std::span<const ModuleGains> gains = {},
                                        const StopCheck& stop = {});

}  // namespace sluice
