#include "front/prompt_builder.h"

#include <fmt/format.h>

#include <utility>

namespace sluice {
namespace {

tl::unexpected<PromptError> fault(PromptFault kind, Error error) {
  return tl::unexpected(PromptError{kind, std::move(error)});
}

std::string tagged(std::string_view tag, std::string_view text) {
  return text.empty() ? std::string() : fmt::format("{}:{}:{}", tag, text.size(), text);
}

}  // namespace

PromptWorker::PromptWorker(const ServedModel& model)
    : model_(model),
      identity_(model.kv_identity),
      hasher_(block_hash_root(model.kv_identity), model.block_size) {}

PromptResult<std::vector<TokenId>> PromptWorker::tokenize_text(std::string_view text,
                                                               AddSpecialTokens add) {
  const EncodeOptions options{.add_special_tokens = add};
  std::vector<TokenId> ids;
  auto status = model_.tokenizer.encode(text, options, scratch_, ids);
  if (!status) return fault(PromptFault::kText, std::move(status).error());
  return ids;
}

PromptResult<std::vector<TokenId>> PromptWorker::tokenize_chat(const ChatParts& chat,
                                                               AddSpecialTokens add) {
  if (!model_.templates) {
    return fault(PromptFault::kChat, invalid_argument(model_.no_templates_reason));
  }
  const auto text = render_chat(*model_.templates, chat, local_time_now());
  if (!text) return fault(PromptFault::kChat, text.error());
  auto ids = tokenize_text(*text, add);
  if (!ids) ids.error().fault = PromptFault::kChat;
  return ids;
}

PromptResult<PreparedPrompt> PromptWorker::from_text(std::string_view text, AddSpecialTokens add,
                                                     std::string_view salt) {
  auto ids = tokenize_text(text, add);
  if (!ids) return tl::unexpected(std::move(ids).error());
  return prepare(*std::move(ids), salt);
}

PromptResult<PreparedPrompt> PromptWorker::from_ids(std::vector<TokenId> ids,
                                                    std::string_view salt) {
  return prepare(std::move(ids), salt);
}

PromptResult<PreparedPrompt> PromptWorker::from_chat(const ChatParts& chat, AddSpecialTokens add,
                                                     std::string_view salt) {
  auto ids = tokenize_chat(chat, add);
  if (!ids) return tl::unexpected(std::move(ids).error());
  return prepare(*std::move(ids), salt);
}

PromptResult<PreparedPrompt> PromptWorker::prepare(std::vector<TokenId> ids,
                                                   std::string_view salt) {
  if (ids.empty()) {
    return fault(PromptFault::kEmpty,
                 invalid_argument("the prompt is empty; it must have at least one token"));
  }
  const EngineLimits& limits = model_.limits;
  if (ids.size() >= static_cast<std::size_t>(limits.max_model_len)) {
    return fault(PromptFault::kContextLength,
                 invalid_argument(fmt::format(
                     "This model's maximum context length is {} tokens, and the prompt has {}; it "
                     "must leave room for at least one token of output. Shorten the prompt.",
                     limits.max_model_len, ids.size())));
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < limits.vocab_size) continue;
    return fault(PromptFault::kTokenIds,
                 invalid_argument(fmt::format("token {} of the prompt has id {}; the model's "
                                              "vocabulary has 0 to {}",
                                              i, ids[i], limits.vocab_size - 1)));
  }
  PreparedPrompt prompt;
  identity_.tenant_salt = salt;
  prompt.block_hash_root = block_hash_root(identity_);
  hasher_.set_root(prompt.block_hash_root);
  prompt.block_hashes = hasher_.hash_prompt(ids);
  prompt.ids = std::move(ids);
  return prompt;
}

std::string tenant_salt(std::string_view key_name, std::string_view cache_salt) {
  return tagged("key", key_name) + tagged("salt", cache_salt);
}

}  // namespace sluice
