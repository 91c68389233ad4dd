// CudaGraph: a list of ops and the driver's graph of them, ready to launch. If the driver could not
// make a graph, it holds only the list.
// Owner: the engine's graph cache; the device must outlive it. Threads: the engine's thread.
#pragma once

#include <utility>

#include "device/cuda/gpu.h"
#include "device/graph.h"

namespace sluice::cuda {

class CudaGraph final : public Graph {
 public:
  CudaGraph(Gpu& gpu, OpList ops) : Graph(std::move(ops)), gpu_(gpu) {}
  ~CudaGraph() override;

  // Takes ownership of the driver's graph and instantiates it. On an error only the list remains.
  // REQUIRES: there is no graph yet.
  Status set_graph(CUgraph graph);

  const Gpu& gpu() const { return gpu_; }
  // Null if there is only the list.
  CUgraphExec executable() const { return executable_; }
  // True at the first call, so that a failed launch is logged once per graph.
  bool first_failure() const { return !std::exchange(failed_, true); }

 private:
  void destroy();

  Gpu& gpu_;
  CUgraph graph_ = nullptr;  // kept, because snapshots read its nodes
  CUgraphExec executable_ = nullptr;
  mutable bool failed_ = false;
};

}  // namespace sluice::cuda
