// Attacks from inside the sandbox, each by a process of its own, as root and as an ordinary user,
// with all layers and again without the system-call filter, so that the layers below it are shown
// to hold alone.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <mqueue.h>
#include <signal.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/shared_memory.h"
#include "sandbox/spawn.h"
#include "tests/support/sanitized.h"

namespace sluice {
namespace {

constexpr int kAttackFailed = 10;  // the exit codes of attack.cpp
constexpr int kAttackSucceeded = 20;
constexpr std::size_t kBytes = 4096;

struct Outcome {
  int status = -1;  // of waitpid
  std::string child_missing;
  SandboxReport parent;
  bool has_target = true;  // this machine has what the attack looks for
};

SandboxOptions limits(std::vector<Layer> without) {
  SandboxOptions options;
  // Sanitizers reserve terabytes of addresses, which RLIMIT_DATA counts.
  options.memory_bytes = kSanitized ? std::uint64_t{1} << 46 : std::uint64_t{64} << 20;
  options.max_tasks = 16;
  options.without = std::move(without);
  return options;
}

// Read-only, sealed memory that begins with 'w', as a backbone would be.
FileDescriptor sealed_memory() {
  FileDescriptor memory = *create_shared_memory("backbone", kBytes);
  EXPECT_EQ(write(memory.get(), "weights", 7), 7);
  EXPECT_EQ(fcntl(memory.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SEAL), 0);
  EXPECT_EQ(fchmod(memory.get(), 0400), 0);
  return *read_only_descriptor(memory.get());
}

FileDescriptor open_queue(const std::string& name) {
  mq_attr one{};  // message of one byte: users have a limit for all their queues
  one.mq_maxmsg = 1;
  one.mq_msgsize = 1;
  return FileDescriptor(mq_open(name.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666, &one));
}

// Ways to meet another process that anybody on this machine may use. Each attack looks for one of
// them from inside of the sandbox.
class Meeting {
 public:
  Meeting()
      : name_(fmt::format("sluice-attack-{}", getpid())),
        segment_(shmget(getpid(), kBytes, IPC_CREAT | 0666)),
        file_(shm_open(name_.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666)),
        queue_(open_queue("/" + name_)),
        socket_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    name_.copy(address.sun_path + 1, name_.size());
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name_.size());
    listens_ = bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), size) == 0 &&
               listen(socket_.get(), 1) == 0;
  }
  ~Meeting() {
    shmctl(segment_, IPC_RMID, nullptr);
    shm_unlink(name_.c_str());
    mq_unlink(("/" + name_).c_str());
  }
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  // Whether the attack has a place to look for.
  bool open_for(const std::string& attack) const {
    if (attack == "shmget") return segment_ >= 0;
    if (attack == "shm_open") return file_.valid();
    if (attack == "mq_open") return queue_.valid();
    return attack != "abstract_socket" || listens_;
  }

 private:
  std::string name_;
  int segment_;
  FileDescriptor file_;
  FileDescriptor queue_;
  FileDescriptor socket_;
  bool listens_ = false;
};

// A sandboxed process that only waits.
Result<SandboxedProcess> start_sibling() {
  int ends[2];
  EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const FileDescriptor reader(ends[0]);
  FileDescriptor writer(ends[1]);
  auto sibling = spawn_sandboxed({SLUICE_SANDBOX_ATTACK, "sibling", "0"},
                                 {writer.get(), writer.get(), writer.get()}, limits({}));
  writer.close();
  // The missing layers, if any, then the letter.
  for (char last = 0; sibling && last != 'r';) {
    char text[4096];
    const ssize_t size = read(reader.get(), text, sizeof(text));
    if (size <= 0) return unavailable("the sibling has ended");
    last = text[size - 1];
  }
  return sibling;
}

