// BackbonePlanner: decides which backbones are in memory that no request uses, by PreloadPolicy and
// OffloadPolicy. A loaded backbone spares the next call of each of its functions the time of a
// load. Where idle backbones take more than their memory, those with the least value per byte
// leave; where there is room, the most valuable ones are loaded before they are called.
//
// Owner: FunctionLoops. Threads: its own. No clock: the caller gives the time, which must not fall.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "serverless/arrival_rate.h"
#include "serverless/artifact.h"
#include "serverless/offload_policy.h"

namespace sluice {

struct BackboneCost {
  std::int64_t bytes = 0;
  Duration load{0};  // as measured
};

struct BackbonePlan {
  std::vector<std::int32_t> load;    // absent ones
  std::vector<std::int32_t> unload;  // idle ones
};

class BackbonePlanner {
 public:
  // The time for which the next calls are foreseen, and in which a past call loses half its weight.
  static constexpr Duration kHorizon = std::chrono::minutes(5);

  // `start`: of the process. Backbones and functions are numbered from 0.
  explicit BackbonePlanner(TimePoint start) : start_(start) {}
  void add_backbone(const BackboneCost& cost) { costs_.push_back(cost); }
  void add_function(std::int32_t backbone) { functions_.push_back({backbone, {}}); }
  void called(std::int32_t function, TimePoint now);

  // `idle_bytes`: of memory for idle backbones, those that are loaded included. REQUIRES: a
  // residency for each backbone.
  BackbonePlan plan(TimePoint now, std::span<const Residency> residency, std::int64_t idle_bytes);
  // Idle backbones that leave so that `bytes` become free; none if that does not free enough.
  std::vector<std::int32_t> make_room(TimePoint now, std::span<const Residency> residency,
                                      std::int64_t bytes);

 private:
  struct Function {
    std::int32_t backbone = 0;
    std::optional<Arrivals> arrivals;  // none: it was never called
  };

  // Calls per second of each backbone's functions.
  std::vector<double> rates(TimePoint now) const;

  const TimePoint start_;
  std::vector<BackboneCost> costs_;
  std::vector<Function> functions_;
  OffloadPolicy offload_;
};

}  // namespace sluice
