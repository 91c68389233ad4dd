#include "profile/token_budget.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace sluice {
namespace {

constexpr std::int32_t kPaperRows = 32;
constexpr std::int32_t kPaperContext = 4096;
// If the machine has no tiles, budgets are multiples of this number instead.
constexpr std::int32_t kLeastChunk = 16;
constexpr double kLargestMargin = 1.5;

double ns_of(Duration d) { return static_cast<double>(d.count()); }
Duration from_ns(double ns) { return Duration(static_cast<Duration::rep>(ns)); }

std::int32_t quantum(const MachineProfile& profile) {
  return profile.predictor.tile > 1 ? profile.predictor.tile : kLeastChunk;
}

StepFeatures decodes_of(const MachineProfile& profile, const ReferenceLoad& load) {
  return StepShape{load.decode_rows, load.context, 0, 0}.features(profile.predictor.window);
}

// The largest step that meets the goal with a chunk after `context` tokens; whole tiles if the
// decodes leave room for one.
std::int32_t largest_step(const MachineProfile& profile, const ReferenceLoad& load,
                          std::int32_t context, Duration goal) {
  const StepFeatures decodes = decodes_of(profile, load);
  const std::int32_t most = profile.max_tokens - load.decode_rows;
  const double limit = ns_of(goal) / prediction_margin(profile);
  const std::int32_t chunk = profile.predictor.largest_chunk(decodes, context, most, false, limit);
  const std::int32_t tokens = load.decode_rows + chunk;
  return chunk == 0 ? 0 : tokens - tokens % quantum(profile);
}

std::int32_t least_step(const MachineProfile& profile, const ReferenceLoad& load) {
  return load.decode_rows + least_chunk(profile);
}

Error no_budget(const MachineProfile& profile, const ReferenceLoad& load, Duration goal) {
  const double least = profile.predictor.with_chunk_ns(decodes_of(profile, load), load.context,
                                                       least_chunk(profile), false) *
                       prediction_margin(profile);
  // Rounded up, so that the named goal can be met.
  const double reachable = std::ceil(least / 1e5) / 10;
  return invalid_argument(fmt::format(
      "--tbt-slo-ms {:g}: no token budget keeps it on this machine; the smallest that can be kept "
      "is {:g} ms ({} decodes with contexts of {} and a chunk of {} tokens in a step); ask for "
      "that, or lower --max-num-seqs or --max-model-len",
      to_milliseconds(goal), reachable, load.decode_rows, load.context, least_chunk(profile)));
}

}  // namespace

ReferenceLoad reference_load(std::int32_t max_num_seqs, std::int32_t max_model_len) {
  CHECK(max_num_seqs > 0 && max_model_len > 1);
  // One slot is for the prompt.
  return {std::clamp(max_num_seqs - 1, 1, kPaperRows), std::min(kPaperContext, max_model_len - 1)};
}

PaperGoals paper_goals(const MachineProfile& profile) {
  PaperGoals goals;
  const double ns = profile.predictor.time_ns(decodes_of(profile, {kPaperRows, kPaperContext}));
  goals.decode_step = from_ns(ns);
  goals.strict = from_ns(5 * ns);
  goals.relaxed = from_ns(25 * ns);
  goals.extrapolated = profile.max_num_seqs < kPaperRows || profile.max_model_len <= kPaperContext;
  return goals;
}

double prediction_margin(const MachineProfile& profile) {
  return std::min(1 + profile.error.p90_too_short, kLargestMargin);
}

std::int32_t least_chunk(const MachineProfile& profile) {
  return std::max(profile.predictor.tile, kLeastChunk);
}

Result<std::int32_t> choose_token_budget(const MachineProfile& profile, const ReferenceLoad& load,
                                         Duration goal) {
  const std::int32_t tokens = largest_step(profile, load, load.context, goal);
  // A budget of whole tiles may be slightly below decodes plus the least chunk.
  if (tokens > load.decode_rows) return tokens;
  const double least = profile.predictor.with_chunk_ns(decodes_of(profile, load), load.context,
                                                       least_chunk(profile), false);
  if (least * prediction_margin(profile) <= ns_of(goal)) return least_step(profile, load);
  return no_budget(profile, load, goal);
}

PartOfGoal keep_part(const MachineProfile& profile, const ReferenceLoad& load, Duration goal) {
  for (std::int32_t context = load.context / 2;; context /= 2) {
    const auto tokens = choose_token_budget(profile, {load.decode_rows, context}, goal);
    if (tokens) return {*tokens, context};
    if (context == 0) return {least_step(profile, load), std::nullopt};
  }
}

TimeBudgetChoice time_budget_for(const MachineProfile& profile, const ReferenceLoad& load,
                                 Duration goal) {
  TimeBudgetChoice choice;
  choice.token_budget =
      std::max(largest_step(profile, {1, 0}, 0, goal * 5 / 4), least_step(profile, load));
  choice.time.predictor = profile.predictor;
  choice.time.tbt = goal;
  choice.time.longest_step = goal;
  choice.time.shortest_step = goal / 4;
  choice.time.min_chunk = least_chunk(profile);
  choice.time.margin = prediction_margin(profile);
  return choice;
}

Result<TimeBudgetChoice> choose_time_budget(const MachineProfile& profile,
                                            const ReferenceLoad& load, Duration goal) {
  RETURN_IF_ERROR(choose_token_budget(profile, load, goal));
  return time_budget_for(profile, load, goal);
}

}  // namespace sluice
