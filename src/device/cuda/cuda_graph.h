// CudaGraph: ops captured on a GPU, as the driver's graph, ready to launch, and as the list of our
// own ops and their parameters.
// Owner: the engine's graph cache; the device must outlive it. Threads: the engine's thread.
#pragma once

#include <memory>

#include "device/cuda/gpu.h"
#include "device/graph.h"
#include "device/recorded_ops.h"

namespace sluice::cuda {

class CudaGraph final : public Graph {
 public:
  // Takes `graph` over, also when it fails.
  static Result<std::unique_ptr<CudaGraph>> create(Gpu& gpu, CUgraph graph,
                                                   std::unique_ptr<RecordedOps> ops);
  ~CudaGraph() override;
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  std::size_t num_nodes() const override { return ops_->num_nodes(); }
  GraphNode node(std::size_t index) const override { return ops_->node(index); }

  const Gpu& gpu() const { return gpu_; }
  CUgraphExec executable() const { return executable_; }

 private:
  CudaGraph(Gpu& gpu, CUgraph graph, std::unique_ptr<RecordedOps> ops)
      : gpu_(gpu), graph_(graph), ops_(std::move(ops)) {}

  Gpu& gpu_;
  CUgraph graph_;  // kept: snapshots read its nodes
  CUgraphExec executable_ = nullptr;
  std::unique_ptr<RecordedOps> ops_;
};

}  // namespace sluice::cuda
