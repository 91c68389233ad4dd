// The tokenizer of a GGUF file, written as the tokenizer.json and tokenizer_config.json of the same
// model on the Hub; the readers of these files check them as any others. Supported are byte-level
// vocabularies (tokenizer.ggml.model "gpt2") of the kinds llama-bpe, qwen2 and gpt-2, and those of
// SentencePiece with scores ("llama"); all others are refused by name. The normalizer is that of
// the model on the Hub. Errors name the metadata key; the caller adds the file. Pure; any thread.
#pragma once

#include <string>

#include "base/result.h"
#include "checkpoint/gguf.h"

namespace sluice {

Result<std::string> gguf_tokenizer_json(const GgufMetadata& metadata);

// bos_token, eos_token, add_bos_token, add_eos_token and chat_template, where the file has them.
Result<std::string> gguf_tokenizer_config_json(const GgufMetadata& metadata);

}  // namespace sluice
