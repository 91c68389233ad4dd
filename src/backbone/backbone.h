// Backbone: the finished weights of one model, as a forward pass reads them, in sealed memory that
// processes share. No process can change it: the memory is sealed against writing, and readers get
// read-only descriptors, so that no mapping of theirs can become writable. It lives as long as any
// descriptor or mapping of it; there is no owner whose death would take it away.
//
// write_backbone() runs once, in a process that may read the checkpoint. It hands back descriptors;
// open_backbone() checks what it is given before anything is mapped.
// Values: movable; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "backbone/manifest.h"
#include "base/file.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "device/arena.h"
#include "device/device.h"
#include "model/families.h"
#include "model/model_config.h"

namespace sluice {

// The model and the settings that a backbone is made of.
struct BackboneSource {
  const ModelConfig& config;
  const Checkpoint& checkpoint;
  const ModelWeightsPlan& weights;
  std::optional<DType> dtype;  // see weight_dtypes()
  std::int32_t max_model_len = 0;
  Sha256Digest model{};
  std::string config_text;
  std::string generation_text;
};

struct Backbone {
  FileDescriptor memory;           // of the weights, sealed
  FileDescriptor manifest;         // sealed
  std::size_t in_large_pages = 0;  // bytes, as the writer had them mapped (base/large_pages.h)
};

// Writes all weights and rotary tables into shared memory, hashes them, removes every writable
// mapping, and seals. The descriptors are those of the writer; read_only() gives the others.
// kUnsupported if the device's memory is not the host's.
Result<Backbone> write_backbone(const BackboneSource& source, Device& device, ThreadPool& pool);

// Read-only descriptors of the same memory. kUnavailable without /proc.
Result<Backbone> read_only(const Backbone& backbone);

// Reads the manifest. kInvalidArgument if either memory lacks a seal or has another size than the
// manifest says.
Result<BackboneManifest> open_backbone(const Backbone& backbone);

// Hashes all bytes again and compares. Reads the whole backbone.
Status verify_backbone(const Backbone& backbone, const BackboneManifest& manifest);

// Adds the backbone's buffer to the weights region, which must be empty.
void plan_backbone(const BackboneManifest& manifest, std::size_t granularity, ArenaPlan& arena);
// Maps it there, read-only. REQUIRES: `backbone` has read-only descriptors.
Result<DecoderWeights> map_backbone(const Backbone& backbone, const BackboneManifest& manifest,
                                    Arena& arena);
// Touches every page of it, so that no step has to. REQUIRES: it is mapped there.
Status touch_backbone(const BackboneManifest& manifest, const Arena& arena);

}  // namespace sluice
