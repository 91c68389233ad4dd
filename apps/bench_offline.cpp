#include "apps/bench_offline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "apps/bench_progress.h"
#include "apps/exit_code.h"
#include "apps/interrupt.h"
#include "apps/local_engine.h"
#include "apps/offline_report.h"
#include "apps/open_snapshot.h"
#include "apps/option_values.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "loadgen/offline_run.h"
#include "loadgen/warm_up.h"
#include "loadgen/workload_spec.h"

namespace sluice {
namespace {

using nlohmann::ordered_json;

// Enough to capture graphs and touch every weight.
constexpr std::int32_t kWarmUpTokens = 8;

struct OfflineSettings {
  EngineOptions engine;
  Workload workload;  // requests of any length; see shorten_to_context()
  OfflineOptions run;
  OfflineReport report;
};

Result<OfflineSettings> parse_offline_settings(const OfflineArguments& arguments) {
  const BenchArguments& bench = arguments.bench;
  OfflineSettings settings;
  ASSIGN_OR_RETURN(settings.engine, parse_engine_options(arguments.engine));
  WorkloadSpec spec;
  ASSIGN_OR_RETURN(spec.lengths, lengths_option(bench));
  spec.count = bench.num_prompts.value_or(0);
  spec.seed = bench.seed;
  // Reads the lengths before gigabytes are loaded, because an error in them is wrong usage.
  ASSIGN_OR_RETURN(MadeWorkload made, make_workload(spec));
  settings.workload = std::move(made.workload);
  settings.workload.source = fmt::format("{} lengths", spec.lengths);
  ASSIGN_OR_RETURN(settings.report.percentiles, parse_percentiles(bench.metric_percentiles));
  settings.report.batches = arguments.batch_size.has_value();
  settings.run.batch_size = arguments.batch_size.value_or(0);
  settings.run.max_waiting = settings.engine.max_num_seqs;
  settings.run.temperature = bench.temperature;
  settings.run.seed = bench.seed;
  settings.run.interrupted = interrupted;
  return settings;
}

// Runs as many requests as run at once, or the requested number, so that the graphs of the run's
// sizes are captured and every buffer has been written.
Status warm_up_engine(Engine& engine, const OfflineArguments& arguments,
                      const OfflineSettings& settings, const Workload& workload,
                      const PromptMaker& prompts, const Clock& clock) {
  std::int64_t count = std::min<std::int64_t>(settings.engine.max_num_seqs,
                                              static_cast<std::int64_t>(workload.requests.size()));
  if (arguments.batch_size) count = std::min<std::int64_t>(count, *arguments.batch_size);
  count = arguments.num_warmups.value_or(static_cast<std::int32_t>(count));
  Workload few;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto index = static_cast<std::size_t>(i) % workload.requests.size();
    few.requests.push_back(workload.requests[index]);
    few.requests.back().output_tokens = std::min(few.requests.back().output_tokens, kWarmUpTokens);
  }
  OfflineOptions options = settings.run;
  options.batch_size = 0;
  options.first_number = kWarmUpNumber;
  options.progress_every = Duration(0);
  ASSIGN_OR_RETURN(const OfflineResult result, run_offline(engine, options, few, prompts, clock));
  if (result.interrupted) return Error{ErrorCode::kCancelled, "interrupted while warming up"};
  return {};
}

// A server moves its weights while it waits for its first requests.
void move_weights(WeightPages& pages) {
  while (!pages.finished() && !interrupted()) pages.advance_while_idle();
}

// The indices of --model-name.
Result<std::vector<std::int32_t>> find_adapters(const std::vector<std::string>& names,
                                                const LoadedModel& loaded) {
  std::vector<std::int32_t> indices;
  for (const std::string& name : names) {
    const auto adapter =
        name == "base" || loaded.adapters == nullptr ? nullptr : loaded.adapters->find(name);
    if (adapter == nullptr && name != "base") {
      return invalid_argument(
          fmt::format("--model-name {}: no --adapter {}=DIRECTORY is given", name, name));
    }
    indices.push_back(adapter == nullptr ? -1 : adapter->content->index);
  }
  return indices;
}

ordered_json startup_json(const StartupTimeline& timeline) {
  ordered_json spans = ordered_json::array();
  for (const StartupSpan& span : timeline.spans()) {
    ordered_json json = {{"name", span.name}, {"seconds", to_seconds(span.duration)}};
    if (span.copied_bytes > 0) json["copied_bytes"] = span.copied_bytes;
    spans.push_back(std::move(json));
  }
  return spans;
}

std::vector<std::pair<std::string, std::string>> facts_of(
    const OfflineArguments& arguments, const OfflineSettings& settings, const LoadedModel& model,
    const Device& device, const StartupTimeline& timeline, const Workload& workload,
    const OfflineResult& result) {
  const auto text = [](const ordered_json& value) { return dump_json(value); };
  const bool dummy = settings.engine.load_format == LoadFormat::kDummy;
  ordered_json batch = nullptr;
  if (arguments.batch_size) batch = *arguments.batch_size;
  return {{"date", text(timestamp_text())},
          {"model_id", text(arguments.model)},
          {"device", text(device.traits().name)},
          {"dtype", text(dtype_name(model.dtype))},
          {"load_format", text(dummy ? "dummy" : "auto")},
          {"enforce_eager", text(settings.engine.graphs == GraphMode::kEager)},
          {"workload", text(workload.source)},
          {"num_prompts", text(workload.requests.size())},
          {"batch_size", text(batch)},
          {"seed", text(arguments.bench.seed)},
          {"startup", text(startup_json(timeline))},
          {"ended_by", text(result.interrupted ? "interrupted" : "all_ended")}};
}

Status write_json(const std::string& path, const std::string& json) {
  auto status = write_file(path, json + '\n');
  if (!status) return with_context("--output-json", std::move(status).error());
  log_info(fmt::format("result: {}", path));
  return {};
}

Status write_trace(const std::string& path, const StepTrace& trace) {
  auto status = write_file(path, trace.json());
  if (!status) return with_context("--trace", std::move(status).error());
  log_info(fmt::format("trace: {}", path));
  return {};
}

Result<int> bench_offline(const OfflineArguments& arguments, OfflineSettings& settings) {
  const SystemClock clock;
  StartupTimeline timeline(clock);
  ASSIGN_OR_RETURN(Snapshot snapshot, open_snapshot(arguments.model, settings.engine, clock));
  timeline.mark("snapshot");
  ASSIGN_OR_RETURN(const LocalEngine local,
                   load_local_engine(arguments.model, settings.engine, clock, timeline, snapshot));
  const LoadedEngine& loaded = local.loaded;
  catch_interrupts();
  Workload& workload = settings.workload;
  shorten_to_context(workload, loaded.engine->limits().max_model_len);
  ASSIGN_OR_RETURN(settings.run.adapters, find_adapters(arguments.model_names, loaded));
  const PromptMaker prompts(middle_ids(loaded.config.vocab_size), settings.run.seed);
  RETURN_IF_ERROR(warm_up_engine(*loaded.engine, arguments, settings, workload, prompts, clock));
  // The measured requests use graphs and find all weights in memory.
  if (loaded.stream != nullptr) RETURN_IF_ERROR(loaded.stream->finish());
  timeline.mark("warm-up");
  if (loaded.large_pages != nullptr && arguments.num_warmups != 0) {
    move_weights(*loaded.large_pages);
    if (loaded.large_pages->moved() > 0) timeline.mark("large pages");
  }
  fmt::print(stderr, "{}\n", timeline.line());

  StepTrace trace(clock);
  if (!arguments.trace.empty()) {
    auto status = loaded.trace->trace_steps(&trace);
    if (!status) return with_context("--trace", std::move(status).error());
  }
  BenchProgress progress(!arguments.bench.no_progress);
  progress.attach(settings.run);
  auto result = run_offline(*loaded.engine, settings.run, workload, prompts, clock);
  progress.end();
  RETURN_IF_ERROR(result);
  settings.report.facts =
      facts_of(arguments, settings, loaded, *local.device, timeline, workload, *result);
  const std::string json = offline_json(*result, settings.report);
  fmt::print("{}", arguments.bench.json ? json + "\n" : offline_text(*result, settings.report));
  std::fflush(stdout);
  snapshot.collect();
  snapshot.settle();
  if (!arguments.output_json.empty()) RETURN_IF_ERROR(write_json(arguments.output_json, json));
  if (!arguments.trace.empty()) RETURN_IF_ERROR(write_trace(arguments.trace, trace));
  if (result->summary.failed > 0) {
    log_error(fmt::format("{} requests failed: the model gave logits that are not finite",
                          result->summary.failed));
  }
  if (result->interrupted) return kExitInterrupted;
  return result->summary.failed > 0 ? kExitError : kExitSuccess;
}

}  // namespace

int run_bench_offline(const OfflineArguments& arguments) {
  auto settings = parse_offline_settings(arguments);
  if (!settings) return report_error(settings.error(), exit_code_for(settings.error()));
  const auto code = bench_offline(arguments, *settings);
  return code ? *code : report_failure(code.error());
}

}  // namespace sluice
