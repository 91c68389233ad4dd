// PromptWorker: turns text, token ids or a chat into the prompt of a request: token ids that the
// model can run, and the names of their KV blocks.
// Owner: a worker thread; one thread at a time, each with its own (it keeps working memory). The
// ServedModel must outlive it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "base/hash128.h"
#include "base/result.h"
#include "base/stop_check.h"
#include "base/token_id.h"
#include "front/chat_prompt.h"
#include "front/prompt_truncation.h"
#include "front/served_model.h"
#include "kv/block_hash.h"
#include "tokenizer/tokenizer.h"

namespace sluice {

// The kind of fault of a prompt, for callers that answer each kind differently.
enum class PromptFault : std::uint8_t {
  kText,           // the text is not UTF-8, ...
  kChat,           // messages, tools or template variables; or the model has no chat template
  kTokenIds,       // an id that the model does not have
  kEmpty,          // no token at all
  kContextLength,  // too long for any context
  kStopped,        // `error` is the stop check's, unchanged
};

struct PromptError {
  PromptFault fault = PromptFault::kText;
  Error error;
};

template <class T>
using PromptResult = tl::expected<T, PromptError>;

struct PreparedPrompt {
  std::vector<TokenId> ids;
  std::vector<Hash128> block_hashes;  // of the full blocks
  Hash128 block_hash_root;
};

// The functions call a StopCheck (base/stop_check.h) while they render and tokenize; by default the
// work is never stopped. The server's check returns an error if the client has left or the
// request's time is over.
class PromptWorker {
 public:
  explicit PromptWorker(const ServedModel& model);

  // The adapter of all later prompts, whose content enters the names of their blocks; null: none.
  void use_adapter(const AdapterContent* content);

  // A prompt that cannot fit the context is refused as soon as that is certain: by its bytes
  // before any work, or when the tokens pass the limit.
  // With a truncation no prompt is refused before it is tokenized whole. The first token is kept
  // when it is the BOS that the tokenizer added.
  // `tenant_salt` as tenant_salt() below makes it; empty = the public domain. The leading blocks
  // that equal those of a warm prompt are named without it, so that all tenants share them.
  PromptResult<PreparedPrompt> from_text(std::string_view text, AddSpecialTokens add_special_tokens,
                                         std::string_view tenant_salt, const StopCheck& stop = {},
                                         const PromptTruncation& truncation = {});
  // The ids are used as they are.
  PromptResult<PreparedPrompt> from_ids(std::vector<TokenId> ids, std::string_view tenant_salt,
                                        const PromptTruncation& truncation = {});
  // A template mostly writes the special tokens itself: AddSpecialTokens::kNo.
  PromptResult<PreparedPrompt> from_chat(const ChatParts& chat, AddSpecialTokens add_special_tokens,
                                         std::string_view tenant_salt, const StopCheck& stop = {},
                                         const PromptTruncation& truncation = {});

  // Only the tokens: there may be none, or more than the context holds.
  PromptResult<std::vector<TokenId>> tokenize_text(std::string_view text,
                                                   AddSpecialTokens add_special_tokens,
                                                   const StopCheck& stop = {});
  PromptResult<std::vector<TokenId>> tokenize_chat(const ChatParts& chat,
                                                   AddSpecialTokens add_special_tokens,
                                                   const StopCheck& stop = {});

  const ServedModel& model() const { return model_; }

 private:
  PromptResult<std::vector<TokenId>> encode(std::string_view text, const EncodeOptions& options);
  PromptResult<std::vector<TokenId>> encode_chat(const ChatParts& chat,
                                                 const EncodeOptions& options);
  // Options for a prompt that must fit the context.
  EncodeOptions prompt_options(AddSpecialTokens add, const StopCheck& stop,
                               const PromptTruncation& truncation) const;
  void truncate(AddSpecialTokens add, const PromptTruncation& truncation,
                std::vector<TokenId>& ids) const;
  PromptError too_long(std::string_view tokens) const;
  std::vector<Hash128> name_blocks(std::span<const TokenId> ids, Hash128 root);
  PromptResult<PreparedPrompt> prepare(std::vector<TokenId> ids, std::string_view tenant_salt);

  const ServedModel& model_;
  EncodeScratch scratch_;
  KvIdentity identity_;
  Hash128 operator_root_;  // without a tenant's salt
  BlockHasher hasher_;
};

// Keeps the cached blocks of tenants apart. `key_name` is the name of the API key (empty = no key),
// `cache_salt` the client's own salt (empty = none). Different pairs give different salts; two
// empty ones give the empty salt, the public domain. Format: "key:" length ":" name, then "salt:"
// length ":" salt, each only when it is not empty.
std::string tenant_salt(std::string_view key_name, std::string_view cache_salt);

}  // namespace sluice
