// TimeBudget: how long a step may take, instead of how many tokens it may have. The predictor turns
// time into tokens for the chunk at hand, so chunks deep in a long prompt, whose attention is
// dear, get shorter by themselves. How much time there is, is what the streams can spare: the
// earliest deadline among the decodes of the step, where token k of a stream is due k x tbt after
// its first one (Niyama's slack). docs/token-budget.md has the rules.
// Values: plain; any thread.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "scheduler/step_time_predictor.h"

namespace sluice {

struct TimeBudget {
  StepTimePredictor predictor;
  Duration tbt{0};  // what is promised between two tokens of a stream
  // A step beside decodes is planned to take at most this, however much slack there is: the goal is
  // a gap, not an average.
  Duration longest_step{0};
  // And may take this, however late a stream is: one that waited long (for memory, behind a slow
  // step) catches up over some steps and does not bring prompts to a stop.
  Duration shortest_step{0};
  // The first chunk of a step has as many tokens, if its prompt and the token budget have them,
  // whatever the time says, so that no prompt waits without a bound.
  std::int32_t min_chunk = 16;
  // Predicted times are multiplied by it, since a prediction that is too short costs a deadline. At
  // least 1. When `learn` is set it is only the first one.
  double margin = 1;
  // The steps' measured times correct the predictor and set the margin (step_time_correction.h).
  bool learn = true;

  // The time for a step whose decodes have their earliest deadline `slack` away.
  double limit_ns(Duration slack) const {
    const Duration limit = slack < shortest_step  ? shortest_step
                           : slack > longest_step ? longest_step
                                                  : slack;
    return static_cast<double>(limit.count());
  }
};

}  // namespace sluice
