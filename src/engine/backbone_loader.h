// Loads a model by way of a backbone (src/backbone): one process writes it from a checkpoint, any
// number of processes run engines on it without any file. Tokens and logits are the bits of an
// engine that load_engine() makes with the same options.
// Functions; the engine's thread. Errors name file, field or option.
#pragma once

#include <cstdint>
#include <string>

#include "backbone/backbone.h"
#include "base/clock.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "device/device.h"
#include "engine/engine_loader.h"
#include "engine/engine_options.h"
#include "engine/startup_timeline.h"

namespace sluice {

struct BackboneUse {
  // The engine has room for one adapter up to this rank, in place of those of the options. It is
  // added to LoadedEngine::adapters later, from sealed memory; requests name it by 0. 0: none.
  std::int32_t lora_rank = 0;
  // Touch every page of the backbone, so that no step has to.
  bool touch = false;
  // Where the backbone must lie. A second engine of one process on chunks of a device needs kAny.
  BackboneAddress address = BackboneAddress::kAsWritten;
  // Compare all bytes with the manifest's hash first. Memory of the host is sealed; chunks of a
  // device are not, and a process that has their descriptors can change them at any time.
  bool verify = false;
};

// Writes the backbone of the model in `directory`, or in a GGUF file. Uses the options dtype,
// load_format and max_model_len.
Result<Backbone> make_backbone(const std::string& directory, const EngineOptions& options,
                               Device& device, ThreadPool& pool);

// Makes an engine on a backbone. `options.kv_cache_memory` must be set, since a function cannot ask
// the system for its free memory; dtype and max_model_len are the backbone's.
// kUnsupported if the device computes other rotary tables than the writer's.
// REQUIRES: device, pool and clock outlive the engine.
Result<LoadedEngine> load_engine_on_backbone(const Backbone& backbone, const EngineOptions& options,
                                             Device& device, ThreadPool& pool, const Clock& clock,
                                             StartupTimeline& timeline,
                                             const BackboneUse& use = {});

}  // namespace sluice
