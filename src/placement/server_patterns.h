// ServerPatterns: what one server may hold so that a placement's largest R and N (equations 4 and 5
// of Aqua, section 5) stay below given limits, and the question "how often is each pattern used"
// as an integer linear program.
//
// Servers are counted, not named, so a solver meets no permutations of them, and most of what makes
// a placement impossible is decided when the patterns are listed. The program has a solution if and
// only if there is a placement within the limits. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "placement/cbc_text.h"
#include "placement/cluster.h"

namespace sluice {

class ServerPatterns {
 public:
  // More patterns than this, or a longer search for them, are not tried.
  static constexpr std::size_t kMaxPatterns = 20'000;
  static constexpr std::int64_t kMaxVisited = 2'000'000;

  // Empty: there are too many patterns.
  static std::optional<ServerPatterns> list(Cluster cluster, const PlacementLimits& limits);

  std::size_t size() const { return patterns_.size(); }
  // Whether the patterns have a place for each model, and one of them the full N. Without the first
  // there is no placement; without the second there is none that a smaller limit of N forbids.
  bool cover_all_kinds() const { return covers_all_; }
  bool reach_producers() const { return reaches_; }

  std::string program() const;
  // Absent: the solver found none in its time. The placement is checked.
  Result<std::optional<ModelPlacement>> placement_of(const CbcSolution& solution) const;

 private:
  // Kinds with equal shards and memory are one class here.
  struct Class {
    std::vector<std::size_t> kinds;
    std::int32_t count = 0;
    std::int32_t gpus = 0;
    std::int64_t spare_mb = 0;   // of one model
    std::int32_t producers = 0;  // likewise
  };
  struct Totals {
    std::int64_t gpus = 0;
    std::int64_t spare_mb = 0;
    std::int64_t producers = 0;
  };
  using Pattern = std::vector<std::int32_t>;  // models of each class

  explicit ServerPatterns(Cluster cluster);
  bool extend(std::size_t place, Pattern& pattern, const Totals& held);
  void keep(const Pattern& pattern, const Totals& held);

  Cluster cluster_;
  std::vector<Class> classes_;
  std::vector<Pattern> patterns_;
  Totals most_;
  Totals least_;  // what one server must hold, because the others hold no more than `most_`
  std::int64_t visited_ = 0;
  bool covers_all_ = false;
  bool reaches_ = false;
};

}  // namespace sluice
