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
// Most placements are the same choice: an artifact on one of many devices. So a run walks down the
// artifacts, in the order of their densities without needs, and chooses a device when it takes an
// artifact. An artifact is taken at once if all that it needs is taken somewhere. Otherwise it is
// deferred, with an upper bound of its density together with its needs. The exact density is
// computed when that bound is the highest one. Each placement that is taken opens the artifacts
// that need it again.
//
// Memory in use is never touched: it is not part of the idle bytes, and placements in use count as
// taken. Idle placements that are loaded already are preferred a little (`keep_bonus`), so that two
// artifacts of nearly equal value do not take turns. An idle placement that is not worth its place
// is dropped only where its memory is needed.
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
  // Placements of an artifact of which all are compared, although they need others first.
  static constexpr std::size_t kFewPlacements = 4;

  // REQUIRES: `artifacts` outlives this and does not change.
  explicit PreloadPolicy(const Artifacts& artifacts, double keep_bonus = 0.1);

  // REQUIRES: sizes that fit the artifacts; a loaded placement has all that it needs loaded, and
  // one in use has it in use; idle placements fit into the idle bytes.
  PreloadPlan plan(const PreloadView& view);

 private:
  // A placement during a run.
  enum class State : std::uint8_t {
    kWaiting,  // something that it needs is not taken
    kReady,    // all that it needs is taken
    kTaken,
    kNoRoom,  // for it with all that it still needs; a run frees no memory, so this stays true
  };
  // Numbers in groups.
  struct Groups {
    std::vector<std::int32_t> first;  // of each group, in `list`, and the end
    std::vector<std::int32_t> list;
    std::span<const std::int32_t> of(std::int32_t group) const {
      const auto* const begin = first.data() + group;
      return {list.data() + begin[0], list.data() + begin[1]};
    }
  };
  // Placements of one artifact that differ by their memories only.
  struct Copies {
    double saved_per_byte = 0;
    double bytes = 0;
    std::int32_t artifact = 0;
    std::int32_t end = 0;  // in memory_of_copy_; they begin where the ones before end
  };
  struct Candidate {
    double density = -1;  // an upper bound; less than 0: there is none
    std::int32_t artifact = -1;
    friend bool operator<(const Candidate& a, const Candidate& b) {
      return a.density != b.density ? a.density < b.density : a.artifact > b.artifact;
    }
  };
  struct Choice {
    double density = -1;          // less than 0: there is none
    std::int32_t placement = -1;  // -1: the density is an upper bound
  };
  // A density is gain / part.
  struct Worth {
    double gain = 0;
    double part = 0;  // of the idle memory
  };

  static Groups group(std::span<const std::int32_t> keys, std::int32_t num_groups);
  const Placement& placement(std::int32_t p) const {
    return artifacts_.placements[static_cast<std::size_t>(p)];
  }
  std::span<const std::int32_t> needs_of(std::int32_t p) const {
    return artifacts_.needs_of(placement(p));
  }
  void add_copies(std::int32_t artifact);
  bool is_idle(const PreloadView& view, std::int32_t p) const;
  void prepare(const PreloadView& view);

  void start(const PreloadView& view);
  double run(const PreloadView& view, std::int32_t first);
  double run_greedy(const PreloadView& view);
  void open(std::int32_t artifact);
  void defer(Candidate candidate);
  Candidate next_open();
  double next_density();
  Candidate pop();
  void make_ready(std::int32_t p);
  void mark_taken(std::int32_t p);
  void take_bundle();

  Choice best_of(const PreloadView& view, const Candidate& candidate);
  Choice best_ready(const PreloadView& view, std::int32_t artifact);
  Choice best_waiting(const PreloadView& view, std::int32_t artifact);
  double evaluate(const PreloadView& view, std::int32_t p);
  bool needs_waiting(std::int32_t p) const;
  std::int32_t first_with_room(std::int32_t& link) const;
  bool has_ready_copy(std::int32_t artifact);
  Worth worth_with_needs(const PreloadView& view, std::int32_t artifact);
  PreloadPlan result(const PreloadView& view);

  const Artifacts& artifacts_;
  double keep_bonus_;
  // Fixed.
  Groups placements_of_;                 // of each artifact
  Groups dependents_of_;                 // of each placement: those that need it
  Groups needs_of_artifact_;             // of each artifact: those that its placements need
  std::vector<std::int32_t> roots_;      // placements that need nothing
  std::vector<std::int32_t> num_needs_;  // of each placement
  std::vector<Copies> copies_;
  std::vector<std::int32_t> memory_of_copy_;
  std::vector<double> most_saved_;  // of each artifact, by its best placement
  // Fixed during a plan.
  std::vector<std::int32_t> idle_;
  std::vector<std::int32_t> in_use_;
  std::vector<double> part_per_byte_;  // of each memory: 1 / idle bytes
  std::vector<double> bound_;          // of each artifact: its best density without needs
  std::vector<double> least_part_;     // of each artifact: of any memory, without needs
  std::vector<std::int32_t> order_;    // artifacts, by bound
  std::vector<std::int32_t> rank_;     // of each artifact in order_
  // State of one run.
  std::vector<State> state_;               // of each placement
  std::vector<std::int32_t> missing_;      // of each placement: direct needs that are not taken
  std::vector<std::int32_t> first_ready_;  // of each artifact: a list, in the order of placements
  std::vector<std::int32_t> next_ready_;   // of each placement: less than 0 at the end
  std::vector<double> saved_;              // of each artifact
  std::vector<std::int64_t> left_;         // idle bytes of each memory
  std::vector<std::uint64_t> open_;        // a bit for each rank
  std::size_t first_word_ = 0;             // of open_: words before it are 0
  std::vector<Candidate> deferred_;        // a heap
  std::vector<double> deferred_density_;   // of each artifact; less than 0: it is not deferred
  std::vector<std::int32_t> bundle_;       // the last one that was evaluated
  std::vector<std::uint8_t> on_path_;      // of each artifact, in worth_with_needs()
  std::vector<State> best_state_;          // after the best run
};

}  // namespace sluice
