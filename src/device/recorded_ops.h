// RecordedOps: a list of (op id, parameter bytes), in order. On the CPU such a list is a graph by
// itself; a CUDA graph carries one beside the driver's graph, so that both look the same to
// relocation and snapshot files.
// Owner: the device that captures, then whoever holds the graph. Threads: the engine's thread only.
#pragma once

#include <cstddef>
#include <cstring>
#include <vector>

#include "base/result.h"
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

// The parameters of a node of this op; by copy, as bytes of a graph need not be aligned.
template <class Params>
Params read_params(const GraphNode& node) {
  Params params;
  std::memcpy(static_cast<void*>(&params), node.params.data(), sizeof(params));
  return params;
}

// Calls the ops of any list, also one restored from a file, with the same parameters. An unknown id
// or a wrong size of parameters is an error, found before anything is called.
Status call_recorded(Ops& ops, const Graph& graph);

}  // namespace sluice
