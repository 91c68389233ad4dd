#include "apps/warm_start.h"

#include <fmt/format.h>

#include <cstdint>
#include <utility>

#include "apps/open_snapshot.h"
#include "apps/option_values.h"
#include "base/file.h"
#include "base/log.h"

namespace sluice {
namespace {

constexpr std::uint64_t kMaxWarmFileBytes = std::uint64_t{16} << 20;

// The image in the snapshot, if its contents are those that this start would compute.
Result<std::optional<WarmImage>> find_image(const WarmOptions& warm, const WarmFacts& facts,
                                            const Engine& engine, Snapshot& snapshot) {
  // The cache folder's file is asked for what the operator gives now, and for nothing else.
  const bool wanted = snapshot.mode() == SnapshotMode::kFile || !warm.chats.empty();
  if (!wanted || !snapshot.has_kind(kWarmPromptsSection)) return std::optional<WarmImage>();
  ASSIGN_OR_RETURN(const SnapshotKey key, warm_key(facts, snapshot.model()));
  const auto bytes = snapshot.find(kWarmPromptsSection, key);
  if (!bytes) return std::optional<WarmImage>();
  auto image = decode_warm_image(*bytes);
  if (!image) {
    snapshot.rejected(kWarmPromptsSection, image.error().message);
    return std::optional<WarmImage>();
  }
  if (image->block_size != static_cast<std::uint32_t>(facts.options.block_size) ||
      image->block_bytes != engine.kv_block_bytes()) {
    snapshot.rejected(kWarmPromptsSection, "its blocks have another size");
    return std::optional<WarmImage>();
  }
  return std::optional<WarmImage>(*std::move(image));
}

// A chat that an earlier start accepted may be refused by this one, as with a shorter context.
void add_chats_of(const WarmImage& image, const ServedModel& model, WarmPrompts& prompts) {
  for (const WarmImage::Prompt& prompt : image.prompts) {
    const Status added = prompts.add(prompt.chat, model);
    if (!added) log_warning(fmt::format("warm prompt {}; it is left out", added.error().message));
  }
}

}  // namespace

Result<WarmOptions> read_warm_options(const WarmArguments& arguments, const EngineOptions& engine) {
  WarmOptions options;
  if (!arguments.limit.empty()) {
    const auto limit = parse_number(arguments.limit);
    if (!limit || !(*limit >= 0 && *limit <= 1)) {
      return invalid_argument(
          fmt::format("--warm-limit must be between 0 and 1, got '{}'", arguments.limit));
    }
    options.limit = *limit;
  }
  if (!arguments.files.empty() && engine.prefix_caching == PrefixCaching::kOff) {
    return invalid_argument(
        "--warm keeps prompts in the prefix cache; leave --no-enable-prefix-caching out");
  }
  for (const std::string& path : arguments.files) {
    auto text = read_file(path, kMaxWarmFileBytes);
    if (!text) return with_context("--warm", std::move(text).error());
    auto chat = parse_warm_chat(*text, path);
    if (!chat) return with_context("--warm", std::move(chat).error());
    options.chats.push_back(*std::move(chat));
  }
  return options;
}

WarmFacts warm_facts(const std::string& directory, const EngineOptions& options,
                     const LocalEngine& local) {
  return {directory, options, local.loaded.kv_identity, local.device->traits().numerics};
}

Result<SnapshotKey> warm_key(const WarmFacts& facts, const SnapshotModel& model) {
  ASSIGN_OR_RETURN(const SnapshotKey content, model_content(facts.directory, facts.options, model));
  ASSIGN_OR_RETURN(std::string program, program_digest());
  SnapshotKey key;
  for (const SnapshotFact& fact : content) {
    // Tokens are made again at each start, and compared.
    if (fact.name != "tokenizer") key.push_back(fact);
  }
  key.push_back({"program", std::move(program)});
  key.push_back({"numerics", facts.numerics});
  key.push_back({"dtype", facts.identity.weight_dtype});
  key.push_back({"kv dtype", facts.identity.kv_dtype});
  key.push_back({"block-size", fmt::format("{}", facts.identity.block_size)});
  return key;
}

Result<WarmPrompts> start_warm(const WarmOptions& warm, const WarmFacts& facts, Engine& engine,
                               ServedModel& model, Snapshot& snapshot) {
  WarmPrompts prompts;
  if (facts.options.prefix_caching == PrefixCaching::kOff) return prompts;
  for (const WarmChat& chat : warm.chats) {
    if (Status added = prompts.add(chat, model); !added) {
      return with_context("--warm", std::move(added).error());
    }
  }
  ASSIGN_OR_RETURN(const std::optional<WarmImage> image, find_image(warm, facts, engine, snapshot));
  if (image && snapshot.mode() == SnapshotMode::kFile) add_chats_of(*image, model, prompts);
  if (prompts.empty()) return prompts;
  model.warm_names->set(prompts.names());
  prompts.hold(engine, warm.limit);
  if (image) {
    RETURN_IF_ERROR(prompts.restore(engine, *image, facts.identity));
    snapshot.restored(kWarmPromptsSection);
  }
  log_info(fmt::format(
      "warm prompts: {} of {} in memory, {} tokens in all{}", prompts.num_ready(engine),
      prompts.size(), prompts.num_tokens(),
      prompts.num_ready(engine) < prompts.size() ? "; the rest is computed when idle" : ""));
  return prompts;
}

Result<std::size_t> restore_stored_warm(const WarmFacts& facts, Engine& engine,
                                        Snapshot& snapshot) {
  const bool used =
      snapshot.mode() == SnapshotMode::kFile && facts.options.prefix_caching == PrefixCaching::kOn;
  if (!used) return std::size_t{0};
  ASSIGN_OR_RETURN(const std::optional<WarmImage> image, find_image({}, facts, engine, snapshot));
  if (!image) return std::size_t{0};
  WarmPrompts prompts;
  prompts.add_stored(*image, facts.identity);
  prompts.hold(engine, WarmPrompts::kDefaultLimit);
  RETURN_IF_ERROR(prompts.restore(engine, *image, facts.identity));
  snapshot.restored(kWarmPromptsSection);
  return prompts.num_ready(engine);
}

Status compute_warm(WarmPrompts& prompts, Engine& engine, const ServedModel& model,
                    const Clock& clock) {
  RequestId id = kFirstOperatorId;
  while (auto request = prompts.next_missing(engine, model, id++, clock.now())) {
    RETURN_IF_ERROR(engine.add_request(*std::move(request)));
    while (engine.has_work()) {
      auto outputs = engine.step();
      if (!outputs) return with_context("warm prompts", std::move(outputs).error());
    }
  }
  return {};
}

}  // namespace sluice
