#include "sim/step_cost.h"

#include <vector>

namespace sluice {

Duration step_latency(StepCost& cost, const BatchPlan& plan) {
  std::vector<Duration> stages(static_cast<std::size_t>(cost.num_stages()));
  cost.stage_times(plan, stages);
  Duration sum = cost.send_time(plan) * (cost.num_stages() - 1);
  for (const Duration d : stages) sum += d;
  return sum;
}

BatchPlan sample_step(std::int32_t decodes, std::int32_t decode_context, std::int32_t chunk,
                      std::int32_t chunk_context) {
  BatchPlan plan;
  for (std::int32_t i = 0; i < decodes; ++i) {
    plan.rows.push_back({.slot = i,
                         .context_len = decode_context,
                         .query_len = 1,
                         .first_token = i,
                         .first_logit = i,
                         .num_logits = 1});
  }
  if (chunk > 0) {
    plan.rows.push_back({.slot = decodes,
                         .context_len = chunk_context,
                         .query_len = chunk,
                         .first_token = decodes,
                         .first_logit = decodes,
                         .num_logits = 1});
  }
  plan.token_ids.assign(static_cast<std::size_t>(decodes) + static_cast<std::size_t>(chunk), 1);
  plan.logit_positions.assign(plan.rows.size(), 0);
  return plan;
}

}  // namespace sluice
