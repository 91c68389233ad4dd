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
    std::int32_t placement = -1;
  };

  void prepare(const PreloadView& view);
  void start(const PreloadView& view);
  double run(const PreloadView& view, std::int32_t first);
  double run_greedy(const PreloadView& view);
  // Also fills bundle_ with the placement and, if it fits, all that it still needs.
  Bundle evaluate(const PreloadView& view, std::int32_t placement);
  Bundle evaluate_alone(const PreloadView& view, std::int32_t placement) const;
  int depth_of(std::int32_t placement) const;
  Bundle best_of(const PreloadView& view, const Entry& entry);
  double saved_by_member(std::size_t i) const;
  void take_bundle();
  void push(std::int32_t artifact, double density);
  PreloadPlan result(const PreloadView& view);

  const Artifacts& artifacts_;
  double keep_bonus_;
  // Fixed: indices of the artifacts.
  std::vector<std::int32_t> of_artifact_;        // placements, grouped by artifact
  std::vector<std::int32_t> first_of_artifact_;  // num_artifacts + 1
  std::vector<std::int32_t> dependents_;         // placements that need one, grouped by it
  std::vector<std::int32_t> first_dependent_;
  std::vector<double> saved_per_byte_;  // of each placement
  std::vector<double> best_possible_;   // of each artifact: the most that a placement saves
  // Fixed during a plan.
  std::vector<double> bound_;          // of each artifact: its best density without needs
  std::vector<double> part_per_byte_;  // of each memory: 1 / idle bytes
  // State of one run.
  std::vector<std::uint8_t> taken_;
  std::vector<std::int32_t> missing_;  // of each placement: direct needs that are not taken
  std::vector<double> saved_;          // of each artifact
  std::vector<std::int64_t> left_;     // idle bytes of each memory
  std::vector<double> key_;            // of each artifact: its valid entry; less than 0: none
  std::vector<Entry> heap_;
  std::vector<std::int32_t> bundle_;
  std::vector<std::uint8_t> best_taken_;
};

}  // namespace sluice
