#include "device/cuda/cuda_graph.h"

#include "base/check.h"

namespace sluice::cuda {

Status CudaGraph::set_graph(CUgraph graph) {
  CHECK(graph_ == nullptr);
  graph_ = graph;
  const DriverApi& api = gpu_.api();
  Status made = gpu_.check(api.cuGraphInstantiate(&executable_, graph, 0),
                           "making a captured graph executable");
  if (made) {
    made = gpu_.check(api.cuGraphUpload(executable_, gpu_.stream()), "uploading a captured graph");
  }
  if (!made) destroy();
  return made;
}

void CudaGraph::destroy() {
  if (executable_ != nullptr) static_cast<void>(gpu_.api().cuGraphExecDestroy(executable_));
  if (graph_ != nullptr) static_cast<void>(gpu_.api().cuGraphDestroy(graph_));
  executable_ = nullptr;
  graph_ = nullptr;
}

CudaGraph::~CudaGraph() {
  gpu_.drain();  // a launch of this graph may still run
  destroy();
}

}  // namespace sluice::cuda
