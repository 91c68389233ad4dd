// ServedModel: everything between text and tokens for one model: tokenizer, chat templates,
// sampling defaults, the format of tool calls, and the identity that names the KV blocks of
// prompts. The command line and the server share it. Immutable after loading: any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "adapter/adapter_store.h"
#include "base/hash128.h"
#include "base/result.h"
#include "base/token_id.h"
#include "chat_template/chat_context.h"
#include "chat_template/template_loader.h"
#include "engine/engine.h"
#include "engine/engine_loader.h"
#include "front/embedding_config.h"
#include "front/reasoning_stream.h"
#include "front/text_sections.h"
#include "front/tool_format.h"
#include "front/warm_names.h"
#include "grammar/grammar_compiler.h"
#include "kv/block_hash.h"
#include "model/generation_defaults.h"
#include "tokenizer/tokenizer.h"

namespace sluice {

// The facts that the loaded engine states about its model.
struct EngineFacts {
  EngineLimits limits;
  GenerationDefaults generation;
  std::vector<TokenId> eos_ids;  // those at which sequences end
  KvIdentity kv_identity;        // without tenant salt
  std::int32_t block_size = 0;
  SharedAdapters adapters = nullptr;  // null: the engine has none
};

struct ServedModel {
  std::string name;          // as clients call it
  std::int64_t created = 0;  // Unix seconds, for /v1/models
  Tokenizer tokenizer;
  TokenizerSource tokenizer_source = TokenizerSource::kFiles;
  std::optional<ChatTemplates> templates;
  std::string no_templates_reason;  // when there are none
  // How the model writes tool calls; nullptr: calls are part of the answer's text.
  const ToolFormat* tool_format = nullptr;
  // How it writes reasoning; nullptr: reasoning is part of the answer's text.
  const ReasoningFormat* reasoning_format = nullptr;
  EmbeddingConfig embedding;
  std::string no_embedding_reason;  // why the model makes no vectors of texts; empty: it does
  GenerationDefaults generation;
  std::vector<TokenId> eos_ids;
  EngineLimits limits;
  KvIdentity kv_identity;  // without tenant salt
  std::int32_t block_size = 0;
  // Adapters that calls may name beside the model; null: none. They change while the model serves.
  SharedAdapters adapters = nullptr;
  // Calendar time for templates that name the date.
  std::function<std::chrono::local_seconds()> local_time = local_time_now;
  // The names of the blocks of warm prompts: all tenants share these. Has its own lock.
  std::unique_ptr<WarmNames> warm_names = std::make_unique<WarmNames>();
  // Any thread may use it: it has its own locks.
  std::unique_ptr<GrammarCompiler> grammars = std::make_unique<GrammarCompiler>();
};

EngineFacts facts_of(const LoadedEngine& loaded);

// The part of a model that needs no engine.
struct ServedText {
  LoadedTokenizer tokenizer;
  std::optional<ChatTemplates> templates;
  std::string no_templates_reason;
  EmbeddingConfig embedding;
  std::string no_embedding_reason;
};

// Reads the tokenizer and the chat templates of a checkpoint directory. If the model has no chat
// template, or its template does not parse, chats are refused and the log has a warning. A missing
// tokenizer and broken files are errors.
// `snapshot` may spare the parsing of files (text_sections.h); it must outlive the model.
// `template_file`: the only chat template, if not empty; an error if it does not parse.
Result<ServedText> load_served_text(const std::string& directory, Snapshot& snapshot,
                                    const std::string& template_file = {});

ServedModel make_served_model(ServedText text, std::string name, std::int64_t created,
                              EngineFacts facts);

// Both, without a snapshot.
Result<ServedModel> load_served_model(const std::string& directory, std::string name,
                                      std::int64_t created, EngineFacts facts);

}  // namespace sluice
