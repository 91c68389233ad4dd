// From a machine profile and a TBT goal (SLO) to a token budget or a time budget. The goal is met
// for a reference load: 32 decodes as in the paper (at most the engine's) with contexts of 4,096
// tokens (at most the engine's), and a chunk behind a context of the same length.
// Pure functions; any thread.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/result.h"
#include "profile/machine_profile.h"
#include "scheduler/time_budget.h"

namespace sluice {

struct ReferenceLoad {
  std::int32_t decode_rows = 0;
  std::int32_t context = 0;
};

// REQUIRES: max_num_seqs > 0, max_model_len > 1.
ReferenceLoad reference_load(std::int32_t max_num_seqs, std::int32_t max_model_len);

// The paper's goals: 5 and 25 times a step of 32 decodes with contexts of 4,096.
struct PaperGoals {
  Duration decode_step{0};
  Duration strict{0};
  Duration relaxed{0};
  bool extrapolated = false;  // the profile has fewer sequences or shorter contexts
};
PaperGoals paper_goals(const MachineProfile& profile);

// The factor on predictions before they are compared with a goal: nine in ten steps then take less
// time.
double prediction_margin(const MachineProfile& profile);

// Tokens that a prompt's first chunk has at least: a tile, or 16.
std::int32_t least_chunk(const MachineProfile& profile);

// The largest budget, a whole number of tiles, with which a full step meets the goal.
// kInvalidArgument when none does; the message has the smallest goal that could be met.
Result<std::int32_t> choose_token_budget(const MachineProfile& profile, const ReferenceLoad& load,
                                         Duration goal);

// Chunks by time for the goal; `token_budget` is the most tokens that a step may then have: what
// the goal allows without any contexts on a machine that is a quarter faster than predicted.
struct TimeBudgetChoice {
  TimeBudget time;
  std::int32_t token_budget = 0;
};
// kInvalidArgument as above.
Result<TimeBudgetChoice> choose_time_budget(const MachineProfile& profile,
                                            const ReferenceLoad& load, Duration goal);

}  // namespace sluice
