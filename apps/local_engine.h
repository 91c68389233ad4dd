// LocalEngine: an engine in this process and what it stands on, its threads and its device, as
// engine options ask for.
// Owner: a command. Threads: the engine's.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "base/urgent_work.h"
#include "device/device.h"
#include "engine/engine_loader.h"
#include "engine/engine_options.h"
#include "engine/startup_timeline.h"
#include "snapshot/snapshot.h"

namespace sluice {

// In this order: the engine goes first.
struct LocalEngine {
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<Device> device;
  LoadedEngine loaded;
};

// With the token budget chosen (apps/tbt_goal.h). `urgent`: the work that the threads yield to;
// null = none. `snapshot`: what need not be made. REQUIRES: all three and the clock outlive the
// engine. Errors name file, field or option.
Result<LocalEngine> load_local_engine(const std::string& directory, const EngineOptions& options,
                                      const Clock& clock, StartupTimeline& timeline,
                                      Snapshot& snapshot, const UrgentWork* urgent = nullptr);

}  // namespace sluice
