// EmbeddingConfig: how a checkpoint makes one vector of a text, as the files of
// sentence-transformers in its directory say: modules.json and the configuration of its pooling.
// Plain; any thread.
#pragma once

#include <string>

#include "base/result.h"
#include "request/pooling.h"

namespace sluice {

struct EmbeddingConfig {
  Pooling pooling = Pooling::kLastToken;
  bool normalize = true;  // to length 1
};

// Without modules.json: the last token, normalized, as causal models are mostly used. Errors name
// the file and the field: kUnsupported for modules and poolings that are not built.
Result<EmbeddingConfig> load_embedding_config(const std::string& directory);

}  // namespace sluice
