// WarmPrompts: the prompts that an engine keeps in memory for all tenants: system prompts and tools
// that the operator gives. Their blocks are named without a tenant's salt, and PromptWorker gives
// the leading blocks of every prompt these names where they are equal (ServedModel::warm_names). So
// warm prompts are public: `cached_tokens` shows every client whether its prompt begins with one.
//
//   add() each chat -> hold() -> restore() what a snapshot has -> next_missing() until empty
//
// Owner: whatever loads the engine. Threads: the engine's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/hash128.h"
#include "base/result.h"
#include "base/token_id.h"
#include "engine/engine.h"
#include "front/served_model.h"
#include "front/warm_chat.h"
#include "front/warm_image.h"
#include "request/request.h"

namespace sluice {

class WarmPrompts {
 public:
  // The share of KV memory that warm prompts take at most, unless the operator says otherwise.
  static constexpr double kDefaultLimit = 0.25;

  // Renders the chat and names its blocks. A chat that is there already is not added again.
  // Errors are those of warm_tokens().
  Status add(const WarmChat& chat, const ServedModel& model);
  // Renders the chats again: a template may name the date. True if the tokens of a prompt are
  // others now; a line says so, and next_missing() computes the prompt. Then names() are others,
  // and hold() must be called again. A chat that is refused now keeps its tokens, with a warning.
  bool refresh(const ServedModel& model);
  // Adds the prompts of an image with the tokens that it has, for a command that renders no chats.
  void add_stored(const WarmImage& image, const KvIdentity& identity);
  bool empty() const { return prompts_.empty(); }
  std::int64_t num_tokens() const;

  // The names for ServedModel::warm_names, sorted.
  std::vector<Hash128> names() const;

  // Ends all holds of before, and holds the prompts' blocks in the order in which the prompts were
  // added, as long as they take
  // at most `limit` of the KV memory. A warning tells which prompt is not held.
  void hold(Engine& engine, double limit) const;

  // Fills blocks from an image, where its tokens are those of a prompt. A line tells each prompt of
  // the image whose tokens are others now. Errors are the engine's.
  Status restore(Engine& engine, const WarmImage& image, const KvIdentity& identity) const;

  // A request that computes the next prompt whose blocks are not in memory; each prompt once.
  // Nothing: all were asked for. `id` of kFirstOperatorId and more.
  std::optional<Request> next_missing(const Engine& engine, const ServedModel& model, RequestId id,
                                      TimePoint now);
  // Prompts whose blocks are all in memory.
  std::size_t num_ready(const Engine& engine) const;
  std::size_t size() const { return prompts_.size(); }

  // The bytes that encode() takes, about.
  std::uint64_t image_bytes(const Engine& engine) const;
  // The section of a snapshot: every prompt, and its blocks that are in memory.
  Result<std::vector<std::byte>> encode(Engine& engine, std::int32_t block_size) const;

 private:
  struct Prompt {
    WarmChat chat;
    std::vector<TokenId> tokens;
    std::vector<Hash128> names;
  };
  static bool is_ready(const Engine& engine, const Prompt& prompt);

  std::vector<Prompt> prompts_;
  std::size_t next_ = 0;  // of next_missing()
};

}  // namespace sluice
