// ArtifactPlanner: decides which artifacts are in memory that no request uses, by PreloadPolicy and
// OffloadPolicy: backbones, warm workers on them, and adapters. Each spares later calls the time
// that making it takes. Where idle artifacts take more than their memory, those with the least
// value per byte leave, a backbone together with its workers; where there is room, the most
// valuable ones are made before they are needed.
//
// All machines are planned together: a copy on a second machine spares no call anything, so what
// has no room on one machine goes to another one. The first machines come first where it makes no
// difference. Each machine's own memory limits what it holds.
//
// Adapters are read on the first machine, for calls on all. A copy of one on another machine spares
// the way there, to the even part of its calls that start on that machine.
//
// A backbone is worth its load time to each call of its functions. Workers and adapters are worth
// something only to calls that find no process of their function: the share of gaps between calls
// that are longer than the function's idle time.
//
// Owner: FunctionLoops. Threads: its own. No clock: the caller gives the time, which must not fall.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "serverless/arrival_rate.h"
#include "serverless/artifact.h"
#include "serverless/offload_policy.h"

namespace sluice {

// The memory and the delay of an artifact, as measured.
struct ArtifactUse {
  std::int64_t bytes = 0;
  Duration saves{0};  // the time that making it takes
};

// The idle artifacts of a machine, each backbone's or function's one.
struct ArtifactState {
  std::vector<Residency> backbones;
  std::vector<bool> possible;  // whether it can have each backbone; empty: all
  // The workers of a backbone count as one artifact. Never in use: a worker that a call gets is an
  // instance.
  std::vector<ArtifactUse> worker_uses;  // of each backbone; no bytes: there are none to be had
  std::vector<bool> workers;             // whether they are there
  struct Adapter {
    ArtifactUse use;
    Residency residency = Residency::kAbsent;
  };
  std::map<std::int32_t, Adapter> adapters;  // by function
  // Processes that no call needs, by function: make_room() may end them. Where there are any, a
  // backbone with only such processes counts as idle.
  std::map<std::int32_t, ArtifactUse> instances;
  // The adapters are copies of another machine's, for calls that start here: each needs its
  // backbone here.
  bool copies = false;
};

struct ArtifactPlan {
  struct Set {
    std::vector<std::int32_t> backbones;
    std::vector<std::int32_t> workers;    // by backbone
    std::vector<std::int32_t> adapters;   // by function
    std::vector<std::int32_t> instances;  // by function
  };
  Set load;    // absent ones
  Set unload;  // idle ones
};

// A machine, as a plan sees it.
struct MachineArtifacts {
  ArtifactState state;
  std::int64_t idle_bytes = 0;  // of memory for idle artifacts, those that are loaded included
  bool takes = true;            // it has a place for another instance
};

class ArtifactPlanner {
 public:
  // The time for which the next calls are foreseen, and in which a past call loses half its weight.
  static constexpr Duration kHorizon = std::chrono::minutes(5);

  // `start`: of the process. Backbones and functions are numbered from 0.
  explicit ArtifactPlanner(TimePoint start) : start_(start) {}
  void add_backbone(const ArtifactUse& use) { backbones_.push_back(use); }
  // `idle`: the time without a call after which its process ends.
  void add_function(std::int32_t backbone, Duration idle) {
    functions_.push_back({backbone, idle, {}});
  }
  void set_idle(std::int32_t function, Duration idle) {
    functions_[static_cast<std::size_t>(function)].idle = idle;
  }
  void called(std::int32_t function, TimePoint now);
  // Calls within kHorizon are foreseen.
  bool was_called(std::int32_t function) const {
    return functions_[static_cast<std::size_t>(function)].arrivals.has_value();
  }

  // A plan for each machine. Nothing is loaded on machines without a place, unless none has one.
  // REQUIRES: a residency for each backbone.
  std::vector<ArtifactPlan> plan(TimePoint now, std::span<const MachineArtifacts> machines);
  // The same for one machine.
  ArtifactPlan plan(TimePoint now, const ArtifactState& state, std::int64_t idle_bytes) {
    const MachineArtifacts one{state, idle_bytes};
    return plan(now, {&one, 1}).front();
  }
  // Idle artifacts and processes that leave so that `bytes` become free; absent if that does not
  // free enough.
  std::optional<ArtifactPlan::Set> make_room(TimePoint now, const ArtifactState& state,
                                             std::int64_t bytes);
  // Bytes of all idle artifacts.
  std::int64_t idle_bytes(const ArtifactState& state) const;

 private:
  enum class Kind : std::uint8_t { kBackbone, kWorkers, kAdapter, kCopy, kInstance };
  struct Function {
    std::int32_t backbone = 0;
    Duration idle{0};
    std::optional<Arrivals> arrivals;  // none: it was never called
  };
  // One artifact that is loaded or could be.
  struct Item {
    Kind kind{};
    std::int32_t number = 0;  // of its backbone or function
    std::int32_t needs = -1;  // the item of its backbone
    ArtifactUse use;
    double rate = 0;  // calls per second that it would spare that time
    Residency residency{};
  };

  std::vector<Item> items(TimePoint now, const ArtifactState& state) const;
  std::optional<std::vector<std::int32_t>> leave(const std::vector<Item>& items,
                                                 std::int64_t bytes);
  // Takes the idle artifacts that have no room any more from the items.
  void fit(const MachineArtifacts& machine, std::vector<Item>& items);
  static void add_to(ArtifactPlan::Set& set, const Item& item);

  const TimePoint start_;
  std::vector<ArtifactUse> backbones_;
  std::vector<Function> functions_;
  OffloadPolicy offload_;
};

}  // namespace sluice
