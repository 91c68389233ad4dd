// RecordedOps: a list of (op id, parameter bytes), in order. On the CPU such a list is a graph by
// itself; a CUDA graph carries one beside the driver's graph, so that both look the same to
// relocation and snapshot files.
// Owner: the device that captures, then whoever holds the graph. Threads: the engine's thread only.
#pragma once

#include <cstddef>
#include <vector>

#include "device/graph.h"
#include "device/ops.h"

namespace sluice {

class RecordedOps final : public Graph {
 public:
  std::size_t num_nodes() const override { return nodes_.size(); }
  GraphNode node(std::size_t index) const override;

  template <class Params>
  void append(OpId op, const Params& params) {
    append_bytes(op, &params, sizeof(Params));
  }

 private:
  struct Node {
    OpId op;
    std::size_t offset;
    std::size_t bytes;
  };
  void append_bytes(OpId op, const void* params, std::size_t bytes);

  std::vector<Node> nodes_;
  std::vector<std::byte> params_;
};

}  // namespace sluice
