// The captured graphs of a model as a section of a snapshot: lists of ops, whose pointers are names
// and offsets (device/op_image.h), and the base of the arena that they were captured in. The
// decoder lists its ops again at every start, which takes microseconds, and a stored list is used
// only if it equals the new one. So a section that is wrong in any way costs its use and nothing
// else.
//
//   find the section -> reserve() the arena -> make_graphs() once the runner is started
//
// Section: u64 base | the image of the lists.
// Owner: the engine's loader. Threads: the engine's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/result.h"
#include "device/arena.h"
#include "engine/model_runner.h"
#include "snapshot/snapshot.h"

namespace sluice {

// The facts that the graphs depend on, besides config.json and the layout of the arena.
struct GraphFacts {
  std::string device;  // DeviceTraits::numerics
  std::string dtype;   // of the layers' matrices
  std::string other_dtype;
  std::int32_t token_budget = 0;
  std::int32_t max_num_seqs = 0;
  std::int32_t max_model_len = 0;
  std::int32_t block_size = 0;
};

class GraphSnapshot {
 public:
  // Asks the snapshot for the section. `plan`: the whole arena, finished. REQUIRES: the snapshot
  // outlives this.
  GraphSnapshot(const GraphFacts& facts, const ArenaPlan& plan, GraphMode mode, Snapshot& snapshot);

  // Reserves the arena as Snapshot::restore_mode() says: at the stored base, or at another one.
  // Without a section, at the device's first free base. A stored base that is taken costs the
  // section only if kLayout is forced.
  Result<Arena> reserve(Device& device, ArenaPlan plan);

  // Makes the graphs of all capacities, from the section where it has them; else offers them.
  // REQUIRES: the runner is started in the arena of reserve(), and lives until the snapshot has
  // collected.
  Status make_graphs(ModelRunner& runner);

 private:
  Result<std::string> restore(ModelRunner& runner);

  Snapshot& snapshot_;
  bool wanted_ = false;  // graphs are made, and snapshots are used
  SnapshotKey key_;
  std::byte* base_ = nullptr;                        // the stored one
  std::optional<std::span<const std::byte>> lists_;  // the stored image
};

}  // namespace sluice
