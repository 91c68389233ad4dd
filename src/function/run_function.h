// The main function of a function process: enters the sandbox, then runs an engine on the backbone
// for the server at the other end of the socket, until the server closes it.
//
// ProcessEngineLoop starts the process with the descriptors below and no other. A file for the
// standard error is among them, because libraries write there. The adapter, if the function gets
// one, comes over the socket later. The process tells its layers before
// it gets any data of a client; the server decides whether they are enough. Each step of the engine
// waits for a turn (TurnGate); the start of the engine does not. With weights of less than 64 MiB
// the process takes no large pages, so that an idle function of a small model is small.
// Threads: REQUIRES that the process has one thread.
#pragma once

#include <functional>
#include <memory>

#include "base/result.h"
#include "base/thread_pool.h"
#include "device/device.h"

namespace sluice {

struct FunctionDescriptors {
  static constexpr int kSocket = 0;
  static constexpr int kBackbone = 1;
  static constexpr int kErrors = 2;
  static constexpr int kManifest = 3;
  static constexpr int kTurnGrant = 4;  // these three: turn_page.h
  static constexpr int kTurnRequest = 5;
  static constexpr int kTurnBell = 6;
  static constexpr int kUrgentCount = 7;  // of the server's urgent work
  static constexpr int kCount = 8;
};

using MakeFunctionDevice = std::function<Result<std::unique_ptr<Device>>(ThreadPool& pool)>;

// Returns the exit code: 0 when the server has closed the socket.
int run_function(const MakeFunctionDevice& make_device);

}  // namespace sluice
