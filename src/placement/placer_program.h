// The placement as an integer linear program over counts per server and kind, and the solver's
// answer: equations 1 to 6 of Aqua (https://arxiv.org/abs/2407.21255, section 5). Both maxima are
// integer variables above their means, so both may be negative. Its size grows with servers times
// kinds only, but servers are interchangeable in it, so a solver hardly proves a bound:
// pattern_program.h is better where its patterns are few. Pure; any thread.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "placement/cbc_text.h"
#include "placement/cluster.h"

namespace sluice {

std::string placer_program(const Cluster& cluster);

// The placement of a solution; absent: the solver found none in its time. The placement is
// checked. Errors: the solution names what the program does not have.
Result<std::optional<ModelPlacement>> placement_of(const Cluster& cluster,
                                                   const CbcSolution& solution);

}  // namespace sluice
