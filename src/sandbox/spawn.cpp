#include "sandbox/spawn.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace sluice {
namespace {

// Everything that the child needs between its start and exec; prepared by the parent.
struct ChildPlan {
  int go = -1;  // the parent writes a byte when ids and limits are set
  int program = -1;
  std::vector<char*> arguments;
  std::vector<int> descriptors;
  bool user_namespace = false;
  bool root = false;
  SandboxOptions options;
};

// System calls only: the parent may have other threads, which hold locks of the C library.
[[noreturn]] void run_child(ChildPlan& plan, int first_free) {
  char go = 0;
  if (read(plan.go, &go, 1) != 1) _exit(127);
  // In a namespace of its own the process is user 0 there, a stranger outside.
  const unsigned id = plan.user_namespace ? 0 : plan.options.user_id;
  if (plan.root) {
    if (syscall(SYS_setgroups, 0, nullptr) != 0) _exit(127);
  }
  if (plan.root || plan.user_namespace) {
    if (syscall(SYS_setresgid, id, id, id) != 0 || syscall(SYS_setresuid, id, id, id) != 0) {
      _exit(127);
    }
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  if (go == 'r') {  // rlimits instead of control groups
    const rlimit memory{plan.options.memory_bytes, plan.options.memory_bytes};
    setrlimit(RLIMIT_DATA, &memory);
    const rlimit tasks{plan.options.max_tasks, plan.options.max_tasks};
    setrlimit(RLIMIT_NPROC, &tasks);
  }
  // Two steps, because a target may be the source of a later descriptor.
  int next = first_free;
  for (int& fd : plan.descriptors) {
    if (dup2(fd, next) < 0) _exit(127);
    fd = next++;
  }
  if (dup3(plan.program, next, O_CLOEXEC) < 0) _exit(127);
  int target = 0;
  for (const int fd : plan.descriptors) dup2(fd, target++);
  syscall(SYS_close_range, target, next - 1, 0);
  syscall(SYS_close_range, next + 1, ~0U, 0);
  char* environment[] = {nullptr};
  syscall(SYS_execveat, next, "", plan.arguments.data(), environment, AT_EMPTY_PATH);
  _exit(127);
}

Status write_text(const std::string& path, const std::string& text) {
  const FileDescriptor file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (file.valid() &&
      write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size())) {
    return {};
  }
  return unavailable(fmt::format("cannot write {}: {}", path, std::strerror(errno)));
}

// Maps the child's user 0 to an id outside.
Status map_ids(pid_t child, bool root, const SandboxOptions& options) {
  const std::string folder = fmt::format("/proc/{}", child);
  const unsigned user = root ? options.user_id : geteuid();
  const unsigned group = root ? options.user_id : getegid();
  if (!root) RETURN_IF_ERROR(write_text(folder + "/setgroups", "deny"));
  RETURN_IF_ERROR(write_text(folder + "/gid_map", fmt::format("0 {} 1", group)));
  return write_text(folder + "/uid_map", fmt::format("0 {} 1", user));
}

pid_t start_child(std::uint64_t namespaces) {
  clone_args arguments{};
  arguments.flags = namespaces;
  arguments.exit_signal = SIGCHLD;
  return static_cast<pid_t>(syscall(SYS_clone3, &arguments, sizeof(arguments)));
}

void add_user_layers(const ChildPlan& plan, std::uint64_t flags, int refused,
                     SandboxReport& report) {
  const std::string reason =
      refused == 0 ? "left out by the options"
                   : fmt::format("the kernel refuses new namespaces: {}", std::strerror(refused));
  if (plan.user_namespace) {
    report.add(Layer::kUser, true, "own user namespace");
  } else {
    report.add(Layer::kUser, plan.root, plan.root ? "own user id" : reason);
  }
  const bool own = (flags & CLONE_NEWPID) != 0;
  report.add(Layer::kProcesses, own, own ? "own" : reason);
}

}  // namespace

SandboxedProcess::SandboxedProcess(pid_t pid, std::unique_ptr<ControlGroup> group,
                                   SandboxReport report)
    : pid_(pid), group_(std::move(group)), report_(std::move(report)) {}

SandboxedProcess::SandboxedProcess(SandboxedProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      group_(std::move(other.group_)),
      report_(std::move(other.report_)) {}

SandboxedProcess::~SandboxedProcess() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  wait();
}

int SandboxedProcess::wait() {
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return status;
}

Result<SandboxedProcess> spawn_sandboxed(const std::vector<std::string>& command,
                                         const std::vector<int>& descriptors,
                                         const SandboxOptions& options) {
  const FileDescriptor program(open(command.front().c_str(), O_PATH | O_CLOEXEC));
  if (!program.valid()) {
    return not_found(fmt::format("{}: {}", command.front(), std::strerror(errno)));
  }
  int pipe_ends[2];
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) {
    return unavailable(fmt::format("cannot create a pipe: {}", std::strerror(errno)));
  }
  const FileDescriptor reader(pipe_ends[0]);
  FileDescriptor writer(pipe_ends[1]);
  ChildPlan plan;
  plan.go = reader.get();
  plan.program = program.get();
  for (const std::string& argument : command)
    plan.arguments.push_back(const_cast<char*>(argument.c_str()));
  plan.arguments.push_back(nullptr);
  plan.descriptors = descriptors;
  plan.root = geteuid() == 0;
  plan.options = options;
  // Above every descriptor that the child copies from and every number that it copies to.
  int first_free =
      std::max({reader.get(), writer.get(), program.get(), static_cast<int>(descriptors.size())});
  for (const int fd : descriptors) first_free = std::max(first_free, fd);
  ++first_free;

  std::uint64_t flags = 0;
  if (!leaves_out(options, Layer::kUser)) flags |= CLONE_NEWUSER;
  if (!leaves_out(options, Layer::kProcesses)) flags |= CLONE_NEWPID;
  plan.user_namespace = (flags & CLONE_NEWUSER) != 0;
  int refused = 0;
  pid_t child = start_child(flags);
  if (child < 0 && flags != 0) {  // without a user namespace; root may still have the other one
    refused = errno;
    plan.user_namespace = false;
    flags &= plan.root ? ~std::uint64_t{CLONE_NEWUSER} : 0;
    child = start_child(flags);
  }
  if (child < 0)
    return unavailable(fmt::format("cannot start a process: {}", std::strerror(errno)));
  if (child == 0) {
    close(writer.get());  // so that the parent's death ends the read below
    run_child(plan, first_free);
  }

  SandboxReport report;
  add_user_layers(plan, flags, refused, report);
  auto group = std::make_unique<ControlGroup>(child, options, report);
  SandboxedProcess process(child, std::move(group), report);
  if (plan.user_namespace) RETURN_IF_ERROR(map_ids(child, plan.root, options));
  const bool limited = report.active(Layer::kMemoryLimit) && report.active(Layer::kTaskLimit);
  const char go = limited ? 'g' : 'r';
  if (write(writer.get(), &go, 1) != 1) {
    return unavailable(fmt::format("the new process has ended: {}", std::strerror(errno)));
  }
  return process;
}

}  // namespace sluice
