// The CPU device's factory. Only apps and tests include this folder; everything else sees Device.
// Owner of the device: the caller. Threads: as device.h.
#pragma once

#include <memory>
#include <optional>

#include "base/result.h"
#include "base/thread_pool.h"
#include "device/cpu/cpu_isa.h"
#include "device/device.h"

namespace sluice {

struct CpuDeviceOptions {
  // The pool whose threads run the ops. Borrowed; must outlive the device. None: the device makes
  // its own with `threads` threads, 0 meaning one for each CPU this process may use.
  ThreadPool* pool = nullptr;
  int threads = 0;
  // None: the best this machine has.
  std::optional<CpuIsa> isa = {};
};

// kInvalidArgument for a negative number of threads, kUnsupported for an instruction set that
// this machine lacks.
Result<std::unique_ptr<Device>> make_cpu_device(const CpuDeviceOptions& options);

}  // namespace sluice
