// A GGUF model as a Checkpoint: tensors have the names, shapes and order of rows of the same model
// on the Hub, so that no reader of the checkpoint knows where it came from. Tensors of blocks keep
// their blocks.
// Files of the architecture "llama" hold the rows of queries and keys in another order
// (gguf_names.h). These rows are copied into a file in memory while the checkpoint is opened: a
// fifteenth to a tenth of a model, whose place in the GGUF file is then not read again.
// Errors name the file, and the tensor or metadata key where there is one. Any thread.
#pragma once

#include <string>

#include "base/result.h"
#include "checkpoint/checkpoint.h"

namespace sluice {

// `path`: as for GgufModel::open(). kUnsupported names a tensor of a type that is not supported.
Result<Checkpoint> open_gguf_checkpoint(const std::string& path);

}  // namespace sluice