Result<Outcome> attack(std::string name, std::vector<Layer> without) {
  Outcome outcome;
  const Meeting meeting;
  outcome.has_target = meeting.open_for(name);
  std::optional<SandboxedProcess> sibling;
  constexpr std::string_view kSibling = "sibling_";
  if (name.starts_with(kSibling)) {
    ASSIGN_OR_RETURN(SandboxedProcess started, start_sibling());
    sibling.emplace(std::move(started));
    name.erase(0, kSibling.size());
  }
  const pid_t target = sibling ? sibling->pid() : getpid();
  const FileDescriptor memory = sealed_memory();
  int ends[2];
  EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const FileDescriptor reader(ends[0]);
  FileDescriptor writer(ends[1]);
  std::vector<std::string> command = {SLUICE_SANDBOX_ATTACK, name, fmt::format("{}", target)};
  for (const Layer layer : without) command.push_back(fmt::format("{}", static_cast<int>(layer)));
  ASSIGN_OR_RETURN(SandboxedProcess process,
                   spawn_sandboxed(command, {writer.get(), writer.get(), memory.get()},
                                   limits(std::move(without))));
  writer.close();
  outcome.parent = process.report();
  outcome.status = process.wait();
  char text[4096];
  const ssize_t size = read(reader.get(), text, sizeof(text));
  if (size > 0) outcome.child_missing.assign(text, static_cast<std::size_t>(size));
  return outcome;
}

// The attack returned an error, or the kernel killed the process for it. The ordinary work of
// "none" must end by itself: no layer may kill it.
bool attack_failed(const std::string& name, int status) {
  if (WIFEXITED(status)) return WEXITSTATUS(status) == kAttackFailed;
  if (name == "none") return false;
  return WIFSIGNALED(status) && (WTERMSIG(status) == SIGSYS || WTERMSIG(status) == SIGKILL);
}

class Sandbox : public testing::TestWithParam<std::string> {};

void expect_failure(const std::string& name, const std::vector<Layer>& without) {
  const Result<Outcome> outcome = attack(name, without);
  ASSERT_TRUE(outcome) << outcome.error().message;
  if (!outcome->parent.active(Layer::kProcesses)) {
    GTEST_SKIP() << "no new namespaces here: " << outcome->parent.missing();
  }
  if (!outcome->has_target) GTEST_SKIP() << "this machine refuses " << name << " outside too";
  if (name == "memory" && (kSanitized || !outcome->parent.active(Layer::kMemoryLimit))) {
    GTEST_SKIP() << "no memory limit here: " << outcome->parent.missing();
  }
  EXPECT_TRUE(attack_failed(name, outcome->status))
      << fmt::format("status {:#x}; missing: {}", outcome->status, outcome->child_missing);
}

TEST_P(Sandbox, StopsTheAttack) { expect_failure(GetParam(), {}); }

TEST_P(Sandbox, StopsTheAttackWithoutTheSystemCallFilter) {
  if (GetParam() == "code" || GetParam() == "mount") {
    GTEST_SKIP() << "only the system-call filter stops it";
  }
  expect_failure(GetParam(), {Layer::kSystemCalls});
}

// A process changes its user for good, so a child of the test does it.
TEST_P(Sandbox, StopsTheAttackOfAnOrdinaryUser) {
  if (geteuid() != 0) GTEST_SKIP() << "the other cases ran as an ordinary user";
  const pid_t child = fork();
  if (child == 0) {
    if (setresgid(65534, 65534, 65534) != 0 || setresuid(65534, 65534, 65534) != 0) _exit(1);
    // Access to its own /proc, as a process has that began as this user.
    if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) != 0) _exit(1);
    if (access(SLUICE_SANDBOX_ATTACK, X_OK) != 0) _exit(77);
    const Result<Outcome> outcome = attack(GetParam(), {});
    if (!outcome) {
      fmt::print(stderr, "{}\n", outcome.error().message);
      _exit(2);
    }
    if (GetParam() == "memory" && kSanitized) _exit(77);
    if (!outcome->parent.active(Layer::kProcesses) || !outcome->has_target) _exit(77);
    if (!attack_failed(GetParam(), outcome->status)) {
      fmt::print(stderr, "status {:#x}; missing: {}\n", outcome->status, outcome->child_missing);
      _exit(3);
    }
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "an ordinary user cannot run this case here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

INSTANTIATE_TEST_SUITE_P(Attacks, Sandbox,
                         testing::Values("none", "open", "create", "exec", "connect", "ptrace",
                                         "process_vm_readv", "pidfd_getfd", "proc_mem", "kill",
                                         "sibling_ptrace", "sibling_process_vm_readv",
                                         "sibling_pidfd_getfd", "sibling_proc_mem", "sibling_kill",
                                         "shmget", "shm_open", "mq_open", "abstract_socket", "fork",
                                         "memory", "descriptors", "code", "mount", "map_writable",
                                         "mprotect", "write", "reopen", "punch", "remove",
                                         "truncate", "seal"),
                         [](const auto& attempt) { return attempt.param; });

