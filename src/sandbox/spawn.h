// The parent's half of a sandbox: starts a program in namespaces and control groups of its own.
// The child has the given descriptors only, as 0, 1, 2, ... It has no environment. It must call
// enter_sandbox. It dies with the parent's thread that started it.
// Threads: any; starts run one at a time. The child makes only system calls between its start and
// exec, so other threads of the parent are allowed; no signal handler of the parent runs in it.
// Allocates before the child starts. If a step of the child fails, it ends with the exit code 127.
// Needs Linux 5.9 (close_range); kUnsupported without.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "sandbox/control_group.h"
#include "sandbox/options.h"
#include "sandbox/report.h"

namespace sluice {

// Owns a child: the destructor kills it, waits for it and removes its control group.
class SandboxedProcess {
 public:
  SandboxedProcess(pid_t pid, std::unique_ptr<ControlGroup> group, SandboxReport report);
  SandboxedProcess(SandboxedProcess&& other) noexcept;
  SandboxedProcess& operator=(SandboxedProcess&&) = delete;
  ~SandboxedProcess();

  pid_t pid() const { return pid_; }
  // The parent's layers; the child reports the others.
  const SandboxReport& report() const { return report_; }
  // Waits for the end of the process. Returns the status of waitpid. Call it at most once.
  int wait();

 private:
  pid_t pid_ = -1;
  std::unique_ptr<ControlGroup> group_;
  SandboxReport report_;
};

// Starts `command` (a path and its arguments). `descriptors` become 0, 1, 2, ... of the child; the
// caller keeps its own. kUnavailable if no process can be started, kNotFound without the program.
Result<SandboxedProcess> spawn_sandboxed(const std::vector<std::string>& command,
                                         const std::vector<int>& descriptors,
                                         const SandboxOptions& options);

}  // namespace sluice
