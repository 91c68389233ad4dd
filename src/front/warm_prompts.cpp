#include "front/warm_prompts.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "base/log.h"
#include "kv/block_hash.h"

namespace sluice {
namespace {

// A block of a group of layers.
using BlockName = std::pair<Hash128, std::int32_t>;

std::vector<Hash128> operator_names(const KvIdentity& identity, std::span<const TokenId> tokens) {
  return BlockHasher(block_hash_root(identity), identity.block_size).hash_prompt(tokens);
}

}  // namespace

Status WarmPrompts::add(const WarmChat& chat, const ServedModel& model) {
  const bool known =
      std::ranges::any_of(prompts_, [&](const Prompt& prompt) { return prompt.chat == chat; });
  if (known) return {};
  PromptWorker worker(model);
  ASSIGN_OR_RETURN(std::vector<TokenId> tokens, warm_tokens(chat, worker));
  if (tokens.empty()) {
    log_warning(fmt::format(
        "{}: two user turns behind it share less than one block of {} tokens; nothing is kept",
        chat.name, model.block_size));
    return {};
  }
  std::vector<Hash128> names = operator_names(model.kv_identity, tokens);
  prompts_.push_back({chat, std::move(tokens), std::move(names)});
  return {};
}

bool WarmPrompts::refresh(const ServedModel& model) {
  PromptWorker worker(model);
  bool changed = false;
  for (Prompt& prompt : prompts_) {
    auto tokens = warm_tokens(prompt.chat, worker);
    if (!tokens) {
      log_warning(fmt::format("warm prompt {}; it stays as it was", tokens.error().message));
      continue;
    }
    if (*tokens == prompt.tokens) continue;
    prompt.tokens = *std::move(tokens);
    prompt.names = operator_names(model.kv_identity, prompt.tokens);
    changed = true;
    log_info(fmt::format(
        "{}: its text is another one now (the template names the date or the hour); its {} tokens "
        "are computed again when the engine is idle",
        prompt.chat.name, prompt.tokens.size()));
  }
  if (changed) next_ = 0;
  return changed;
}

void WarmPrompts::add_stored(const WarmImage& image, const KvIdentity& identity) {
  for (const WarmImage::Prompt& prompt : image.prompts) {
    prompts_.push_back({prompt.chat, prompt.tokens, operator_names(identity, prompt.tokens)});
  }
}

std::int64_t WarmPrompts::num_tokens() const {
  std::int64_t tokens = 0;
  for (const Prompt& prompt : prompts_) tokens += static_cast<std::int64_t>(prompt.tokens.size());
  return tokens;
}

std::vector<Hash128> WarmPrompts::names() const {
  std::set<Hash128> names;
  for (const Prompt& prompt : prompts_) names.insert(prompt.names.begin(), prompt.names.end());
  return {names.begin(), names.end()};
}

void WarmPrompts::hold(Engine& engine, double limit) const {
  const std::int32_t all = engine.kv().options().max_blocks - 1;
  const auto most = static_cast<std::int32_t>(limit * all);
  std::int32_t held = 0;
  engine.release_blocks();
  for (const Prompt& prompt : prompts_) {
    const std::int32_t more = engine.kv().blocks_to_hold(prompt.names);
    if (held + more <= most) {
      engine.hold_blocks(prompt.names);
      held += more;
      continue;
    }
    log_warning(fmt::format(
        "{}: its {} tokens are NOT held in memory: they need {} KV blocks, and {} of the {} that "
        "warm prompts may take are left; raise --warm-limit ({}) or --kv-cache-memory",
        prompt.chat.name, prompt.tokens.size(), more, most - held, most, limit));
  }
}

Status WarmPrompts::restore(Engine& engine, const WarmImage& image,
                            const KvIdentity& identity) const {
  std::map<BlockName, std::size_t> stored;  // the block in the image
  std::vector<std::vector<Hash128>> names;
  for (const WarmImage::Prompt& prompt : image.prompts) {
    names.push_back(operator_names(identity, prompt.tokens));
  }
  for (std::size_t i = 0; i < image.blocks.size(); ++i) {
    const WarmBlockPlace& place = image.blocks[i];
    stored.emplace(
        BlockName{names[place.prompt][place.index], static_cast<std::int32_t>(place.group)}, i);
  }
  for (const Prompt& prompt : prompts_) {
    const auto contents = [&](const BlockPlace& place) -> std::span<const std::byte> {
      const auto found =
          stored.find({prompt.names[static_cast<std::size_t>(place.index)], place.group});
      if (found == stored.end()) return {};
      return image.contents_of(found->second);
    };
    RETURN_IF_ERROR(engine.restore_blocks(prompt.names, contents));
    const bool known = std::ranges::any_of(
        image.prompts, [&](const WarmImage::Prompt& p) { return p.chat == prompt.chat; });
    if (known && !is_ready(engine, prompt)) {
      log_info(fmt::format(
          "{}: its text or its share of memory is not what the snapshot has (a template may name "
          "the date); it is computed again when the engine is idle",
          prompt.chat.name));
    }
  }
  return {};
}

bool WarmPrompts::is_ready(const Engine& engine, const Prompt& prompt) {
  const auto tokens = static_cast<std::int32_t>(prompt.tokens.size());
  return engine.kv().match(prompt.names, tokens) == tokens;
}

std::size_t WarmPrompts::num_ready(const Engine& engine) const {
  return static_cast<std::size_t>(std::ranges::count_if(
      prompts_, [&](const Prompt& prompt) { return is_ready(engine, prompt); }));
}

std::optional<Request> WarmPrompts::next_missing(const Engine& engine, const ServedModel& model,
                                                 RequestId id, TimePoint now) {
  while (next_ < prompts_.size() && is_ready(engine, prompts_[next_])) ++next_;
  if (next_ == prompts_.size()) return std::nullopt;
  const Prompt& prompt = prompts_[next_++];
  Request request;
  request.id = id;
  request.prompt = prompt.tokens;
  request.block_hashes = prompt.names;
  request.block_hash_root = block_hash_root(model.kv_identity);
  request.arrival = now;
  request.priority = std::numeric_limits<std::int32_t>::max();  // after all clients'
  request.sampling.max_tokens = 1;
  request.sampling.temperature = 0;
  request.sampling.ignore_eos = true;
  return request;
}

std::uint64_t WarmPrompts::image_bytes(const Engine& engine) const {
  std::set<BlockName> blocks;
  for (const Prompt& prompt : prompts_) {
    for (const BlockPlace& place : engine.kv().needed_blocks(prompt.names)) {
      if (place.id == kNullBlock) continue;
      blocks.insert({prompt.names[static_cast<std::size_t>(place.index)], place.group});
    }
  }
  return blocks.size() * engine.kv_block_bytes();
}

Result<std::vector<std::byte>> WarmPrompts::encode(Engine& engine, std::int32_t block_size) const {
  WarmImage image;
  image.block_size = static_cast<std::uint32_t>(block_size);
  image.block_bytes = engine.kv_block_bytes();
  std::vector<std::byte> contents;
  contents.reserve(image_bytes(engine));
  std::set<BlockName> written;
  for (const Prompt& prompt : prompts_) {
    const auto number = static_cast<std::uint32_t>(image.prompts.size());
    image.prompts.push_back({prompt.chat, prompt.tokens});
    for (const BlockPlace& place : engine.kv().needed_blocks(prompt.names)) {
      const BlockName name{prompt.names[static_cast<std::size_t>(place.index)], place.group};
      if (place.id == kNullBlock || !written.insert(name).second) continue;
      image.blocks.push_back({number, static_cast<std::uint32_t>(place.index),
                              static_cast<std::uint32_t>(place.group)});
      contents.resize(contents.size() + image.block_bytes);
      RETURN_IF_ERROR(engine.read_block(place.id, std::span(contents).last(image.block_bytes)));
    }
  }
  image.contents = contents;
  return encode_warm_image(image);
}

}  // namespace sluice
