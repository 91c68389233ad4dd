#include "apps/snapshot.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "apps/canary.h"
#include "apps/exit_code.h"
#include "apps/local_engine.h"
#include "apps/open_snapshot.h"
#include "apps/snapshot_verify.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "front/served_model.h"
#include "front/text_sections.h"

namespace sluice {
namespace {

using nlohmann::ordered_json;

// One line that is drawn again and again on a terminal; nothing elsewhere.
class SaveProgress {
 public:
  void show(std::uint64_t done, std::uint64_t all) {
    if (!terminal_) return;
    constexpr std::uint64_t kWidth = 30;
    const std::uint64_t filled = all == 0 ? kWidth : done * kWidth / all;
    fmt::print(stderr, "\r[{:#<{}}{:.<{}}] {:.1f} of {:.1f} MiB", "", filled, "", kWidth - filled,
               static_cast<double>(done) / 0x1p20, static_cast<double>(all) / 0x1p20);
    drawn_ = true;
  }
  void phase(std::string_view name) {
    if (!terminal_) return;
    fmt::print(stderr, "\r\x1b[K{} ...", name);
    drawn_ = true;
  }
  void end() {
    if (drawn_) fmt::print(stderr, "\r\x1b[K");
    drawn_ = false;
  }

 private:
  bool terminal_ = isatty(STDERR_FILENO) == 1;
  bool drawn_ = false;
};

// Offers the sections of text. A model without a tokenizer, or without a chat template, has none.
Result<std::optional<LoadedTokenizer>> load_text(const std::string& directory, Snapshot& snapshot) {
  auto tokenizer = load_tokenizer(directory, snapshot);
  if (!tokenizer && tokenizer.error().code == ErrorCode::kNotFound) {
    return std::optional<LoadedTokenizer>();
  }
  if (!tokenizer) return std::move(tokenizer).error();
  const auto templates = load_chat_templates(directory, snapshot);
  if (!templates && templates.error().code != ErrorCode::kNotFound) return templates.error();
  return std::optional<LoadedTokenizer>(*std::move(tokenizer));
}

// The text side of a model with warm prompts, and these prompts, computed.
struct WarmText {
  ServedModel model;
  WarmPrompts prompts;
};

Result<WarmText> make_warm(const std::string& directory, const WarmOptions& warm,
                           const WarmFacts& facts, Engine& engine, EngineFacts engine_facts,
                           Snapshot& snapshot, const Clock& clock) {
  ASSIGN_OR_RETURN(ServedText text, load_served_text(directory, snapshot));
  ServedModel model =
      make_served_model(std::move(text), directory_name(directory), 0, std::move(engine_facts));
  ASSIGN_OR_RETURN(WarmPrompts prompts, start_warm(warm, facts, engine, model, snapshot));
  RETURN_IF_ERROR(compute_warm(prompts, engine, model, clock));
  if (prompts.num_ready(engine) < prompts.size()) {
    return resource_exhausted(
        "--warm: KV memory does not hold all warm prompts at once; raise --kv-cache-memory or "
        "--warm-limit");
  }
  return WarmText{std::move(model), std::move(prompts)};
}

Status save(const SnapshotArguments& arguments, EngineOptions options, const WarmOptions& warm) {
  const SystemClock clock;
  StartupTimeline timeline(clock);
  SaveProgress progress;
  options.snapshot = {SnapshotMode::kCollect, {}, arguments.weights, RestoreMode::kAutomatic};
  ASSIGN_OR_RETURN(Snapshot snapshot, open_snapshot(arguments.model, options, clock));
  progress.phase("loading " + arguments.model);
  auto local = load_local_engine(arguments.model, options, clock, timeline, snapshot);
  progress.end();
  if (!local) return std::move(local).error();
  if (arguments.weights && !snapshot.offers(kWeightsSection)) {
    log_info(
        "--weights: this --dtype converts nothing, and a start maps the checkpoint's files; the "
        "snapshot has no weights");
  }
  Engine& engine = *local->loaded.engine;
  std::optional<LoadedTokenizer> text;
  std::optional<WarmText> warm_text;
  if (warm.chats.empty()) {
    ASSIGN_OR_RETURN(text, load_text(arguments.model, snapshot));
    timeline.mark("tokenizer JSON");
  } else {
    progress.phase("computing warm prompts");
    const WarmFacts facts = warm_facts(arguments.model, options, *local);
    auto made =
        make_warm(arguments.model, warm, facts, engine, facts_of(local->loaded), snapshot, clock);
    progress.end();
    if (!made) return std::move(made).error();
    warm_text = *std::move(made);
    ASSIGN_OR_RETURN(SnapshotKey key, warm_key(facts, snapshot.model()));
    snapshot.offer(kWarmPromptsSection, std::move(key),
                   [&] { return warm_text->prompts.encode(engine, warm_text->model.block_size); });
    timeline.mark("warm prompts");
  }
  progress.phase("reading the model's files");
  auto content = model_content(arguments.model, options, snapshot.model());
  progress.end();
  if (!content) return std::move(content).error();
  timeline.mark("content digest");
  RETURN_IF_ERROR(check_canary(engine, *local->loaded.logits, clock,
                               warm_facts(arguments.model, options, *local), snapshot));
  if (local->loaded.stream != nullptr) RETURN_IF_ERROR(local->loaded.stream->finish());
  snapshot.offer(kModelSection, *std::move(content), [&]() -> Result<std::vector<std::byte>> {
    const std::string name = directory_name(arguments.model);
    const auto bytes = std::as_bytes(std::span(name));
    return std::vector(bytes.begin(), bytes.end());
  });
  snapshot.collect();
  const Status written =
      snapshot.write(arguments.file, arguments.add ? OldSections::kKeep : OldSections::kDrop,
                     [&](std::uint64_t done, std::uint64_t all) { progress.show(done, all); });
  progress.end();
  RETURN_IF_ERROR(written);
  timeline.mark("save");
  fmt::print(stderr, "{}\n", timeline.line());
  fmt::print("{}: saved {} in {:.2f} s\n", arguments.file, join(snapshot.collected(), ", "),
             to_seconds(timeline.total()));
  return {};
}

ordered_json section_json(const SnapshotFile& file, const SnapshotSection& section) {
  const SnapshotBlob& blob = file.table().blobs[section.blob];
  ordered_json depends = ordered_json::object();
  for (const SnapshotFact& fact : section.key) depends[fact.name] = fact.value;
  return {{"kind", section.kind},
          {"version", section.version},
          {"bytes", blob.bytes},
          {"offset", blob.offset},
          {"depends_on", std::move(depends)}};
}

void print_section(const SnapshotFile& file, const SnapshotSection& section) {
  const SectionKind* kind = find_section_kind(section.kind);
  const SnapshotBlob& blob = file.table().blobs[section.blob];
  fmt::print("\n{} (version {}): {:.1f} KiB\n", section.kind, section.version,
             static_cast<double>(blob.bytes) / 0x1p10);
  fmt::print("  holds {}\n", kind != nullptr ? kind->holds : "what this sluice does not know");
  for (const SnapshotFact& fact : section.key) {
    fmt::print("  depends on {}: {}\n", fact.name, fact.value);
  }
}

Status inspect(const SnapshotArguments& arguments) {
  ASSIGN_OR_RETURN(SnapshotFile file, SnapshotFile::open(arguments.file));
  if (arguments.json) {
    ordered_json sections = ordered_json::array();
    for (const SnapshotSection& section : file.table().sections) {
      sections.push_back(section_json(file, section));
    }
    const ordered_json object = {
        {"file", arguments.file}, {"bytes", file.file_bytes()}, {"sections", std::move(sections)}};
    fmt::print("{}\n", dump_json(object));
  } else {
    fmt::print("{}: {} sections, {:.1f} KiB\n", arguments.file, file.table().sections.size(),
               static_cast<double>(file.file_bytes()) / 0x1p10);
    for (const SnapshotSection& section : file.table().sections) print_section(file, section);
  }
  std::fflush(stdout);
  return file.verify();
}

}  // namespace

int run_snapshot(const SnapshotArguments& arguments) {
  if (arguments.action == SnapshotAction::kInspect) {
    const Status status = inspect(arguments);
    return status ? kExitSuccess : report_failure(status.error());
  }
  if (!arguments.engine.snapshot.empty()) {
    return report_error(
        invalid_argument("--snapshot: sluice snapshot names its file itself; leave --snapshot out"),
        kExitUsage);
  }
  const auto options = parse_engine_options(arguments.engine);
  if (!options) return report_error(options.error(), kExitUsage);
  if (arguments.action == SnapshotAction::kVerify) {
    const auto code = verify_snapshot({arguments.file, arguments.model, arguments.json}, *options);
    return code ? *code : report_failure(code.error());
  }
  if (!arguments.engine.restore.empty()) {
    return report_error(
        invalid_argument("--restore: sluice snapshot save restores nothing; leave --restore out"),
        kExitUsage);
  }
  const auto warm = read_warm_options(arguments.warm, *options);
  if (!warm) return report_error(warm.error(), kExitUsage);
  const Status status = save(arguments, *options, *warm);
  return status ? kExitSuccess : report_failure(status.error());
}

}  // namespace sluice
