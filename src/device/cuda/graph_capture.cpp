#include "device/cuda/graph_capture.h"

#include <fmt/format.h>

#include <utility>

#include "base/log.h"

namespace sluice::cuda {
namespace {

enum class Products { kWithLibrary, kBuiltIn };

// Captures the list and makes the graph launchable. Always ends the capture. If an op could not be
// captured, the Gpu keeps its error, which is more specific than the error of the broken capture.
Status attempt(Gpu& gpu, CudaOps& ops, CudaGraph& made, Products products) {
  const DriverApi& api = gpu.api();
  // cuBLASLt may load more code, which the stricter modes forbid.
  const CUstreamCaptureMode mode = products == Products::kWithLibrary
                                       ? CU_STREAM_CAPTURE_MODE_RELAXED
                                       : CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
  ops.products().clear();
  RETURN_IF_ERROR(gpu.check(api.cuStreamBeginCapture(gpu.stream(), mode), "beginning a capture"));
  ops.allow_library(products == Products::kWithLibrary);
  made.ops().run(ops);
  ops.allow_library(true);
  CUgraph graph = nullptr;
  Status ended = gpu.check(api.cuStreamEndCapture(gpu.stream(), &graph), "ending a capture");
  if (ended && gpu.ready()) return made.set_graph(graph);
  if (graph != nullptr) static_cast<void>(api.cuGraphDestroy(graph));
  return ended;
}

}  // namespace

Result<std::unique_ptr<CudaGraph>> capture_graph(Gpu& gpu, CudaOps& ops, OpList list) {
  ops.prepare(list);
  auto made = std::make_unique<CudaGraph>(gpu, std::move(list));
  for (const Products products : {Products::kWithLibrary, Products::kBuiltIn}) {
    if (products == Products::kWithLibrary && !ops.has_library()) continue;
    Status done = attempt(gpu, ops, *made, products);
    if (done && gpu.ready()) return made;
    const bool refused = gpu.refused();
    if (Status kept = gpu.take_error(); !kept) done = std::move(kept);
    if (refused || !gpu.health()) return std::move(done).error();
    log_warning(fmt::format(
        "{}; {}", done.error().message,
        products == Products::kWithLibrary
            ? "capturing the graph again with the built-in kernels (slower)"
            : "there is no graph of these ops: they are submitted one by one (slower)"));
  }
  return made;
}

Status run_graph(Gpu& gpu, CudaOps& ops, const CudaGraph& graph) {
  if (graph.executable() != nullptr) {
    const CUresult launched = gpu.api().cuGraphLaunch(graph.executable(), gpu.stream());
    if (launched == CUDA_SUCCESS || is_sticky(launched)) {
      gpu.submitted(launched, "a graph");
      return gpu.take_error();
    }
    if (graph.first_failure()) {
      log_warning(
          fmt::format("{}: launching a graph: {}; its ops are submitted one by one (slower) until "
                      "a launch works",
                      gpu.name(), error_text(gpu.api(), launched)));
    }
  }
  graph.ops().run(ops);
  return gpu.take_error();
}

}  // namespace sluice::cuda
