// Policy: decides which sequences run in the next step, by calling the functions of PlanPass. A
// policy keeps no copy of queues or blocks; it may keep a little state of its own, such as the
// client to serve next.
// Owner: the scheduler. Threads: the engine's. Allocation: none per step.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice {

class PlanPass;
struct SchedulerOptions;
enum class Reservation : std::uint8_t;  // plan_pass.h

class Policy {
 public:
  virtual ~Policy() = default;
  virtual std::string_view name() const = 0;
  // The token budget that the policy plans with. A policy that never splits a prompt returns more
  // than options.token_budget. A step has at most max(token_budget(), max_num_seqs) tokens, a row
  // at most min(token_budget(), max_model_len).
  virtual std::int32_t token_budget(const SchedulerOptions& options) const;
  // Whether a prompt may take several rows. Prompts with log-probabilities do: a step has room for
  // the logits of SchedulerOptions::max_scored positions.
  virtual bool splits_prompts() const { return true; }
  // Whether the policy supports SchedulerOptions::time_budget: it plans all decodes of a step
  // before the chunks, so that the time left for chunks is known.
  virtual bool plans_by_time() const { return false; }
  // Whether running sequences are displaced for waiting ones of higher priority before plan() (see
  // PlanPass::make_room_for_priority()). Otherwise the policy decides by itself when priorities
  // count.
  virtual bool displaces() const { return true; }
  // With which blocks plan() admits.
  virtual Reservation reservation() const;
  // Fills the pass's plan. Everything planned is final: rows are never taken back.
  virtual void plan(PlanPass& pass) = 0;
  // Charges the client of a streamed sequence (stream_lane.h) for the plan's only row, which the
  // policy did not plan.
  virtual void charge_streamed(PlanPass& pass) const;
};

// The token budget of policies that run whole prompts beside decodes: one full context plus
// max_num_seqs decodes.
std::int32_t budget_beside_decodes(const SchedulerOptions& options);

// The policies that `--scheduler` may name.
std::vector<std::string_view> policy_names();

// Makes a policy by name. Errors: kInvalidArgument for another name, with the names that work.
Result<std::unique_ptr<Policy>> make_policy(std::string_view name);

}  // namespace sluice
