// The tokenizer and the chat templates of a model (a checkpoint directory, a file in the form of
// tokenizer.json, or a GGUF file), with a snapshot: from its sections if they
// fit, and otherwise from the files, which are then offered to the next start. With both sections
// no JSON of the tokenizer's files is parsed.
// Functions; the caller's thread. The snapshot must outlive the results: a restored tokenizer reads
// its bytes. A loaded tokenizer must live until the snapshot has collected it.
#pragma once

#include <string>

#include "base/result.h"
#include "chat_template/template_loader.h"
#include "snapshot/snapshot.h"
#include "tokenizer/tokenizer.h"

namespace sluice {

// How the tokenizer was made, as a span of the start names it.
enum class TokenizerSource { kFiles, kSnapshot };

struct LoadedTokenizer {
  Tokenizer tokenizer;
  TokenizerSource source = TokenizerSource::kFiles;
};

// Errors: Tokenizer::load()'s.
Result<LoadedTokenizer> load_tokenizer(const std::string& directory, Snapshot& snapshot);

// Errors: ChatTemplates::load()'s. `file`: its text is the only template, if not empty; the special
// tokens are the checkpoint's. An error if it does not parse.
Result<ChatTemplates> load_chat_templates(const std::string& directory, Snapshot& snapshot,
                                          const std::string& file = {});

// "tokenizer JSON" or "tokenizer".
const char* span_name(TokenizerSource source);

}  // namespace sluice
