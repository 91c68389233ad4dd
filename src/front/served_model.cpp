#include "front/served_model.h"

#include <utility>

#include "base/log.h"

namespace sluice {

namespace {

// Warns the operator of a broken template at start, before the first client needs it.
void warn_about_templates(const ChatTemplates* templates, const std::string& no_templates_reason) {
  std::string reason = no_templates_reason;
  if (templates != nullptr) {
    const auto chosen = templates->choose(ToolsGiven::kNo);
    if (chosen) return;
    reason = chosen.error().message;
  }
  log_warning("Chat requests will be refused: " + reason);
}

}  // namespace

EngineFacts facts_of(const LoadedEngine& loaded) {
  return {.limits = loaded.engine->limits(),
          .generation = loaded.generation,
          .eos_ids = loaded.eos_ids,
          .kv_identity = loaded.kv_identity,
          .block_size = loaded.block_size,
          .adapters = loaded.adapters};
}

Result<ServedText> load_served_text(const std::string& directory, Snapshot& snapshot,
                                    const std::string& template_file) {
  ASSIGN_OR_RETURN(LoadedTokenizer tokenizer, load_tokenizer(directory, snapshot));
  auto templates = load_chat_templates(directory, snapshot, template_file);
  std::string no_templates_reason;
  if (!templates) {
    if (templates.error().code != ErrorCode::kNotFound) return std::move(templates).error();
    no_templates_reason = templates.error().message;
  }
  const auto embedding = load_embedding_config(directory);
  warn_about_templates(templates ? &*templates : nullptr, no_templates_reason);
  return ServedText{std::move(tokenizer),
                    templates ? std::optional(*std::move(templates)) : std::nullopt,
                    std::move(no_templates_reason), embedding ? *embedding : EmbeddingConfig{},
                    embedding ? std::string() : embedding.error().message};
}

ServedModel make_served_model(ServedText text, std::string name, std::int64_t created,
                              EngineFacts facts) {
  return ServedModel{.name = std::move(name),
                     .created = created,
                     .tokenizer = std::move(text.tokenizer.tokenizer),
                     .tokenizer_source = text.tokenizer.source,
                     .templates = std::move(text.templates),
                     .no_templates_reason = std::move(text.no_templates_reason),
                     .tool_format = nullptr,
                     .reasoning_format = nullptr,
                     .embedding = text.embedding,
                     .no_embedding_reason = std::move(text.no_embedding_reason),
                     .generation = std::move(facts.generation),
                     .eos_ids = std::move(facts.eos_ids),
                     .limits = facts.limits,
                     .kv_identity = std::move(facts.kv_identity),
                     .block_size = facts.block_size,
                     .adapters = std::move(facts.adapters),
                     .local_time = local_time_now,
                     .warm_names = std::make_unique<WarmNames>(),
                     .grammars = std::make_unique<GrammarCompiler>()};
}

Result<ServedModel> load_served_model(const std::string& directory, std::string name,
                                      std::int64_t created, EngineFacts facts) {
  Snapshot off;
  ASSIGN_OR_RETURN(ServedText text, load_served_text(directory, off));
  return make_served_model(std::move(text), std::move(name), created, std::move(facts));
}

}  // namespace sluice
