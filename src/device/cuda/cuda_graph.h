// CudaGraph: the list of our ops and their parameters that were captured, and the driver's graph of
// them, ready to launch. Where the driver could not make one, there is only the list.
// Owner: the engine's graph cache; the device must outlive it. Threads: the engine's thread.
#pragma once

#include <memory>
#include <utility>

#include "device/cuda/gpu.h"
#include "device/graph.h"
#include "device/recorded_ops.h"

namespace sluice::cuda {

class CudaGraph final : public Graph {
 public:
  CudaGraph(Gpu& gpu, std::unique_ptr<RecordedOps> ops) : gpu_(gpu), ops_(std::move(ops)) {}
  ~CudaGraph() override;
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  std::size_t num_nodes() const override { return ops_->num_nodes(); }
  GraphNode node(std::size_t index) const override { return ops_->node(index); }

  // Makes the driver's graph launchable and takes it over, also when this fails: then there is only
  // the list. REQUIRES: there is only the list.
  Status set_graph(CUgraph graph);

  const Gpu& gpu() const { return gpu_; }
  // Null where there is only the list.
  CUgraphExec executable() const { return executable_; }
  const RecordedOps& ops() const { return *ops_; }
  // True at the first call: a launch that failed is reported once a graph.
  bool first_failure() const { return !std::exchange(failed_, true); }

 private:
  void destroy();

  Gpu& gpu_;
  CUgraph graph_ = nullptr;  // kept: snapshots read its nodes
  CUgraphExec executable_ = nullptr;
  std::unique_ptr<RecordedOps> ops_;
  mutable bool failed_ = false;
};

}  // namespace sluice::cuda
