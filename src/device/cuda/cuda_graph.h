// CudaGraph: a list of ops and the driver's graph of them, ready to launch. If the driver could not
// make one, there is only the list.
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

  // Makes the driver's graph launchable and takes it over, also when this fails: then there is only
  // the list. REQUIRES: there is only the list.
  Status set_graph(CUgraph graph);

  const Gpu& gpu() const { return gpu_; }
  // Null where there is only the list.
  CUgraphExec executable() const { return executable_; }
  // True at the first call: a launch that failed is reported once a graph.
  bool first_failure() const { return !std::exchange(failed_, true); }

 private:
  void destroy();

  Gpu& gpu_;
  CUgraph graph_ = nullptr;  // kept: snapshots read its nodes
  CUgraphExec executable_ = nullptr;
  mutable bool failed_ = false;
};

}  // namespace sluice::cuda
