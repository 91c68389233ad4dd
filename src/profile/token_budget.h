// Chooses a token budget or a time budget from a machine profile and a TBT goal (SLO). The goal is
// met for a reference load: 32 decodes as in the Sarathi-Serve paper with contexts of 4,096 tokens,
// and a chunk after a context of the same length. The engine's limits apply to all three.
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <optional>

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

// Predictions are multiplied by it before they are compared with a goal, so that nine in ten steps
// take less time.
double prediction_margin(const MachineProfile& profile);

// The least number of tokens of a prompt's first chunk: a tile, or 16.
std::int32_t least_chunk(const MachineProfile& profile);

// The largest budget, a whole number of tiles, with which a full step meets the goal.
// kInvalidArgument if there is none; the message has the smallest goal that could be met.
Result<std::int32_t> choose_token_budget(const MachineProfile& profile, const ReferenceLoad& load,
                                         Duration goal);

// The part that can be kept of a goal which is too short for the reference load.
struct PartOfGoal {
  std::int32_t token_budget = 0;
  // With contexts of at most this many tokens full steps meet the goal. Absent: no step does.
  std::optional<std::int32_t> context;
};
// The budget for contexts that are halved until a step meets the goal; the smallest budget if none
// does. It has room for the decodes of the reference load and a chunk in any case.
PartOfGoal keep_part(const MachineProfile& profile, const ReferenceLoad& load, Duration goal);

// A time budget for the goal. `token_budget` limits the tokens of a step: the largest step that
// meets the goal without contexts on a machine a quarter faster than predicted.
struct TimeBudgetChoice {
  TimeBudget time;
  std::int32_t token_budget = 0;
};
// A goal that is too short for the reference load is kept in lighter steps; the others have the
// smallest chunk.
TimeBudgetChoice time_budget_for(const MachineProfile& profile, const ReferenceLoad& load,
                                 Duration goal);
// The same; kInvalidArgument for a goal that is too short, as above.
Result<TimeBudgetChoice> choose_time_budget(const MachineProfile& profile,
                                            const ReferenceLoad& load, Duration goal);

}  // namespace sluice
