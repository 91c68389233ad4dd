// The cost of attention beside the rest of a step, from the model's shape: with it, a time budget
// without a profile starts (scheduler/measured_step_times.h). Pure functions.
#pragma once

#include "kv/kv_layout.h"
#include "model/model_config.h"
#include "model/weights.h"
#include "scheduler/time_budget.h"

namespace sluice {

StepCosts step_costs(const ModelConfig& config, WeightDTypes dtypes, const KvLayout& kv);

// Chunks beside streams make a step at most three times as long as its decodes alone.
TimeBudget budget_by_decodes(const StepCosts& costs);

}  // namespace sluice
