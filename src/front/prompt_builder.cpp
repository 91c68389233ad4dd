#include "front/prompt_builder.h"

#include <fmt/format.h>

#include <algorithm>
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
      operator_root_(block_hash_root(model.kv_identity)),
      hasher_(operator_root_, model.block_size) {}

void PromptWorker::use_adapter(const AdapterContent* content) {
  identity_.adapter_digest = content == nullptr ? std::string() : content->image.digest;
}

PromptResult<std::vector<TokenId>> PromptWorker::encode(std::string_view text,
                                                        const EncodeOptions& options) {
  std::vector<TokenId> ids;
  auto status = model_.tokenizer.encode(text, options, scratch_, ids);
  if (status) return ids;
  switch (status.error().code) {
    case ErrorCode::kInvalidArgument: return fault(PromptFault::kText, std::move(status).error());
    case ErrorCode::kResourceExhausted:
      return tl::unexpected(too_long(fmt::format("at least {}", options.max_tokens + 1)));
    default: return fault(PromptFault::kStopped, std::move(status).error());
  }
}

PromptResult<std::vector<TokenId>> PromptWorker::encode_chat(const ChatParts& chat,
                                                             const EncodeOptions& options) {
  if (!model_.templates) {
    return fault(PromptFault::kChat, invalid_argument(model_.no_templates_reason));
  }
  auto text = render_chat(*model_.templates, chat, model_.local_time(), options.stop);
  if (!text) {
    const ErrorCode code = text.error().code;
    const bool stopped = code == ErrorCode::kCancelled || code == ErrorCode::kDeadlineExceeded;
    return fault(stopped ? PromptFault::kStopped : PromptFault::kChat, std::move(text).error());
  }
  auto ids = encode(*text, options);
  if (!ids && ids.error().fault == PromptFault::kText) ids.error().fault = PromptFault::kChat;
  return ids;
}

EncodeOptions PromptWorker::prompt_options(AddSpecialTokens add, const StopCheck& stop,
                                           const PromptTruncation& truncation) const {
  EncodeOptions options{.add_special_tokens = add, .stop = &stop};
  if (!truncation.max_tokens) {
    options.max_tokens = static_cast<std::size_t>(model_.limits.max_model_len) - 1;
  }
  return options;
}

void PromptWorker::truncate(AddSpecialTokens add, const PromptTruncation& truncation,
                            std::vector<TokenId>& ids) const {
  if (!truncation.max_tokens || ids.size() <= *truncation.max_tokens) return;
  if (truncation.side == TruncationSide::kRight) return ids.resize(*truncation.max_tokens);
  const bool has_bos = add == AddSpecialTokens::kYes && model_.tokenizer.bos_id() == ids.front();
  const auto cut = static_cast<std::ptrdiff_t>(ids.size() - *truncation.max_tokens);
  const auto first = ids.begin() + (has_bos ? 1 : 0);
  ids.erase(first, first + cut);
}

PromptResult<std::vector<TokenId>> PromptWorker::tokenize_text(std::string_view text,
                                                               AddSpecialTokens add,
                                                               const StopCheck& stop) {
  return encode(text, {.add_special_tokens = add, .stop = &stop});
}

PromptResult<std::vector<TokenId>> PromptWorker::tokenize_chat(const ChatParts& chat,
                                                               AddSpecialTokens add,
                                                               const StopCheck& stop) {
  return encode_chat(chat, {.add_special_tokens = add, .stop = &stop});
}

PromptResult<PreparedPrompt> PromptWorker::from_text(std::string_view text, AddSpecialTokens add,
                                                     std::string_view salt, const StopCheck& stop,
                                                     const PromptTruncation& truncation) {
  auto ids = encode(text, prompt_options(add, stop, truncation));
  if (!ids) return tl::unexpected(std::move(ids).error());
  truncate(add, truncation, *ids);
  return prepare(*std::move(ids), salt);
}

PromptResult<PreparedPrompt> PromptWorker::from_ids(std::vector<TokenId> ids, std::string_view salt,
                                                    const PromptTruncation& truncation) {
  truncate(AddSpecialTokens::kNo, truncation, ids);
  return prepare(std::move(ids), salt);
}

PromptResult<PreparedPrompt> PromptWorker::from_chat(const ChatParts& chat, AddSpecialTokens add,
                                                     std::string_view salt, const StopCheck& stop,
                                                     const PromptTruncation& truncation) {
  auto ids = encode_chat(chat, prompt_options(add, stop, truncation));
  if (!ids) return tl::unexpected(std::move(ids).error());
  truncate(add, truncation, *ids);
  return prepare(*std::move(ids), salt);
}

PromptError PromptWorker::too_long(std::string_view tokens) const {
  return {PromptFault::kContextLength,
          context_length_exceeded(fmt::format(
              "This model's maximum context length is {} tokens, and the prompt has {}; it must "
              "leave room for at least one token of output. Shorten the prompt.",
              model_.limits.max_model_len, tokens))};
}

// The names of warm prompts end at the first block that no warm prompt has. The block after it
// follows a public one, and its own name is the tenant's.
std::vector<Hash128> PromptWorker::name_blocks(std::span<const TokenId> ids, Hash128 root) {
  std::vector<Hash128> names;
  const auto shared = model_.warm_names->get();
  const std::vector<Hash128>& warm = *shared;
  const auto block = static_cast<std::size_t>(model_.block_size);
  // Warm prompts are the base model's.
  if (!warm.empty() && root != operator_root_ && identity_.adapter_digest.empty()) {
    hasher_.set_root(operator_root_);
    for (std::size_t first = 0; first + block <= ids.size(); first += block) {
      const Hash128 parent = names.empty() ? Hash128{} : names.back();
      const Hash128 name = hasher_.hash_block(parent, ids.subspan(first, block));
      if (!std::ranges::binary_search(warm, name)) break;
      names.push_back(name);
    }
  }
  hasher_.set_root(root);
  hasher_.extend(ids, names);
  return names;
}

PromptResult<PreparedPrompt> PromptWorker::prepare(std::vector<TokenId> ids,
                                                   std::string_view salt) {
  if (ids.empty()) {
    return fault(PromptFault::kEmpty,
                 invalid_argument("the prompt is empty; it must have at least one token"));
  }
  const EngineLimits& limits = model_.limits;
  if (ids.size() >= static_cast<std::size_t>(limits.max_model_len)) {
    return tl::unexpected(too_long(std::to_string(ids.size())));
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
  prompt.block_hashes = name_blocks(ids, prompt.block_hash_root);
  prompt.ids = std::move(ids);
  return prompt;
}

std::string tenant_salt(std::string_view key_name, std::string_view cache_salt) {
  return tagged("key", key_name) + tagged("salt", cache_salt);
}

}  // namespace sluice
