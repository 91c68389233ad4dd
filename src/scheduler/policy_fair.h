// `fair`: when memory or slots do not suffice for all, sequences take turns. After Aqua ("Aqua:
// Network-Accelerated Memory Offloading for LLMs in Scale-Up GPU Domains", ASPLOS 2025, section 7:
// completely fair scheduling with a batch divided between prompts and decodes).
//
// Until a sequence waits for blocks or a slot, its plans equal those of `stall-free`. From then on:
// - A turn is promised all the blocks that it needs, so a sequence on turn never waits for one. It
//   lasts at least SchedulerOptions::turn_tokens decodes and ends at a border of blocks: the
//   sequence's KV then consists of full blocks, which have names, so nothing of it is computed
//   again if the tier below keeps them.
// - At a turn's end the sequence goes on if no waiting one has a better claim to its memory.
//   Otherwise it is displaced: its blocks are saved to the tier, and it waits.
// - Among waiting sequences, three without an output (newcomers) are chosen for one with outputs (a
//   returner); what one kind leaves goes to the other. Newcomers come in the order of arrival,
//   returners by the least service; the priority and then the client's counter count before that.
//   A newcomer starts with the service of the least served sequence. A sequence whose loads have
//   ended goes first, because nothing holds what they brought.
// - A return costs time: saves, loads, tokens computed again. A turn lasts until that was at most
//   1/10 of it, so on a slow tier turns stretch, up to first come, first served.
// - Running prompts get their chunks by the least computed first.
//
// Bounded waiting: among sequences of one client and priority, a returner waits for at most four
// choices for each other sequence that had less service when it was displaced, times the turns that
// the difference makes, because every newcomer starts with the least service and gains by its turn.
// Service before the contention began does not count. docs/scheduling.md has an example.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "scheduler/policy.h"
#include "scheduler/policy_vtc.h"
#include "scheduler/waiting_queue.h"

namespace sluice {

struct Admission;

class FairPolicy final : public Policy {
 public:
  std::string_view name() const override { return "fair"; }
  bool plans_by_time() const override { return true; }
  bool displaces() const override { return false; }  // priorities count when turns end
  void plan(PlanPass& pass) override;
  void charge_streamed(PlanPass& pass) const override;

 private:
  // A turn that is over.
  struct Due {
    std::int32_t slot = 0;
    bool displaceable = true;  // it has lasted long enough for what its return took
    bool over = false;         // displaced, or its end is settled
  };

  // Null: none of the kind waits.
  struct Best {
    const WaitingEntry* newcomer = nullptr;
    const WaitingEntry* returner = nullptr;
  };

  void begin_contention(PlanPass& pass);
  void plan_turns(PlanPass& pass);
  void find_due(PlanPass& pass);
  void choose(PlanPass& pass);
  Best best_waiting(PlanPass& pass) const;
  Sequence* next_choice(PlanPass& pass);
  bool make_room(PlanPass& pass, const WaitingEntry& chosen, std::int64_t missing_blocks,
                 std::int32_t missing_slots);
  Due* weakest_due(PlanPass& pass, const WaitingEntry* claim);
  bool has_claim(PlanPass& pass, const WaitingEntry& waiting, std::int32_t slot) const;
  bool goes_before(PlanPass& pass, const WaitingEntry& a, const WaitingEntry& b) const;
  bool weaker(PlanPass& pass, std::int32_t a, std::int32_t b) const;
  void renew(PlanPass& pass);
  bool displace(PlanPass& pass, Due& due);
  void prefill_least_first(PlanPass& pass);
  void admit_chosen(PlanPass& pass);
  void start_turn(PlanPass& pass, std::int32_t slot);
  std::int64_t least_served(PlanPass& pass) const;
  void charge(PlanPass& pass) const;

  VtcWeights weights_;
  bool contended_ = false;
  std::int32_t newcomers_in_row_ = 0;  // begun since a returner did
  std::int32_t reserved_ = 0;  // blocks for those chosen, and for those whose loads are under way
  // Scratch of one plan.
  std::vector<Due> due_;
  std::vector<Sequence*> chosen_;
  std::vector<Sequence*> displaced_;
  std::vector<std::int32_t> tried_;  // slots
};

}  // namespace sluice
