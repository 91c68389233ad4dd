// The gains of a DoRA adapter. DoRA trains a magnitude m for each row n of a weight W [N, K], and
// computes with
//
//   gain[n] (W + s B A)[n],  gain[n] = m[n] / ||(W + s B A)[n]||
//
// The gains are fixed once the adapter is loaded. They need the base weights, which are read from
// the checkpoint then. A module's bias has no gain; `shift` gives back what the gain takes from it.
// Function; any thread. Takes about as long as a product of all weights with rank rows. Errors name
// the file and the tensor. kUnsupported if the checkpoint's matrices are not in F32, F16 or BF16.
#pragma once

#include <string>
#include <vector>

#include "adapter/adapter_tensors.h"
#include "base/result.h"
#include "base/stop_check.h"
#include "model/model_config.h"

namespace sluice {

// The gains of one module; empty if the adapter has none for it.
struct ModuleGains {
  std::vector<float> gain;   // [N]
  std::vector<float> shift;  // [N]; (1 - gain) bias
};

// By module, as AdapterTensors::modules(). `model`: the directory or file of the base model.
// `stop`: called after each small part of the work.
Result<std::vector<ModuleGains>> dora_gains(const AdapterTensors& adapter,
                                            const ModelConfig& config, const std::string& model,
                                            const StopCheck& stop = {});

}  // namespace sluice
