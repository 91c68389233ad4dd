// The configuration of a GGUF model, written as the config.json of the same model on the Hub.
// parse_model_config() then checks it as any other. Architectures: llama (which Mistral's files
// use too), qwen2 and qwen3. A metadata key of the architecture that is not known, and a tensor
// that is not known, are refused by name, because they may change the mathematics.
// Sizes of the vocabulary, biases and tied embeddings follow from the tensors, because the metadata
// does not state them. Pure; any thread.
#pragma once

#include <string>

#include "base/result.h"
#include "checkpoint/gguf.h"

namespace sluice {

// Errors name the metadata key or the tensor; the caller adds the file.
Result<std::string> gguf_config_json(const GgufModel& model);

// Whether the file holds the rows of queries and keys in pairs (gguf_names.h).
Result<bool> gguf_pairs_rows(const GgufMetadata& metadata);

}  // namespace sluice
