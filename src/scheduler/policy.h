// Policy: who runs in the next step, composed of the building blocks of PlanPass. A policy keeps
// no copy of queues or blocks; the little it remembers (whose turn it is) is its own.
// Owner: the scheduler. Threads: the engine's. Allocation: none per step.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice {

class PlanPass;
struct SchedulerOptions;

class Policy {
 public:
  virtual ~Policy() = default;
  virtual std::string_view name() const = 0;
  // The token budget that the policy plans with when the user asks for options.token_budget: more
  // when it never splits a prompt. A step has at most max(this, max_num_seqs) tokens, a row at most
  // min(this, max_model_len).
  virtual std::int32_t token_budget(const SchedulerOptions& options) const;
  // Whether SchedulerOptions::time_budget makes sense: steps have all decodes first and chunks
  // behind them, so that the time left for chunks is known.
  virtual bool plans_by_time() const { return false; }
  // Fills the pass's plan. Everything planned is final: rows are never taken back.
  virtual void plan(PlanPass& pass) = 0;
};

// The token budget of policies that run whole prompts beside decodes: a whole context fits beside
// all the decodes there can be.
std::int32_t budget_beside_decodes(const SchedulerOptions& options);

// The policies that `--scheduler` may name.
std::vector<std::string_view> policy_names();

// kUnsupported for a policy that is known and not built yet, kInvalidArgument for any other name;
// both list the names that work.
Result<std::unique_ptr<Policy>> make_policy(std::string_view name);

}  // namespace sluice
