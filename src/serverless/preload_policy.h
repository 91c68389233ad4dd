// PreloadPolicy: which artifacts to load into memory that is idle (ServerlessLoRA, section 4.1).
//
// The value of a set of placements is the sum over artifacts of the arrivals per second of all
// functions that use the artifact, times the delay that the best of its placements saves. So a
// backbone counts once for all its functions, is weighed once, and a second copy adds nothing.
// (Equation 1 of the paper as printed adds the value of every copy and gives a backbone to each
// function alone.)
//
// The greedy algorithm takes placements by density: the value that a placement adds together with
// all that it still needs, over the part of the idle memory that these take. Memories are weighed
// by their size: a byte of a small memory counts more than one of a large memory. Where there is
// time (kEffort), the same runs again from other starts, each with one placement taken first, and
// the best set is the plan.
//
// Memory in use is never touched: it is not part of the idle bytes, and placements in use count as
// taken. Idle placements that are loaded already are preferred a little (`keep_bonus`), so that two
// artifacts of nearly equal value do not take turns. An idle placement
// that is not worth its place is dropped only where its memory is needed.
//
// Owner: the gateway or the simulator. One thread. Allocation: at construction, besides the result.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "serverless/artifact.h"

namespace sluice {

struct PreloadView {
  std::span<const Residency> residency;      // of each placement
  std::span<const double> rates;             // of each artifact: arrivals per second, all functions
  std::span<const std::int64_t> idle_bytes;  // of each memory: free, or of idle placements
};

struct PreloadPlan {
  std::vector<std::int32_t> load;  // absent placements, each behind all that it needs
  std::vector<std::int32_t> drop;  // idle placements, each before all that it needs
  double value = 0;                // seconds saved per second, placements in use included
};

class PreloadPolicy {
 public:
  // Evaluations of placements that one plan may cost beyond its first run.
  static constexpr std::size_t kEffort = 16'384;
  // Placements of an artifact of which all are compared, although they need others first.
  static constexpr std::size_t kFewPlacements = 4;

  // REQUIRES: `artifacts` outlives this and does not change.
  explicit PreloadPolicy(const Artifacts& artifacts, double keep_bonus = 0.1);

  // REQUIRES: sizes that fit the artifacts; a loaded placement has all that it needs loaded, and
  // one in use has it in use; idle placements fit into the idle bytes.
  PreloadPlan plan(const PreloadView& view);

 private:
  struct Entry {
    double density = 0;
    std::int32_t artifact = 0;
    friend bool operator<(const Entry& a, const Entry& b) {
      return a.density != b.density ? a.density < b.density : a.artifact > b.artifact;
    }
  };
  // A placement with all that it still needs.
  struct Bundle {
    double density = -1;  // less than 0: it does not fit
    std::int32_t slot = -1;
  };
  // A placement. Placements of one artifact lie beside each other, in the order of the list,
  // because the algorithm looks at them together. All lists below are of slots.
  struct Slot {
    double saved_s = 0;
    std::int64_t bytes = 0;
    std::int32_t memory = 0;
    std::int32_t artifact = 0;
    std::int32_t first_need = 0;
    std::int32_t num_needs = 0;
  };
  struct Needs {
    std::int32_t missing = 0;  // direct needs that are not taken
    std::int32_t deep = 0;     // those of them that miss something themselves
  };

  void prepare(const PreloadView& view);
  void start(const PreloadView& view);
  double run(const PreloadView& view, std::int32_t first);
  double run_greedy(const PreloadView& view);
  // Also fills bundle_ with the slot and, if it fits, all that it still needs.
  Bundle evaluate(const PreloadView& view, std::int32_t slot);
  Bundle evaluate_chain(const PreloadView& view, std::int32_t slot) const;
  Bundle evaluate_at(const PreloadView& view, std::int32_t slot);
  int depth_of(std::int32_t slot) const;
  Bundle best_of(const PreloadView& view, const Entry& entry);
  Bundle best_of_slots(const PreloadView& view, std::span<const std::int32_t> slots, double enough);
  double saved_by_member(std::size_t i) const;
  std::span<const std::int32_t> needs_of(std::int32_t slot) const;
  std::span<const std::int32_t> dependents_of(std::int32_t slot) const;
  void mark_taken(std::int32_t slot);
  void look_again(const PreloadView& view, std::int32_t slot);
  void take_bundle(const PreloadView& view);
  void push(std::int32_t artifact, double density);
  PreloadPlan result(const PreloadView& view);

  const Artifacts& artifacts_;
  double keep_bonus_;
  // Fixed: indices of the artifacts.
  std::vector<Slot> slots_;
  std::vector<std::int32_t> position_of_;        // of each slot in the list of placements
  std::vector<std::int32_t> slot_of_;            // of each placement
  std::vector<std::int32_t> first_of_artifact_;  // num_artifacts + 1
  std::vector<std::int32_t> needs_;
  std::vector<std::int32_t> dependents_;  // slots that need one, grouped by it
  std::vector<std::int32_t> first_dependent_;
  std::vector<Needs> needs_at_start_;   // of each slot, when nothing is loaded
  std::vector<double> saved_per_byte_;  // of each slot
  std::vector<double> best_possible_;   // of each artifact: the most that a placement saves
  // Fixed during a plan.
  std::vector<std::int32_t> idle_;     // in the order of the list
  std::vector<std::int32_t> in_use_;   // in the order of the list
  std::vector<std::uint8_t> is_idle_;  // of each slot
  std::vector<double> bound_;          // of each artifact: its best density without needs
  std::vector<double> memory_bytes_;   // of each memory: idle bytes, at least 1
  std::vector<double> part_per_byte_;  // of each memory: 1 / idle bytes
  // State of one run.
  std::vector<std::uint8_t> taken_;
  std::vector<std::int32_t> taken_order_;  // beside those in use
  std::vector<Needs> missing_;
  std::vector<double> saved_;       // of each artifact
  std::vector<std::int64_t> left_;  // idle bytes of each memory
  std::vector<double> key_;         // of each artifact: its valid entry; less than 0: none
  std::vector<Entry> heap_;
  std::vector<std::int32_t> bundle_;
  std::array<std::vector<std::int32_t>, 2> by_depth_;
  std::vector<std::uint8_t> best_taken_;
  std::vector<std::int32_t> best_order_;
};

}  // namespace sluice
