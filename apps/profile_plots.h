// The plots of `sluice profile --report`: what batching gains, what steps are made of, and what a
// prompt that joins costs the decodes (figures 3, 4 and 9 of the Sarathi-Serve paper, for this
// machine). Points are measured, lines are the predictor's.
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "loadgen/plots.h"
#include "profile/machine_profile.h"

namespace sluice {

// `token_budget`: of the chunked prompts in the last plot.
std::vector<Plot> profile_plots(const MachineProfile& profile, std::int32_t token_budget);

}  // namespace sluice
