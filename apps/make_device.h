// Makes the thread pool and the device that engine options request. Only this file names concrete
// devices. Owner: a command. One thread.
#pragma once

#include <memory>

#include "base/result.h"
#include "base/thread_pool.h"
#include "device/device.h"
#include "engine/engine_options.h"

namespace sluice {

// The pool that owns the cores, with the requested number of threads or one per CPU. They yield to
// `urgent` work; null = none. REQUIRES: it outlives the pool.
std::unique_ptr<ThreadPool> make_pool(const EngineOptions& options,
                                      const UrgentWork* urgent = nullptr);

// REQUIRES: the pool outlives the device.
Result<std::unique_ptr<Device>> make_device(const EngineOptions& options, ThreadPool& pool);

}  // namespace sluice
