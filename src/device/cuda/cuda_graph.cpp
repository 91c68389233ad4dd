#include "device/cuda/cuda_graph.h"

namespace sluice::cuda {

Result<std::unique_ptr<CudaGraph>> CudaGraph::create(Gpu& gpu, CUgraph graph,
                                                     std::unique_ptr<RecordedOps> ops) {
  std::unique_ptr<CudaGraph> made(new CudaGraph(gpu, graph, std::move(ops)));
  const DriverApi& api = gpu.api();
  RETURN_IF_ERROR(gpu.check(api.cuGraphInstantiate(&made->executable_, graph, 0),
                            "making a captured graph executable"));
  RETURN_IF_ERROR(
      gpu.check(api.cuGraphUpload(made->executable_, gpu.stream()), "uploading a captured graph"));
  return made;
}

CudaGraph::~CudaGraph() {
  static_cast<void>(gpu_.synchronize());  // a launch of it may still run
  if (executable_ != nullptr) static_cast<void>(gpu_.api().cuGraphExecDestroy(executable_));
  static_cast<void>(gpu_.api().cuGraphDestroy(graph_));
}

}  // namespace sluice::cuda
