// `vtc`: stall-free batches, admitted fairly by client: the Virtual Token Counter (Sheng et al.,
// "Fairness in Serving Large Language Models", OSDI 2024). Among the waiting clients of the best
// priority, the one that was served least is admitted next. ClientLedger has the counters.
// docs/scheduling.md has the rules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "scheduler/policy.h"
#include "scheduler/waiting_queue.h"

namespace sluice {

struct PlanRow;

// The charges of a client.
struct VtcWeights {
  std::int64_t input = 1;   // per prompt token computed
  std::int64_t output = 2;  // per decode

  // The cost of the row of a streamed sequence, chunk by chunk.
  std::int64_t of_streamed(const PlanPass& pass) const;
};

class VtcPolicy final : public Policy {
 public:
  explicit VtcPolicy(VtcWeights weights = {}) : weights_(weights) {}

  std::string_view name() const override { return "vtc"; }
  bool plans_by_time() const override { return true; }
  void plan(PlanPass& pass) override;
  void charge_streamed(PlanPass& pass) const override;

 private:
  void charge_decodes(PlanPass& pass) const;
  void give_back_loaded(PlanPass& pass, const PlanRow& row) const;
  void charge_prompt(PlanPass& pass, std::int32_t slot) const;
  std::size_t line_up(std::span<const WaitingEntry> waiting, std::size_t begin);
  bool admit_lines(PlanPass& pass);

  static constexpr std::int32_t kNone = -1;
  // The sequences of a client that wait, linked by `next_`.
  struct Line {
    std::int32_t client = 0;
    std::int32_t first = kNone;  // position in the waiting queue
  };

  VtcWeights weights_;
  // Scratch of one plan.
  std::vector<Line> lines_;
  std::vector<std::int32_t> next_;   // by position
  std::vector<std::int32_t> first_;  // by client
};

}  // namespace sluice
