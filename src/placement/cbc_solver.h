// run_cbc(): CBC (https://github.com/coin-or/Cbc; Debian's coinor-cbc), run as a program.
// Owner: the caller. Threads: blocks the caller's; starts one child process and waits for it.
// Files: the program and the solution in a temporary directory, removed afterwards.
#pragma once

#include <optional>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "placement/cbc_text.h"

namespace sluice {

struct CbcRun {
  CbcSolution solution;
  std::optional<double> lower_bound;  // in the program's unit, after a search that was stopped
  std::string not_run;                // why the solver could not run; empty: it ran
};

// `solver`: by path or on PATH. `program`: in LP format. `limit`: of the search.
Result<CbcRun> run_cbc(const std::string& solver, const std::string& program, Duration limit);

}  // namespace sluice
