// ServedModel: everything that stands between text and tokens for one model: tokenizer, chat
// templates, sampling defaults, and what prompts' blocks are named with. The command line and the
// server share it. Immutable after loading: any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash128.h"
#include "base/result.h"
#include "base/token_id.h"
#include "chat_template/template_loader.h"
#include "engine/engine.h"
#include "engine/engine_loader.h"
#include "kv/block_hash.h"
#include "model/generation_defaults.h"
#include "tokenizer/tokenizer.h"

namespace sluice {

// What the loaded engine says about its model.
struct EngineFacts {
  EngineLimits limits;
  GenerationDefaults generation;
  std::vector<TokenId> eos_ids;  // those at which sequences end
  KvIdentity kv_identity;        // without tenant salt
  std::int32_t block_size = 0;
};

struct ServedModel {
  std::string name;          // as clients call it
  std::int64_t created = 0;  // Unix seconds, for /v1/models
  Tokenizer tokenizer;
  std::optional<ChatTemplates> templates;
  std::string no_templates_reason;  // when there are none
  GenerationDefaults generation;
  std::vector<TokenId> eos_ids;
  EngineLimits limits;
  KvIdentity kv_identity;  // without tenant salt
  std::int32_t block_size = 0;
};

EngineFacts facts_of(const LoadedEngine& loaded);

// Reads tokenizer and chat templates of a checkpoint directory. A model without a chat template, or
// with one that does not parse, is served without chats, with a warning in the log; one without a
// tokenizer, or with broken files, is an error.
Result<ServedModel> load_served_model(const std::string& directory, std::string name,
                                      std::int64_t created, EngineFacts facts);

}  // namespace sluice
