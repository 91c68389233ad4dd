#include "apps/profile_findings.h"
#include "base/json.h"
#include "base/text.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

namespace sluice {
namespace {

using nlohmann::ordered_json;

template <class... Args>
void add(std::string& out, fmt::format_string<Args...> format, Args&&... args) {
  append_format(out, format, std::forward<Args>(args)...);
}

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

double ms_of(double ns) { return ns / 1e6; }

void add_predictor(std::string& out, const MachineProfile& profile) {
  const StepTimePredictor& p = profile.predictor;
  std::vector<std::string> knots;
  for (std::size_t i = 0; i < static_cast<std::size_t>(p.num_knots); ++i) {
    knots.push_back(fmt::format("{} {:.3g}", p.knots[i].tokens, ms_of(p.knots[i].ns)));
  }
  add(out, "predictor    tokens ms: {}\n", join(knots, ", "));
  add(out,
      "             row {:.3g} us, chunk token {:.3g} us, logits {:.3g} ms + {:.3g} us a row\n",
      p.row_ns / 1e3, p.chunk_token_ns / 1e3, ms_of(p.logits_ns), p.logit_row_ns / 1e3);
  add(out,
      "             attention: decode {:.3g} us, chunk {:.3g} us per 1,000 tokens of context; "
      "{:.3g} ms per million pairs\n",
      p.decode_context_ns, p.chunk_context_ns, p.chunk_work_ns);
}

}  // namespace

Findings conclude(MachineProfile profile, std::int32_t max_num_seqs,
                  std::optional<Duration> tbt_slo) {
  Findings f;
  f.profile = std::move(profile);
  f.goals = paper_goals(f.profile);
  f.load = reference_load(max_num_seqs, f.profile.max_model_len);
  f.recommendations.push_back(recommend(f, "strict", f.goals.strict));
  f.recommendations.push_back(recommend(f, "relaxed", f.goals.relaxed));
  if (tbt_slo) {
    f.recommendations.push_back(recommend(f, "--tbt-slo-ms", *tbt_slo));
  }
  return f;
}

std::string findings_json(const Findings& f) {
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
  const ordered_json root = {{"profile", f.path},
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
  return dump_json(root) + "\n";
}

std::string findings_text(const Findings& f) {
  std::string out;
  const MachineProfile& p = f.profile;
  add(out, "model        {} ({}), {} threads, {}: {}\n", p.model_name, p.identity.dtype,
      p.identity.threads, p.identity.device, p.identity.device_description);
  add(out, "measured     {} steps in {:.0f} s; up to {} tokens, {} sequences, contexts of {}\n",
      p.points.size(), p.seconds, p.max_tokens, p.max_num_seqs, p.max_model_len);
  add(out, "decode step  {:.5g} ms (32 decodes with contexts of 4,096{})\n",
      to_milliseconds(f.goals.decode_step),
      f.goals.extrapolated ? "; extrapolated: this engine has fewer or shorter" : "");
  add(out, "TBT goals    strict {:.5g} ms (5 decode steps), relaxed {:.5g} ms (25)\n",
      to_milliseconds(f.goals.strict), to_milliseconds(f.goals.relaxed));
  if (p.predictor.tile > 1) {
    add(out, "tile         {} tokens: good budgets are its multiples\n", p.predictor.tile);
  } else {
    add(out, "tile         none seen: any budget fills the machine evenly\n");
  }
  add_predictor(out, p);
  add(out,
      "error        {} of {} points: median {:.1f} %, P90 {:.1f} %, largest {:.1f} %; goals "
      "are compared with predictions x {:.2f}\n",
      p.error.points, p.points.size(), 100 * p.error.median, 100 * p.error.p90,
      100 * p.error.largest, prediction_margin(p));
  for (const Recommendation& r : f.recommendations) {
    add(out, "budget       {:<12} {:>8.5g} ms: {}\n", r.name, to_milliseconds(r.goal),
        r.token_budget ? fmt::format("--token-budget {}", *r.token_budget) : r.problem);
  }
  add(out, "             with {} decodes after contexts of {} tokens and a chunk after as many\n",
      f.load.decode_rows, f.load.context);
  add(out, "free memory  {:.1f} GiB at the highest load measured\n",
      static_cast<double>(p.free_bytes) / 0x1p30);
  add(out, "kept in      {}\n", f.path);
  return out;
}

}  // namespace sluice
