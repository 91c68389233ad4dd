// The files of a model by what they hold. MODEL is a Hugging Face checkpoint directory, or a GGUF
// file, which holds the same in one file: its metadata is then given in the form of the directory's
// files. So nothing behind these functions knows which of the two a model is.
// Errors name the file. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "checkpoint/checkpoint.h"

namespace sluice {

// The text of config.json, generation_config.json, tokenizer.json or tokenizer_config.json.
// kNotFound if the model has none; a GGUF file has no generation_config.json. A file of more than
// `max_bytes` is an error; what a GGUF file is translated to may be longer.
Result<std::string> read_model_text(const std::string& model, const std::string& name,
                                    std::uint64_t max_bytes);

Result<Checkpoint> open_checkpoint(const std::string& model);

bool is_gguf_model(const std::string& model);

}  // namespace sluice
