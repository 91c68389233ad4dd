#include "apps/snapshot_verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>
#include <vector>

#include "apps/exit_code.h"
#include "apps/local_engine.h"
#include "apps/open_snapshot.h"
#include "apps/warm_start.h"
#include "base/content_hash.h"
#include "base/json.h"
#include "base/text.h"
#include "front/text_sections.h"
#include "front/warm_image.h"
#include "kv/block_hash.h"

namespace sluice {
namespace {

using nlohmann::ordered_json;

constexpr std::int32_t kPromptTokens = 8;
constexpr std::int32_t kOutputTokens = 8;

// One start and what the model said.
struct Start {
  std::vector<StartupSpan> spans;
  Duration total{0};
  std::string line;
  std::vector<TokenId> tokens;
  Hash128 logits;        // of all rows, whole
  std::size_t rows = 0;  // of logits
  std::vector<SectionOutcome> sections;
};

// Prompts that both starts are asked.
using Prompts = std::vector<std::vector<TokenId>>;

std::vector<TokenId> short_prompt(const EngineLimits& limits) {
  std::vector<TokenId> prompt;
  const std::int32_t length = std::clamp(limits.max_model_len - kOutputTokens, 1, kPromptTokens);
  for (std::int32_t i = 0; i < length; ++i) {
    prompt.push_back(static_cast<TokenId>(i % limits.vocab_size));
  }
  return prompt;
}

// Log-probabilities make every device's rows go through the host, whole.
Request make_request(const LoadedEngine& loaded, RequestId id, std::vector<TokenId> prompt,
                     TimePoint now) {
  Request request;
  request.id = id;
  request.prompt = std::move(prompt);
  request.block_hash_root = block_hash_root(loaded.kv_identity);
  request.block_hashes =
      BlockHasher(*request.block_hash_root, loaded.block_size).hash_prompt(request.prompt);
  request.arrival = now;
  request.sampling.max_tokens = kOutputTokens;
  request.sampling.temperature = 0;
  request.sampling.ignore_eos = true;
  request.sampling.logprobs = 1;
  return request;
}

// Runs the prompts one after the other.
Status ask(LoadedEngine& loaded, const Prompts& prompts, const Clock& clock, Start& start) {
  ContentHasher hasher;
  loaded.logits->watch_logits([&](std::span<const float> row) {
    hasher.update(std::as_bytes(row));
    ++start.rows;
  });
  RequestId id = 1;
  for (const std::vector<TokenId>& prompt : prompts) {
    RETURN_IF_ERROR(loaded.engine->add_request(make_request(loaded, id++, prompt, clock.now())));
    while (loaded.engine->has_work()) {
      ASSIGN_OR_RETURN(const auto outputs, loaded.engine->step());
      for (const ChoiceOutput& output : outputs) {
        start.tokens.insert(start.tokens.end(), output.tokens.begin(), output.tokens.end());
      }
    }
    // Steps use graphs once all weights are in: the prompts from the second one on.
    if (loaded.stream != nullptr) RETURN_IF_ERROR(loaded.stream->finish());
  }
  loaded.logits->watch_logits({});
  start.logits = hasher.digest();
  return {};
}

// A turn behind each warm prompt of the file; nothing for a file without.
Result<Prompts> warm_turns(SnapshotFile& file) {
  Prompts prompts;
  for (const SnapshotSection& section : file.table().sections) {
    if (section.kind != kWarmPromptsSection.name ||
        section.version != kWarmPromptsSection.version) {
      continue;
    }
    ASSIGN_OR_RETURN(const std::vector<std::byte> bytes, file.copy(section));
    ASSIGN_OR_RETURN(WarmImage image, decode_warm_image(bytes));
    for (WarmImage::Prompt& prompt : image.prompts) {
      prompt.tokens.push_back(TokenId{0});
      prompts.push_back(std::move(prompt.tokens));
    }
  }
  return prompts;
}

// A file may have warm prompts of another model, or of one with a longer context.
bool fits(const std::vector<TokenId>& prompt, const EngineLimits& limits) {
  return static_cast<std::int64_t>(prompt.size()) + kOutputTokens <= limits.max_model_len &&
         std::ranges::max(prompt) < limits.vocab_size;
}

// Whether the file was saved for this very model is worth a line; sections have their own keys.
Status check_model(const VerifyArguments& arguments, const EngineOptions& options,
                   Snapshot& snapshot) {
  if (snapshot.mode() != SnapshotMode::kFile) return {};
  ASSIGN_OR_RETURN(const SnapshotKey content,
                   model_content(arguments.model, options, snapshot.model()));
  if (snapshot.find(kModelSection, content)) snapshot.restored(kModelSection);
  return {};
}

Result<Start> start_once(const VerifyArguments& arguments, const EngineOptions& options,
                         const SnapshotChoice& choice, Prompts prompts) {
  EngineOptions chosen = options;
  chosen.snapshot = choice;
  const SystemClock clock;
  StartupTimeline timeline(clock);
  Start start;
  ASSIGN_OR_RETURN(Snapshot snapshot, open_snapshot(arguments.model, chosen, clock));
  timeline.mark("snapshot");
  RETURN_IF_ERROR(check_model(arguments, options, snapshot));
  timeline.mark("content digest");
  ASSIGN_OR_RETURN(LocalEngine local,
                   load_local_engine(arguments.model, options, clock, timeline, snapshot));
  const WarmFacts facts = warm_facts(arguments.model, options, local);
  RETURN_IF_ERROR(
      restore_stored_warm(facts, *local.loaded.engine, snapshot).map([](std::size_t) {}));
  if (!prompts.empty()) timeline.mark("warm prompts");
  const auto tokenizer = load_tokenizer(arguments.model, snapshot);
  if (!tokenizer && tokenizer.error().code != ErrorCode::kNotFound) return tokenizer.error();
  timeline.mark(span_name(tokenizer ? tokenizer->source : TokenizerSource::kFiles));
  const EngineLimits limits = local.loaded.engine->limits();
  std::erase_if(prompts, [&](const auto& prompt) { return !fits(prompt, limits); });
  prompts.insert(prompts.begin(), 2, short_prompt(limits));
  RETURN_IF_ERROR(ask(local.loaded, prompts, clock, start));
  timeline.mark("first tokens");
  start.spans = timeline.spans();
  start.total = timeline.total();
  start.line = timeline.line();
  start.sections = snapshot.outcomes();
  return start;
}

// Where restored graphs lie; empty for other sections.
std::string_view placed_name(RestoreMode mode) {
  switch (mode) {
    case RestoreMode::kLayout: return "layout";
    case RestoreMode::kRelocate: return "relocate";
    case RestoreMode::kAutomatic: break;
  }
  return "";
}

ordered_json start_json(const Start& start) {
  ordered_json spans = ordered_json::array();
  for (const StartupSpan& span : start.spans) {
    spans.push_back({{"name", span.name},
                     {"from_ms", to_milliseconds(span.begin)},
                     {"ms", to_milliseconds(span.duration)}});
  }
  return {{"total_ms", to_milliseconds(start.total)},
          {"spans", std::move(spans)},
          {"tokens", start.tokens},
          {"logits", to_hex(start.logits)},
          {"logit_rows", start.rows}};
}

void print_json(const Start& without, const Start& with, bool equal) {
  ordered_json sections = ordered_json::array();
  for (const SectionOutcome& section : with.sections) {
    ordered_json object = {{"kind", section.kind},
                           {"made", section.restored ? "restored" : "native"},
                           {"ms", to_milliseconds(section.duration)}};
    if (!section.restored) object["reason"] = section.reason;
    const std::string_view placed = placed_name(section.mode);
    if (!placed.empty()) object["placed"] = placed;
    sections.push_back(std::move(object));
  }
  const ordered_json object = {{"equal", equal},
                               {"without", start_json(without)},
                               {"with", start_json(with)},
                               {"sections", std::move(sections)}};
  fmt::print("{}\n", dump_json(object));
}

void print_text(const Start& without, const Start& with, bool equal) {
  fmt::print("without: {}\nwith:    {}\n", without.line, with.line);
  for (const SectionOutcome& section : with.sections) {
    const std::string_view placed = placed_name(section.mode);
    fmt::print("section {}: {}{}{} in {:.2f} ms{}{}\n", section.kind,
               section.restored ? "restored" : "made natively", placed.empty() ? "" : " by ",
               placed, to_milliseconds(section.duration), section.reason.empty() ? "" : "; ",
               section.reason);
  }
  for (const Start* start : {&without, &with}) {
    fmt::print("{} tokens {}, {} rows of logits {}\n",
               start == &without ? "without:" : "with:   ", join(start->tokens, " "), start->rows,
               to_hex(start->logits));
  }
  fmt::print("{}\n", equal ? "equal" : "DIFFERENT: do not use this snapshot");
}

}  // namespace

Result<int> verify_snapshot(const VerifyArguments& arguments, const EngineOptions& options) {
  ASSIGN_OR_RETURN(SnapshotFile file, SnapshotFile::open(arguments.file));
  RETURN_IF_ERROR(file.verify());
  ASSIGN_OR_RETURN(const Prompts warm, warm_turns(file));
  ASSIGN_OR_RETURN(const Start without, start_once(arguments, options, {}, warm));
  ASSIGN_OR_RETURN(
      const Start with,
      start_once(arguments, options,
                 {SnapshotMode::kFile, arguments.file, false, options.snapshot.restore}, warm));
  const bool equal = without.tokens == with.tokens && without.logits == with.logits;
  if (arguments.json) {
    print_json(without, with, equal);
  } else {
    print_text(without, with, equal);
  }
  return equal ? kExitSuccess : kExitError;
}

}  // namespace sluice
