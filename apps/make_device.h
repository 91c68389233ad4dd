// Makes the thread pool and the device that engine options request. Only this file names concrete
// devices. Owner: a command. One thread.
#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "base/thread_plan.h"
#include "base/thread_pool.h"
#include "device/device.h"
#include "engine/engine_options.h"

namespace sluice {

// The threads that compute on this machine now. `wanted`: EngineOptions::threads.
ThreadPlan planned_threads(std::int32_t wanted);

// The pool that owns the cores, as planned; a plan that is not one thread for each CPU is logged.
// Memory that the calling thread and those it starts touch later is spread over the plan's nodes.
// Threads yield to `urgent` work; null = none. REQUIRES: it outlives the pool.
std::unique_ptr<ThreadPool> make_pool(const EngineOptions& options,
                                      const UrgentWork* urgent = nullptr);

// REQUIRES: the pool outlives the device.
Result<std::unique_ptr<Device>> make_device(const EngineOptions& options, ThreadPool& pool);

}  // namespace sluice
