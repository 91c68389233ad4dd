// TimeBudget: limits a step by time instead of tokens. The predictor converts time into tokens for
// each chunk. Chunks deep in a long prompt, whose attention is expensive, are therefore shorter.
// There are two kinds of limit, for steps with decodes and chunks:
// - a goal: the slack of the streams, which is the time until the earliest deadline among the
//   decodes of the step. Token k of a stream is due k x tbt after its first one (as in Niyama);
// - without a goal, decode_steps times what the decodes of the step would take alone.
// Scheduler::limit_step() may limit steps further, also those without decodes.
// docs/token-budget.md has the rules.
// Values: plain; any thread.
#pragma once

#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "scheduler/measured_step_times.h"
#include "scheduler/step_time_predictor.h"

namespace sluice {

struct TimeBudget {
  StepTimePredictor predictor;
  // Instead of a predictor: the model's shape. The steps that run then give the predictor.
  std::optional<StepCosts> costs;
  // Above 0: there is no goal, and a step takes at most this many times what its decodes take
  // alone.
  double decode_steps = 0;
  Duration tbt{0};  // goal for the time between two tokens of a stream
  // The longest planned time of a step with decodes, however much slack there is: the goal limits
  // each gap, not the average.
  Duration longest_step{0};
  // The shortest time limit, however late a stream is. A stream that is late (after a wait for
  // memory or a slow step) catches up over several steps and does not stop prefills.
  Duration shortest_step{0};
  // The first chunk of a step has at least this many tokens (fewer only if the prompt or the token
  // budget has fewer), whatever its predicted time, so that every prompt's wait is bounded.
  std::int32_t min_chunk = 16;
  // Predicted times are multiplied by it, because a prediction that is too short misses a deadline.
  // At least 1. With `learn` it is only the initial margin.
  double margin = 1;
  // Measured step times correct the predictor and set the margin (step_time_correction.h).
  bool learn = true;

  // Positions that attention sees, 0 = all.
  std::int32_t window() const { return costs ? costs->window : predictor.window; }

  // The time limit of a step whose earliest deadline is `slack` away.
  double limit_ns(Duration slack) const {
    const Duration limit = slack < shortest_step  ? shortest_step
                           : slack > longest_step ? longest_step
                                                  : slack;
    return static_cast<double>(limit.count());
  }
};

}  // namespace sluice
