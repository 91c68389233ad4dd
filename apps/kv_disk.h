// The disk tier of a command that runs an engine: --kv-disk. The names of blocks and the checksums
// of pages are made under a secret of this user, and of all that decides the bytes of a block: the
// model's whole content, dtypes, layout, the program and the CPU's instruction set.
// Functions; the caller's thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "device/device.h"
#include "engine/engine_loader.h"
#include "engine/engine_options.h"
#include "offload/keeping_tier.h"
#include "server/resume_store.h"
#include "snapshot/snapshot.h"

namespace sluice {

// "DIR:SIZE", such as "kv:50GiB", and limits: "kv:50GiB,free=10GiB,age=7d,daily=100GiB,
// stream=20GiB".
// kInvalidArgument names the option.
Result<KvDiskSettings> parse_kv_disk(std::string_view text);

// Opens the tier that `options` name and gives it to the executor, whose identity then names blocks
// under the secret. `before`: a faster tier before the disk, or null. `known`: digests that the
// start has. REQUIRES: options.kv_disk.
Status add_kv_disk(const std::string& directory, const EngineOptions& options,
                   const SnapshotModel& known, const Device& device, const Clock& clock,
                   std::unique_ptr<KeepingTier> before, LoadedExecutor& executor);

// Where answers that a stopping server could not finish lie: beside the blocks. REQUIRES: this
// process has the folder. Shared: the service and its workers' jobs use it.
Result<std::shared_ptr<const ResumeStore>> open_resume_store(const KvDiskSettings& settings);

}  // namespace sluice
