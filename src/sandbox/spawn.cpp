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
#include <mutex>
#include <type_traits>
#include <utility>

namespace sluice {
namespace {

constexpr int kNotStarted = 127;  // the child's exit code before exec

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

// The C library's functions may wait for locks that other threads of the parent held, and
// sanitizers intercept them.
long call(long number, auto... arguments) {
  const auto whole = [](auto value) {  // a system call reads whole registers
    if constexpr (std::is_integral_v<decltype(value)>) {
      return static_cast<long>(value);
    } else {
      return value;
    }
  };
  return syscall(number, whole(arguments)...);
}

void require(bool done) {
  if (!done) call(SYS_exit_group, kNotStarted);
}

// Only system calls and memory that the parent has prepared: the child has no other thread, but
// its copy of the parent's locks.
[[noreturn]] void run_child(ChildPlan& plan, int first_free) {
  char go = 0;
  require(call(SYS_read, plan.go, &go, 1) == 1);
  // In a namespace of its own the process is user 0 there, a stranger outside.
  const unsigned id = plan.user_namespace ? 0 : plan.options.user_id;
  if (plan.root) require(call(SYS_setgroups, 0, nullptr) == 0);
  if (plan.root || plan.user_namespace) {
    require(call(SYS_setresgid, id, id, id) == 0 && call(SYS_setresuid, id, id, id) == 0);
  }
  // After the change of ids, which clears it.
  require(call(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) == 0);
  if (go == 'r') {  // rlimits instead of control groups; a lower limit of the parent stays
    const rlimit memory{plan.options.memory_bytes, plan.options.memory_bytes};
    call(SYS_prlimit64, 0, RLIMIT_DATA, &memory, nullptr);
    const rlimit tasks{plan.options.max_tasks, plan.options.max_tasks};
    call(SYS_prlimit64, 0, RLIMIT_NPROC, &tasks, nullptr);
  }
  // Two steps, because a target may be the source of a later descriptor.
  int next = first_free;
  for (int& fd : plan.descriptors) {
    require(call(SYS_dup3, fd, next, 0) == next);
    fd = next++;
  }
  require(call(SYS_dup3, plan.program, next, O_CLOEXEC) == next);
  int target = 0;
  for (const int fd : plan.descriptors) {
    require(call(SYS_dup3, fd, target, 0) == target);
    ++target;
  }
  require(call(SYS_close_range, target, next - 1, 0) == 0);
  require(call(SYS_close_range, next + 1, ~0U, 0) == 0);
  char* environment[] = {nullptr};
  call(SYS_execveat, next, "", plan.arguments.data(), environment, AT_EMPTY_PATH);
  for (;;) require(false);
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
  // No handler of the parent's signals may run in the child, which has its descriptors.
  arguments.flags = namespaces | CLONE_CLEAR_SIGHAND;
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
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  // Closes nothing: no descriptor has this number.
  if (syscall(SYS_close_range, ~0U, ~0U, 0) != 0) {
    return unsupported(
        fmt::format("close_range: {}; function processes need Linux 5.9", std::strerror(errno)));
  }
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
    call(SYS_close, writer.get());  // so that the parent's death ends the read below
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
