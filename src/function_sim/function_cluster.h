// FunctionCluster: the memory of a simulated cluster: which artifacts of an ArtifactCatalog are
// loaded where, since when, and for how many live instances. It loads what an instance lacks,
// makes room by OffloadPolicy, and carries out what PreloadPolicy plans.
//
// A loaded artifact has all that it needs loaded; the artifacts of a live instance are in use and
// stay. Loads of one start follow one another, and each artifact is there at the end of its own
// load. A copy in host memory spares the read from disk.
// Owner: FunctionSimulation. One thread. Virtual time: the caller gives it, and it must not fall.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/function_ref.h"
#include "serverless/artifact_catalog.h"
#include "serverless/offload_policy.h"
#include "serverless/preload_policy.h"

namespace sluice {

// Seconds of the loads of one start, by what is loaded.
struct StartParts {
  double libraries = 0;
  double backbone = 0;
  double adapter = 0;
  double kernels = 0;
};

class FunctionCluster {
 public:
  // `capacity`: of each memory of the catalog.
  FunctionCluster(const CatalogSpec& spec, std::vector<std::int64_t> capacity);
  FunctionCluster(const FunctionCluster&) = delete;
  FunctionCluster& operator=(const FunctionCluster&) = delete;

  std::int32_t places() const { return static_cast<std::int32_t>(catalog_.places().size()); }
  // Until an instance could compute that starts now.
  Duration start_delay(std::int32_t function, std::int32_t place, TimePoint now) const;
  // The part of that delay that is the start's own loads.
  StartParts start_parts(std::int32_t function, std::int32_t place) const;
  // Whether what it lacks fits after idle artifacts have left.
  bool fits(std::int32_t function, std::int32_t place) const;
  std::int64_t free_bytes(std::int32_t place) const;
  // The bytes that an instance would add to the place's memory.
  std::int64_t missing_bytes(std::int32_t function, std::int32_t place) const;
  // Starts an instance and returns when it can compute. REQUIRES: it fits.
  TimePoint start(std::int32_t function, std::int32_t place, TimePoint now);
  // Says which artifacts of an ended instance stay, idle. The others leave the place's memory at
  // once if no other instance uses them.
  enum class Keeps : std::uint8_t { kAll, kAllButProcess, kNothing };
  void end(std::int32_t function, std::int32_t place, Keeps keeps);

  // Calls per second that artifacts are worth, from those of functions. Kinds that are not in
  // `kinds` are worth nothing before a call, so they are never loaded before one.
  void set_rates(std::span<const double> function_rates);
  void preload(TimePoint now, std::span<const ArtifactKind> kinds);

  std::int64_t loads() const { return loads_; }        // before calls
  std::int64_t offloads() const { return offloads_; }  // to make room
  // CHECKs what the contract says, and that no memory holds more than it has.
  void check_integrity() const;

 private:
  struct State {
    bool loaded = false;
    TimePoint ready_at;
    std::int32_t users = 0;  // live instances
  };

  const Placement& placement(std::int32_t p) const {
    return catalog_.artifacts().placements[static_cast<std::size_t>(p)];
  }
  State& state(std::int32_t p) { return states_[static_cast<std::size_t>(p)]; }
  const State& state(std::int32_t p) const { return states_[static_cast<std::size_t>(p)]; }
  const std::vector<std::int32_t>& closure(std::int32_t function, std::int32_t place) const;
  void add_closure(std::int32_t p, std::vector<std::int32_t>& closure) const;
  double load_seconds(std::int32_t p) const;
  // Calls visit(placement, end of its load) for each load of a start, and returns when an instance
  // could compute: the loads begin when what is under way for it has been loaded.
  TimePoint plan_start(std::int32_t function, std::int32_t place, TimePoint now,
                       FunctionRef<void(std::int32_t, TimePoint)> visit) const;
  double value(std::int32_t p) const;
  void load(std::int32_t p, TimePoint ready_at);
  void drop(std::int32_t p);
  void make_room(std::int32_t memory, std::int64_t bytes);
  std::int64_t idle_bytes(std::int32_t memory) const;

  const ArtifactCatalog catalog_;
  const std::vector<std::int64_t> capacity_;
  std::vector<State> states_;
  std::vector<std::int64_t> used_;             // bytes, by memory
  std::vector<std::int64_t> in_use_;           // of these, of live instances
  std::vector<std::vector<std::int32_t>> in_;  // placements, by memory
  std::vector<std::vector<std::int32_t>> needed_by_;
  std::vector<std::int32_t> host_copy_;              // placement, by artifact; -1: none
  std::vector<std::vector<std::int32_t>> closures_;  // by function and place
  std::vector<double> rates_;                        // by artifact
  PreloadPolicy preload_;
  OffloadPolicy offload_;
  std::int64_t loads_ = 0;
  std::int64_t offloads_ = 0;
};

}  // namespace sluice
