// `chunked-only`: chunked prefill without hybrid batches, an ablation of stall-free batching
// (Sarathi-Serve, table 4). Steps with chunks and steps with decodes take turns.
// docs/scheduling.md has the rules.
#pragma once

#include "scheduler/policy.h"

namespace sluice {

class ChunkedOnlyPolicy final : public Policy {
 public:
  std::string_view name() const override { return "chunked-only"; }
  void plan(PlanPass& pass) override;

 private:
  static bool plan_chunks(PlanPass& pass);
  static bool plan_decodes(PlanPass& pass);

  bool chunks_first_ = true;  // whose turn it is
};

}  // namespace sluice
