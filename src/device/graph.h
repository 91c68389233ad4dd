// Graph: a list of ops that a device runs as one unit. A CPU graph is the list itself. Other
// devices derive a class that also holds their own form of it (a CUDA graph holds a driver graph).
// Owner: the engine's graph cache. Threads: the engine's thread only.
#pragma once

#include <utility>

#include "device/op_list.h"

namespace sluice {

class Graph {
 public:
  explicit Graph(OpList ops) : ops_(std::move(ops)) {}
  virtual ~Graph() = default;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  const OpList& ops() const { return ops_; }

 private:
  OpList ops_;
};

}  // namespace sluice
