// A control group of one sandboxed process: limits of resident memory, tasks and CPU time.
// Uses each controller where it is mounted (version 1) or the unified tree (version 2), below the
// group of this process. The destructor removes the group; all its processes must have ended.
// Threads: one owner. A limit that cannot be set is no error; the report names it with the reason.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "sandbox/options.h"
#include "sandbox/report.h"

namespace sluice {

class ControlGroup {
 public:
  // Creates the group and adds the layers kMemoryLimit, kTaskLimit and kCpuLimit of `process`,
  // which becomes its member, to `report`.
  ControlGroup(pid_t process, const SandboxOptions& options, SandboxReport& report);
  ControlGroup(ControlGroup&&) noexcept = default;
  ControlGroup& operator=(ControlGroup&&) = delete;
  ~ControlGroup();

 private:
  std::vector<std::string> folders_;
};

}  // namespace sluice
