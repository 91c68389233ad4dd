// The conclusions from a machine profile: goals, budgets, errors; as text and as JSON.
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "profile/token_budget.h"

namespace sluice {

// A goal and the budgets that meet it.
struct Recommendation {
  std::string name;
  Duration goal{0};
  std::optional<std::int32_t> token_budget;  // absent: `problem` says why
  std::string problem;
};

struct Findings {
  MachineProfile profile;
  std::string path;
  PaperGoals goals;
  ReferenceLoad load;
  std::vector<Recommendation> recommendations;
};

// `tbt_slo`: the user's goal, in addition to the paper's two.
Findings conclude(MachineProfile profile, std::int32_t max_num_seqs,
                  std::optional<Duration> tbt_slo);

// Both end with a line break.
std::string findings_text(const Findings& findings);
std::string findings_json(const Findings& findings);

}  // namespace sluice
