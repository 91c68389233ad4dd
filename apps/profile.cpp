#include "apps/profile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "apps/exit_code.h"
#include "apps/interrupt.h"
#include "apps/make_device.h"
#include "apps/measure_machine.h"
#include "profile/token_budget.h"

namespace sluice {
namespace {

using nlohmann::ordered_json;

struct Settings {
  EngineOptions engine;
  MeasureOptions measure;
};

Result<Settings> parse_settings(const ProfileArguments& arguments) {
  Settings settings;
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
  return settings;
}

// A goal and what can be done for it.
struct Recommendation {
  std::string name;
  Duration goal{0};
  std::optional<std::int32_t> token_budget;  // absent: `problem` says why
  std::string problem;
};

struct Findings {
  MachineProfile profile;
  std::string path;
  PaperGoals goals;
  ReferenceLoad load;
  std::vector<Recommendation> recommendations;
};

Recommendation recommend(const Findings& f, std::string name, Duration goal) {
  Recommendation r{std::move(name), goal, std::nullopt, {}};
  auto budget = choose_token_budget(f.profile, f.load, goal);
  if (budget) {
    r.token_budget = *budget;
  } else {
    r.problem = budget.error().message;
  }
  return r;
}

Findings conclude(MachineProfile profile, const EngineOptions& options) {
  Findings f;
  f.profile = std::move(profile);
  f.goals = paper_goals(f.profile);
  f.load = reference_load(options.max_num_seqs, f.profile.max_model_len);
  f.recommendations.push_back(recommend(f, "strict", f.goals.strict));
  f.recommendations.push_back(recommend(f, "relaxed", f.goals.relaxed));
  if (options.tbt_slo) {
    f.recommendations.push_back(recommend(f, "--tbt-slo-ms", *options.tbt_slo));
  }
  return f;
}

double ms_of(double ns) { return ns / 1e6; }

ordered_json findings_json(const Findings& f) {
  const MachineProfile& p = f.profile;
  ordered_json recommendations = ordered_json::array();
  for (const Recommendation& r : f.recommendations) {
    recommendations.push_back({{"goal", r.name}, {"tbt_slo_ms", to_milliseconds(r.goal)}});
    if (r.token_budget) {
      recommendations.back()["token_budget"] = *r.token_budget;
    } else {
      recommendations.back()["token_budget"] = nullptr;
      recommendations.back()["problem"] = r.problem;
    }
  }
  return {{"profile", f.path},
          {"model", p.model_name},
          {"device", p.identity.device},
          {"device_description", p.identity.device_description},
          {"threads", p.identity.threads},
          {"dtype", p.identity.dtype},
          {"seconds", p.seconds},
          {"points", p.points.size()},
          {"decode_step_ms", to_milliseconds(f.goals.decode_step)},
          {"strict_slo_ms", to_milliseconds(f.goals.strict)},
          {"relaxed_slo_ms", to_milliseconds(f.goals.relaxed)},
          {"extrapolated", f.goals.extrapolated},
          {"tile", p.predictor.tile},
          {"held_out_points", p.error.points},
          {"held_out_error_median", p.error.median},
          {"held_out_error_p90", p.error.p90},
          {"held_out_error_largest", p.error.largest},
          {"prediction_margin", prediction_margin(p)},
          {"free_bytes", p.free_bytes},
          {"reference_decodes", f.load.decode_rows},
          {"reference_context", f.load.context},
          {"recommendations", std::move(recommendations)}};
}

void print_predictor(const MachineProfile& profile) {
  const StepTimePredictor& p = profile.predictor;
  std::vector<std::string> knots;
  for (std::size_t i = 0; i < static_cast<std::size_t>(p.num_knots); ++i) {
    knots.push_back(fmt::format("{} {:.3g}", p.knots[i].tokens, ms_of(p.knots[i].ns)));
  }
  fmt::print("predictor    tokens ms: {}\n", fmt::join(knots, ", "));
  fmt::print(
      "             row {:.3g} us, chunk token {:.3g} us, logits {:.3g} ms + {:.3g} us a row\n",
      p.row_ns / 1e3, p.chunk_token_ns / 1e3, ms_of(p.logits_ns), p.logit_row_ns / 1e3);
  fmt::print(
      "             attention: decode {:.3g} us, chunk {:.3g} us per 1,000 tokens of context; "
      "{:.3g} ms per million pairs\n",
      p.decode_context_ns, p.chunk_context_ns, p.chunk_work_ns);
}

void print_findings(const Findings& f) {
  const MachineProfile& p = f.profile;
  fmt::print("model        {} ({}), {} threads, {}: {}\n", p.model_name, p.identity.dtype,
             p.identity.threads, p.identity.device, p.identity.device_description);
  fmt::print("measured     {} steps in {:.0f} s; up to {} tokens, {} sequences, contexts of {}\n",
             p.points.size(), p.seconds, p.max_tokens, p.max_num_seqs, p.max_model_len);
  fmt::print("decode step  {:.5g} ms (32 decodes with contexts of 4,096{})\n",
             to_milliseconds(f.goals.decode_step),
             f.goals.extrapolated ? "; extrapolated: this engine has fewer or shorter" : "");
  fmt::print("TBT goals    strict {:.5g} ms (5 decode steps), relaxed {:.5g} ms (25)\n",
             to_milliseconds(f.goals.strict), to_milliseconds(f.goals.relaxed));
  if (p.predictor.tile > 1) {
    fmt::print("tile         {} tokens: good budgets are its multiples\n", p.predictor.tile);
  } else {
    fmt::print("tile         none seen: any budget fills the machine evenly\n");
  }
  print_predictor(p);
  fmt::print(
      "error        {} of {} points: median {:.1f} %, P90 {:.1f} %, largest {:.1f} %; goals "
      "are compared with predictions x {:.2f}\n",
      p.error.points, p.points.size(), 100 * p.error.median, 100 * p.error.p90,
      100 * p.error.largest, prediction_margin(p));
  for (const Recommendation& r : f.recommendations) {
    fmt::print("budget       {:<12} {:>8.5g} ms: {}\n", r.name, to_milliseconds(r.goal),
               r.token_budget ? fmt::format("--token-budget {}", *r.token_budget) : r.problem);
  }
  fmt::print("             with {} decodes behind contexts of {} and a chunk behind as many\n",
             f.load.decode_rows, f.load.context);
  fmt::print("free memory  {:.1f} GiB at the highest load measured\n",
             static_cast<double>(p.free_bytes) / 0x1p30);
  fmt::print("kept in      {}\n", f.path);
}

Result<std::string> keep(const MachineProfile& profile, const std::string& output) {
  std::string path = output.empty() ? default_profile_path(profile.identity) : output;
  if (path.empty()) {
    return invalid_argument(
        "there is no place to keep the profile: neither HOME nor XDG_CACHE_HOME is set; give "
        "--output FILE");
  }
  RETURN_IF_ERROR(save_profile(profile, path));
  return path;
}

Status profile(const ProfileArguments& arguments, const Settings& settings) {
  const SystemClock clock;
  const auto pool = make_pool(settings.engine);
  ASSIGN_OR_RETURN(const auto device, make_device(settings.engine, *pool));
  catch_interrupts();
  ASSIGN_OR_RETURN(
      MachineProfile measured,
      measure_machine(arguments.model, settings.engine, *device, *pool, clock, settings.measure));
  Findings findings = conclude(std::move(measured), settings.engine);
  ASSIGN_OR_RETURN(findings.path, keep(findings.profile, arguments.output));
  if (arguments.json) {
    fmt::print("{}\n", findings_json(findings).dump(-1, ' ', false,
                                                    nlohmann::json::error_handler_t::replace));
  } else {
    print_findings(findings);
  }
  return {};
}

}  // namespace

int run_profile(const ProfileArguments& arguments) {
  auto settings = parse_settings(arguments);
  if (!settings) return report_error(settings.error(), kExitUsage);
  const Status status = profile(arguments, *settings);
  if (status) return kExitSuccess;
  const bool stopped = status.error().code == ErrorCode::kCancelled;
  return report_error(status.error(), stopped ? kExitInterrupted : kExitError);
}

}  // namespace sluice
