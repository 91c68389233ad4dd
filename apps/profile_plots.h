// The plots of `sluice profile --report`: the gain of batching, the parts of a step's time, how it
// grows with its tokens, what chunks cost a prompt, and the delay that a joining prompt causes for
// decodes (figures 3, 4, 6, 14 and 9 of the Sarathi-Serve paper, for this machine). Points are
// measured, lines are predicted. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "loadgen/plots.h"
#include "profile/machine_profile.h"

namespace sluice {

// `token_budget`: of the chunked prompts in the last plot.
std::vector<Plot> profile_plots(const MachineProfile& profile, std::int32_t token_budget);

}  // namespace sluice
