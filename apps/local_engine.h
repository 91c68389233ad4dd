// LocalEngine: an engine in this process, with the threads and the device that the engine options
// ask for.
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

// Destroyed in reverse order: the engine first.
struct LocalEngine {
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<Device> device;
  LoadedEngine loaded;
};

// Chooses the token budget too (apps/tbt_goal.h). `urgent`: the work that the threads yield to;
// null = none. `snapshot`: the parts of a start that need not be made. REQUIRES: all three and the
// clock outlive the engine. Errors name file, field or option.
Result<LocalEngine> load_local_engine(const std::string& directory, const EngineOptions& options,
                                      const Clock& clock, StartupTimeline& timeline,
                                      Snapshot& snapshot, const UrgentWork* urgent = nullptr);

}  // namespace sluice
