// Graph: ops recorded by a device between begin_capture and end_capture, replayed as one unit.
// A CPU graph is the list of (op id, params) itself; a CUDA graph holds a driver graph whose own
// nodes carry the same ids. Params are raw bytes of the structs in op_params.h, pointers included:
// relocation and snapshot files work on these bytes.
// Owner: the engine's graph cache. Threads: the engine's thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "device/ops.h"

namespace sluice {

struct GraphNode {
  OpId op;
  std::span<const std::byte> params;
};

class Graph {
 public:
  virtual ~Graph() = default;
  virtual std::size_t num_nodes() const = 0;
  // REQUIRES: index < num_nodes(). Valid as long as the graph lives.
  virtual GraphNode node(std::size_t index) const = 0;
};

}  // namespace sluice
