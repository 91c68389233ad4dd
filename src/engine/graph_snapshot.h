// The captured graphs of a model as a section of a snapshot: lists of ops, whose pointers are names
// and offsets (device/op_image.h). The decoder lists its ops again at every start, which takes
// microseconds, and a stored list is used only if it equals the new one. So a section that is
// wrong in any way costs its use and nothing else.
// Owner: the engine's loader. Threads: the engine's thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "engine/model_runner.h"
#include "snapshot/snapshot.h"

namespace sluice {

// The facts that the graphs depend on, besides config.json and the layout of the arena.
struct GraphFacts {
  std::string device;  // model name and instruction set
  std::string dtype;   // of the layers' matrices
  std::string other_dtype;
  std::int32_t token_budget = 0;
  std::int32_t max_num_seqs = 0;
  std::int32_t max_model_len = 0;
  std::int32_t block_size = 0;
};

// Makes the graphs of all capacities, from the snapshot where it has them; else offers them to it.
// REQUIRES: the runner is started, and lives until the snapshot has collected.
Status make_graphs(ModelRunner& runner, const GraphFacts& facts, Snapshot& snapshot);

}  // namespace sluice