TEST(SandboxSpawn, ReportsEveryLayerThatIsLeftOut) {
  const Result<Outcome> outcome = attack("none", {Layer::kSystemCalls, Layer::kCpuLimit});
  ASSERT_TRUE(outcome) << outcome.error().message;
  EXPECT_NE(outcome->child_missing.find("seccomp filter (left out by the options)"),
            std::string::npos)
      << outcome->child_missing;
  EXPECT_FALSE(outcome->parent.active(Layer::kCpuLimit));
  EXPECT_FALSE(outcome->parent.complete());
}

// Attacks that look for another process find it where their layers are left out, so a failure above
// is the work of a layer.
TEST(SandboxSpawn, AttacksOnOthersSucceedWithoutTheirLayers) {
  const std::pair<const char*, std::vector<Layer>> kAttacks[] = {
      {"shmget", {Layer::kIpc}},
      {"mq_open", {Layer::kIpc, Layer::kLandlock}},
      {"shm_open", {Layer::kMounts, Layer::kLandlock}},
      {"abstract_socket", {Layer::kNetwork, Layer::kLandlock}},
      {"sibling_kill", {Layer::kUser, Layer::kProcesses, Layer::kLandlock}}};
  for (const auto& [name, layers] : kAttacks) {
    std::vector<Layer> without = layers;
    without.push_back(Layer::kSystemCalls);
    const Result<Outcome> outcome = attack(name, without);
    ASSERT_TRUE(outcome) << outcome.error().message;
    if (!outcome->has_target) continue;
    EXPECT_TRUE(WIFEXITED(outcome->status)) << name;
    EXPECT_EQ(WEXITSTATUS(outcome->status), kAttackSucceeded) << name;
  }
}

int g_handled = -1;  // a pipe, which takes the id of each process that handles the signal

void write_process_id(int) {
  const pid_t process = getpid();
  static_cast<void>(!write(g_handled, &process, sizeof(process)));
}

// A parent with threads that hold the allocator's locks, descriptors without CLOEXEC, and signals
// to its group at any moment.
TEST(SandboxSpawn, GivesTheProgramOfABusyParentNothingElse) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_NONBLOCK), 0);
  const FileDescriptor reader(ends[0]);
  const FileDescriptor writer(ends[1]);
  g_handled = ends[1];
  struct sigaction action{};
  struct sigaction former{};
  action.sa_handler = write_process_id;
  action.sa_flags = SA_RESTART;
  ASSERT_EQ(sigaction(SIGUSR1, &action, &former), 0);
  // The signals are for this process and its children only.
  const bool own_group = setpgid(0, 0) == 0 || getpgrp() == getpid();
  std::vector<FileDescriptor> inherited;
  for (int i = 0; i < 20; ++i) inherited.emplace_back(open("/dev/null", O_RDONLY));
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      while (!done) {
        const std::string text(1 << 16, 'x');
        const FileDescriptor other(dup(1));
        if (i == 0 && own_group) kill(0, SIGUSR1);
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
    });
  }
  bool apart = true;
  std::set<pid_t> handlers;
  for (int i = 0; i < 10 && apart; ++i) {
    const Result<Outcome> outcome = attack("inherit", {});
    EXPECT_TRUE(outcome) << outcome.error().message;
    apart = outcome && outcome->parent.active(Layer::kProcesses);
    EXPECT_TRUE(!apart || attack_failed("inherit", outcome->status)) << outcome->status;
    for (pid_t process = 0; read(reader.get(), &process, sizeof(process)) > 0;) {
      handlers.insert(process);
    }
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  sigaction(SIGUSR1, &former, nullptr);
  if (!apart) GTEST_SKIP() << "no new namespaces here";
  if (!own_group) GTEST_SKIP() << "this process cannot have a group of its own";
  EXPECT_EQ(handlers, (std::set<pid_t>{getpid()}));
}

TEST(SandboxSpawn, NamesTheMissingProgram) {
  const Result<SandboxedProcess> process = spawn_sandboxed({"/nonexistent"}, {}, {});
  ASSERT_FALSE(process);
  EXPECT_EQ(process.error().code, ErrorCode::kNotFound);
  EXPECT_NE(process.error().message.find("/nonexistent"), std::string::npos);
}

}  // namespace
}  // namespace sluice
