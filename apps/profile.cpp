#include "apps/profile.h"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "apps/exit_code.h"
#include "apps/interrupt.h"
#include "apps/make_device.h"
#include "apps/measure_machine.h"
#include "apps/open_snapshot.h"
#include "apps/option_values.h"
#include "apps/profile_findings.h"
#include "apps/profile_plots.h"
#include "base/json.h"
#include "base/log.h"
#include "loadgen/report.h"

namespace sluice {
namespace {

struct ProfileSettings {
  EngineOptions engine;
  MeasureOptions measure;
  bool memory = false;
};

Result<ProfileSettings> parse_profile_settings(const ProfileArguments& arguments) {
  ProfileSettings settings;
  ASSIGN_OR_RETURN(settings.memory, wants_memory_profile(arguments.memory));
  if (arguments.engine.token_budget == "auto" || arguments.engine.token_budget == "time") {
    return invalid_argument(
        "--token-budget: sluice profile finds the budget; give a number to limit the longest step "
        "that is measured, or leave it out");
  }
  EngineOptionTexts texts = arguments.engine;
  if (!texts.token_budget.empty()) {
    ASSIGN_OR_RETURN(const std::int64_t most,
                     parse_integer("--token-budget", texts.token_budget, 16, 1 << 16));
    settings.measure.max_tokens = static_cast<std::int32_t>(most);
    texts.token_budget.clear();
  }
  if (!arguments.time_limit.empty()) {
    ASSIGN_OR_RETURN(const std::int64_t seconds,
                     parse_integer("--time-limit", arguments.time_limit, 1, 24 * 3600));
    settings.measure.profiler.time_limit = std::chrono::seconds(seconds);
  }
  ASSIGN_OR_RETURN(settings.engine, parse_engine_options(texts));
  if (settings.memory && !settings.engine.kv_cache_memory) {
    return invalid_argument(
        "--kv-cache-memory is needed: the KV memory of the server whose use is profiled");
  }
  return settings;
}

Result<std::string> keep_profile(const MachineProfile& profile, const std::string& output) {
  std::string path = output.empty() ? default_profile_path(profile.identity) : output;
  if (path.empty()) {
    return invalid_argument(
        "there is no place to keep the profile: neither HOME nor XDG_CACHE_HOME is set; give "
        "--output FILE");
  }
  RETURN_IF_ERROR(save_profile(profile, path));
  return path;
}

Status write_profile_report(const Findings& findings, const std::string& folder) {
  ReportInput input;
  const MachineProfile& profile = findings.profile;
  input.title = fmt::format("Profile of {}", profile.model_name);
  input.facts = {{"device", profile.identity.device_description},
                 {"threads", fmt::format("{}", profile.identity.threads)},
                 {"weights", profile.identity.dtype},
                 {"kept in", findings.path}};
  input.table = findings_text(findings);
  const auto& strict = findings.recommendations.front().token_budget;
  input.plots = profile_plots(profile, strict.value_or(256));
  ASSIGN_OR_RETURN(const ReportFiles files, write_report(folder, input));
  if (!files.plot_problem.empty()) log_warning(files.plot_problem);
  fmt::print(stderr, "report: {}\n", files.page);
  return {};
}

Result<MemoryFindings> find_memory(const ProfileArguments& arguments, const EngineOptions& engine,
                                   const MachineProfile& profile) {
  ASSIGN_OR_RETURN(const ModelConfig config, load_model_config(arguments.model));
  ASSIGN_OR_RETURN(const ModelIdentity model, identify_model(arguments.model, engine));
  return profile_measured_memory(profile, arguments.memory, arguments.engine,
                                 *engine.kv_cache_memory,
                                 kv_bytes_per_token(config, model.kv_dtype));
}

// Without a model that is loaded: on a simulated GPU.
Status simulate_and_tell(const ProfileArguments& arguments) {
  if (!arguments.output.empty() || !arguments.report.empty() || !arguments.time_limit.empty()) {
    return invalid_argument(
        "with --gpu nothing is measured: leave out --output, --report and --time-limit");
  }
  catch_interrupts();
  ASSIGN_OR_RETURN(const MemoryFindings memory,
                   profile_simulated_memory(arguments.model, arguments.memory, arguments.engine));
  if (!arguments.json) {
    fmt::print("{}", memory_findings_text(memory));
    return {};
  }
  const nlohmann::ordered_json json = {{"model", arguments.model},
                                       {"device", arguments.memory.gpu},
                                       {"memory", memory_findings_json(memory)}};
  fmt::print("{}\n", dump_json(json));
  return {};
}

Status tell(const ProfileArguments& arguments, const ProfileSettings& settings,
            const Findings& findings) {
  std::optional<MemoryFindings> memory;
  if (settings.memory) {
    ASSIGN_OR_RETURN(memory, find_memory(arguments, settings.engine, findings.profile));
  }
  if (arguments.json && memory) {
    auto json = parse_ordered_json(findings_json(findings));
    json["memory"] = memory_findings_json(*memory);
    fmt::print("{}\n", dump_json(json));
  } else {
    fmt::print("{}", arguments.json ? findings_json(findings) : findings_text(findings));
    if (memory) fmt::print("{}", memory_findings_text(*memory));
  }
  std::fflush(stdout);
  return {};
}

Status measure_and_tell(const ProfileArguments& arguments, const ProfileSettings& settings) {
  if (!arguments.report.empty()) RETURN_IF_ERROR(prepare_report(arguments.report));
  const SystemClock clock;
  const auto pool = make_pool(settings.engine);
  ASSIGN_OR_RETURN(const auto device, make_device(settings.engine, *pool));
  ASSIGN_OR_RETURN(Snapshot snapshot, open_snapshot(arguments.model, settings.engine, clock));
  catch_interrupts();
  ASSIGN_OR_RETURN(MachineProfile measured,
                   measure_machine(arguments.model, settings.engine, *device, *pool, clock,
                                   settings.measure, &snapshot));
  snapshot.settle();
  Findings findings =
      conclude(std::move(measured), settings.engine.max_num_seqs, settings.engine.tbt_slo);
  ASSIGN_OR_RETURN(findings.path, keep_profile(findings.profile, arguments.output));
  RETURN_IF_ERROR(tell(arguments, settings, findings));
  if (!arguments.report.empty()) RETURN_IF_ERROR(write_profile_report(findings, arguments.report));
  return {};
}

}  // namespace

int run_profile(const ProfileArguments& arguments) {
  if (!arguments.memory.gpu.empty()) {
    auto wanted = wants_memory_profile(arguments.memory);
    if (!wanted) return report_error(wanted.error(), kExitUsage);
    const Status done = simulate_and_tell(arguments);
    return done ? kExitSuccess : report_error(done.error(), exit_code_for(done.error()));
  }
  auto settings = parse_profile_settings(arguments);
  if (!settings) return report_error(settings.error(), kExitUsage);
  const Status status = measure_and_tell(arguments, *settings);
  return status ? kExitSuccess : report_failure(status.error());
}

}  // namespace sluice
