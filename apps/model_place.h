// ModelPlace: where the checkpoint of a MODEL argument lies. MODEL is a directory, a GGUF file, or
// the name of a repository on Hugging Face, such as Qwen/Qwen2.5-0.5B-Instruct, that was downloaded
// before: the local cache is looked up as huggingface_hub does it. Nothing is ever downloaded.
// Threads: any; it reads the environment.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"

namespace sluice {

struct ModelPlace {
  std::string directory;                  // or the GGUF file
  std::optional<std::string> repository;  // when the model came from the cache
};

// The cache's directory: HF_HUB_CACHE, else HF_HOME/hub, else XDG_CACHE_HOME/huggingface/hub, else
// ~/.cache/huggingface/hub. Empty: none of the variables is set, HOME included.
std::string hugging_face_cache();

// `revision`: a branch, tag or commit; empty = main. REQUIRES a repository: a directory or file
// with a revision is an error. Errors: kNotFound with the command that downloads the model.
Result<ModelPlace> find_model(const std::string& model, const std::string& revision);

}  // namespace sluice
