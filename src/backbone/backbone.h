// Backbone: the finished weights of one model, as a forward pass reads them, in memory that
// processes share. It lives as long as any descriptor or mapping of it; there is no owner whose
// death would take it away. Two kinds of memory, by the writer's device:
//
//   the host's   one sealed shared memory. No process can change it: readers get read-only
//                descriptors, so that no mapping of theirs can become writable.
//   a GPU's      chunks that the device exported, mapped at the writer's address. They have no seal
//                and no read-only descriptor: the importer chooses its access, and only what keeps
//                a process from running other code than ours (the sandbox) holds it to reading.
//
// write_backbone() runs once, in a process that may read the checkpoint. It hands back descriptors;
// open_backbone() checks what it is given before anything is mapped.
// Values: movable. Threads: any; functions with a device: the engine's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

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
  // One sealed memory, or one descriptor for each chunk, in order.
  std::vector<FileDescriptor> memory;
  FileDescriptor manifest;         // sealed
  std::size_t in_large_pages = 0;  // bytes, as the writer had them mapped (base/large_pages.h)
};

// Writes all weights and rotary tables into memory that can be shared, hashes them as the device
// reads them, removes every mapping, and seals what can be sealed. The descriptors are those of the
// writer; read_only() gives the others. kUnsupported if the device cannot share its memory.
Result<Backbone> write_backbone(const BackboneSource& source, Device& device, ThreadPool& pool);

// Descriptors for readers: read-only ones of sealed memory, copies of those of chunks. kUnavailable
// without /proc.
Result<Backbone> read_only(const Backbone& backbone);

// Reads the manifest. kInvalidArgument if a memory of the host lacks a seal, or if there are other
// bytes or another number of chunks than the manifest says.
Result<BackboneManifest> open_backbone(const Backbone& backbone);

// Hashes all bytes again and compares. Reads the whole backbone, mapped for as long at any address.
// kInternal if they differ.
Status verify_backbone(const Backbone& backbone, const BackboneManifest& manifest, Device& device);

// Adds the backbone's buffer to the weights region, which must be empty.
void plan_backbone(const BackboneManifest& manifest, std::size_t granularity, ArenaPlan& arena);

enum class BackboneAddress : std::uint8_t {
  kAsWritten,  // chunks lie where their writer had them; memory of the host lies anywhere
  kAny,
};
// Reserves an arena of that plan. kInvalidArgument if the device cannot map memory of this kind or
// chunks of this size, kUnavailable if the address is taken.
Result<Arena> reserve_backbone(const BackboneManifest& manifest, BackboneAddress address,
                               Device& device, ArenaPlan plan);
// Maps it there, read-only where the device grants that. Errors name the chunk.
// REQUIRES: `backbone` has the descriptors of read_only().
Result<DecoderWeights> map_backbone(const Backbone& backbone, const BackboneManifest& manifest,
                                    Arena& arena);
// Touches every page of it, so that no step has to; a device's memory is all there. REQUIRES: it is
// mapped there.
Status touch_backbone(const BackboneManifest& manifest, const Arena& arena);

}  // namespace sluice
