// Captures a list of ops as a driver graph.
//
// A failure that leaves the context intact must not end the device, so there are three attempts:
//   1. with cuBLASLt, where the device has it;
//   2. with the built-in kernels alone;
//   3. no graph: the ops of the list are submitted one by one at each replay.
// A warning says which attempt failed and why. Owner: functions of the CUDA device. Threads: the
// engine's thread.
#pragma once

#include <memory>

#include "base/result.h"
#include "device/cuda/cuda_graph.h"
#include "device/cuda/cuda_ops.h"
#include "device/cuda/gpu.h"

namespace sluice::cuda {

// Runs no op of the list, except cuBLASLt products of new shapes (CudaOps::prepare). Fails after a
// fault of the GPU and for an op that the backend refuses. REQUIRES: the GPU is ready, its context
// current.
Result<std::unique_ptr<CudaGraph>> capture_graph(Gpu& gpu, CudaOps& ops, OpList list);

// Runs the graph. Runs its ops one by one if there is no launchable graph, or if the launch fails
// and leaves the context intact.
Status run_graph(Gpu& gpu, CudaOps& ops, const CudaGraph& graph);

}  // namespace sluice::cuda
