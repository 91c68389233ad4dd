#include "apps/snapshot_verify.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>
#include <vector>

#include "apps/exit_code.h"
#include "apps/local_engine.h"
#include "apps/open_snapshot.h"
#include "base/content_hash.h"
#include "front/text_sections.h"

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
  Hash128 logits;  // of the log-probabilities, whose sums take in every logit
  std::vector<SectionOutcome> sections;
};

Request make_request(const EngineLimits& limits, TimePoint now) {
  Request request;
  request.id = 1;
  const std::int32_t length = std::clamp(limits.max_model_len - kOutputTokens, 1, kPromptTokens);
  for (std::int32_t i = 0; i < length; ++i) {
    request.prompt.push_back(static_cast<TokenId>(i % limits.vocab_size));
  }
  request.arrival = now;
  request.sampling.max_tokens = kOutputTokens;
  request.sampling.temperature = 0;
  request.sampling.ignore_eos = true;
  request.sampling.logprobs = std::min(kMaxLogprobs, limits.vocab_size - 1);
  return request;
}

Status generate(Engine& engine, const Clock& clock, Start& start) {
  RETURN_IF_ERROR(engine.add_request(make_request(engine.limits(), clock.now())));
  ContentHasher hasher;
  while (engine.has_work()) {
    ASSIGN_OR_RETURN(const auto outputs, engine.step());
    for (const ChoiceOutput& output : outputs) {
      start.tokens.insert(start.tokens.end(), output.tokens.begin(), output.tokens.end());
      hasher.update(std::as_bytes(output.logprobs));
    }
  }
  start.logits = hasher.digest();
  return {};
}

// Whether the file was saved for this very model is worth a line; sections have their own keys.
Status check_model(const VerifyArguments& arguments, const EngineOptions& options,
                   Snapshot& snapshot) {
  if (snapshot.mode() != SnapshotMode::kFile) return {};
  ASSIGN_OR_RETURN(const SnapshotKey content, model_content(arguments.model, options));
  if (snapshot.find(kModelSection, content)) snapshot.restored(kModelSection);
  return {};
}

Result<Start> start_once(const VerifyArguments& arguments, const EngineOptions& options,
                         const SnapshotChoice& choice) {
  EngineOptions chosen = options;
  chosen.snapshot = choice;
  const SystemClock clock;
  StartupTimeline timeline(clock);
  Start start;
  ASSIGN_OR_RETURN(Snapshot snapshot, open_snapshot(arguments.model, chosen, clock));
  timeline.mark("snapshot");
  RETURN_IF_ERROR(check_model(arguments, options, snapshot));
  timeline.mark("content digest");
  ASSIGN_OR_RETURN(const LocalEngine local,
                   load_local_engine(arguments.model, options, clock, timeline, snapshot));
  const auto tokenizer = load_tokenizer(arguments.model, snapshot);
  if (!tokenizer && tokenizer.error().code != ErrorCode::kNotFound) return tokenizer.error();
  timeline.mark(span_name(tokenizer ? tokenizer->source : TokenizerSource::kFiles));
  RETURN_IF_ERROR(generate(*local.loaded.engine, clock, start));
  timeline.mark("first tokens");
  start.spans = timeline.spans();
  start.total = timeline.total();
  start.line = timeline.line();
  start.sections = snapshot.outcomes();
  return start;
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
          {"logits", to_hex(start.logits)}};
}

void print_json(const Start& without, const Start& with, bool equal) {
  ordered_json sections = ordered_json::array();
  for (const SectionOutcome& section : with.sections) {
    ordered_json object = {{"kind", section.kind},
                           {"made", section.restored ? "restored" : "native"},
                           {"ms", to_milliseconds(section.duration)}};
    if (!section.restored) object["reason"] = section.reason;
    sections.push_back(std::move(object));
  }
  const ordered_json object = {{"equal", equal},
                               {"without", start_json(without)},
                               {"with", start_json(with)},
                               {"sections", std::move(sections)}};
  fmt::print("{}\n", object.dump(-1, ' ', false, ordered_json::error_handler_t::replace));
}

void print_text(const Start& without, const Start& with, bool equal) {
  fmt::print("without: {}\nwith:    {}\n", without.line, with.line);
  for (const SectionOutcome& section : with.sections) {
    fmt::print("section {}: {} in {:.2f} ms{}{}\n", section.kind,
               section.restored ? "restored" : "made natively", to_milliseconds(section.duration),
               section.reason.empty() ? "" : "; ", section.reason);
  }
  for (const Start* start : {&without, &with}) {
    fmt::print("{} tokens {}, logits {}\n",
               start == &without ? "without:" : "with:   ", fmt::join(start->tokens, " "),
               to_hex(start->logits));
  }
  fmt::print("{}\n", equal ? "equal" : "DIFFERENT: do not use this snapshot");
}

}  // namespace

Result<int> verify_snapshot(const VerifyArguments& arguments, const EngineOptions& options) {
  ASSIGN_OR_RETURN(SnapshotFile file, SnapshotFile::open(arguments.file));
  RETURN_IF_ERROR(file.verify());
  ASSIGN_OR_RETURN(const Start without, start_once(arguments, options, {}));
  ASSIGN_OR_RETURN(const Start with,
                   start_once(arguments, options, {SnapshotMode::kFile, arguments.file}));
  const bool equal = without.tokens == with.tokens && without.logits == with.logits;
  if (arguments.json) {
    print_json(without, with, equal);
  } else {
    print_text(without, with, equal);
  }
  return equal ? kExitSuccess : kExitError;
}

}  // namespace sluice
