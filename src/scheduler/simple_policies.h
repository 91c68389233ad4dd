// Six policies whose rule is one screen long. docs/scheduling.md has the rules.
// Owner: the scheduler. Threads: the engine's.
#pragma once

#include <cstdint>

#include "scheduler/plan_pass.h"
#include "scheduler/policy.h"

namespace sluice {

// `stall-free`: chunked prefill and stall-free batching (Sarathi-Serve, Algorithm 3). Every
// running decode runs in every step. Prompts fill the rest of the token budget in chunks: first
// those of running sequences, then new ones in order of arrival.
class StallFreePolicy final : public Policy {
 public:
  std::string_view name() const override { return "stall-free"; }
  bool plans_by_time() const override { return true; }
  void plan(PlanPass& pass) override;
};

// `chunked-only`: chunked prefill without hybrid batches, an ablation of stall-free batching
// (Sarathi-Serve, table 4). Steps with chunks and steps with decodes alternate.
class ChunkedOnlyPolicy final : public Policy {
 public:
  std::string_view name() const override { return "chunked-only"; }
  void plan(PlanPass& pass) override;

 private:
  static bool plan_chunks(PlanPass& pass);
  static bool plan_decodes(PlanPass& pass);

  bool chunks_first_ = true;  // whether the next step has chunks
};

// Hybrid batches without chunked prefill: every decode runs in every step, with as many whole
// prompts as fit. Three policies differ in the blocks promised to a sequence on admission:
// `hybrid-only`        its prompt, an ablation of stall-free batching (Sarathi-Serve, table 4)
// `hybrid`             a whole context, Orca as the Sarathi-Serve paper measured it
// `hybrid:max-tokens`  its prompt and its own max_tokens, as in Orca
// The last two preempt only for a higher priority.
class HybridPolicy final : public Policy {
 public:
  explicit HybridPolicy(Reservation reservation) : reservation_(reservation) {}
  Reservation reservation() const override { return reservation_; }

  std::string_view name() const override;
  std::int32_t token_budget(const SchedulerOptions& options) const override;
  bool splits_prompts() const override { return false; }
  void plan(PlanPass& pass) override;

 private:
  Reservation reservation_;
};

// `prefill-first`: vLLM's rule before version 1. A step has prompts or decodes, never both.
// Prompts go first, whole, as many as fit; decodes stall meanwhile.
class PrefillFirstPolicy final : public Policy {
 public:
  std::string_view name() const override { return "prefill-first"; }
  std::int32_t token_budget(const SchedulerOptions& options) const override;
  bool splits_prompts() const override { return false; }
  void plan(PlanPass& pass) override;
};

// `request-level`: FasterTransformer's batching. The waiting sequences form a batch. Their prompts
// run whole, then the sequences decode until the last one has ended. No other sequence joins
// meanwhile, whatever its priority. Blocks for a whole context are promised on admission.
class RequestLevelPolicy final : public Policy {
 public:
  std::string_view name() const override { return "request-level"; }
  bool displaces() const override { return false; }
  std::int32_t token_budget(const SchedulerOptions& options) const override;
  bool splits_prompts() const override { return false; }
  void plan(PlanPass& pass) override;

 private:
  std::uint64_t batch_end_ = 0;  // sequences with lower tickets arrived before the batch began
};

// `unified`: vLLM 1's rule. There are no phases: each running sequence has tokens to compute, one
// when it decodes, the rest of its prompt otherwise. Running sequences get tokens in service order
// until the token budget is used up; the rest of the budget admits new sequences.
class UnifiedPolicy final : public Policy {
 public:
  std::string_view name() const override { return "unified"; }
  void plan(PlanPass& pass) override;
};

}  // namespace sluice
