// A hostile function process, for sandbox_test: enters the sandbox, then tries one attack.
// Arguments: the attack, the pid of the process that it is against, the layers to leave out
// (numbers of Layer). The attack "sibling" is none: it waits to be attacked.
// Descriptors: 1 takes the report of missing layers, 2 is a read-only sealed memfd.
// Exit codes: kFailed if the attack failed, kSucceeded if it did not, kBroken if the sandbox was
// never entered.
#include <arpa/inet.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "sandbox/enter.h"

namespace sluice {
namespace {

constexpr int kFailed = 10;
constexpr int kSucceeded = 20;
constexpr int kBroken = 30;
constexpr int kShared = 2;
constexpr std::size_t kPage = 4096;

bool opens(const char* path, int flags) { return open(path, flags) >= 0; }

bool reads_memory(pid_t process) {
  char byte = 0;
  iovec local{&byte, 1};
  iovec remote{reinterpret_cast<void*>(std::uintptr_t{0x400000}), 1};
  const long result = syscall(SYS_process_vm_readv, process, &local, 1UL, &remote, 1UL, 0UL);
  return result >= 0 || errno == EFAULT;  // EFAULT: allowed, but nothing is at the address
}

bool connects() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (fd < 0) return false;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(1);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  // A refusal by the host means that its network was reached.
  return connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 ||
         errno == ECONNREFUSED;
}

// More tasks than the limit of the test (16).
bool forks_without_end() {
  for (int i = 0; i < 64; ++i) {
    const pid_t child = fork();
    if (child < 0) return false;
    if (child == 0) {
      for (;;) pause();
    }
  }
  return true;
}

// More than the limit of the test (64 MiB).
bool takes_memory_without_end() {
  constexpr std::size_t kBytes = std::size_t{256} << 20;
  void* data = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return false;
  for (std::size_t i = 0; i < kBytes; i += kPage) static_cast<volatile char*>(data)[i] = 1;
  return true;
}

bool takes_descriptors_without_end() {
  for (int i = 0; i < 1000; ++i) {
    if (syscall(SYS_eventfd2, 0, 0) < 0) return false;
  }
  return true;
}

bool makes_code() {
  void* data = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return data == MAP_FAILED || mprotect(data, kPage, PROT_READ | PROT_EXEC) == 0;
}

void* map_shared(int protection) {
  return mmap(nullptr, kPage, protection, MAP_SHARED, kShared, 0);
}

// Whether this program has more than its three descriptors, a signal handler or an environment.
bool inherits() {
  for (int fd = kShared + 1; fd < 1024; ++fd) {
    if (fcntl(fd, F_GETFD) >= 0) return true;
  }
  struct sigaction action{};
  if (sigaction(SIGUSR1, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) return true;
  return environ[0] != nullptr;
}

// The work of a compute process; it must succeed.
bool computes() {
  void* data = map_shared(PROT_READ);
  if (data == MAP_FAILED || *static_cast<const char*>(data) != 'w') return false;
  int sum = 0;
  std::thread other([&] { sum = static_cast<int>(std::string(100000, 'x').size()); });
  other.join();
  const std::vector<int> large(1 << 20, 1);
  return sum + large.back() == 100001;
}

// Names that the test has opened for everybody on the host; `process` is the test.
std::string meeting_name(pid_t process) { return "sluice-attack-" + std::to_string(process); }

bool connects_to_abstract_socket(pid_t process) {
  const std::string name = meeting_name(process);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());  // after a zero byte: no path
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  return fd >= 0 && connect(fd, reinterpret_cast<const sockaddr*>(&address), size) == 0;
}

// Tells the test that this process may be attacked, and waits for its end.
[[noreturn]] void wait_as_sibling() {
  static_cast<void>(!write(1, "r", 1));
  for (;;) {
    constexpr timespec kHour{3600, 0};
    nanosleep(&kHour, nullptr);
  }
}

std::map<std::string, std::function<bool()>> attacks(pid_t target) {
  return {
      {"sibling", [] { return false; }},
      {"none", [] { return !computes(); }},
      {"open", [] { return opens("/etc/passwd", O_RDONLY) || opens("/usr/bin/env", O_RDONLY); }},
      {"create", [] { return opens("/sluice-attack", O_CREAT | O_WRONLY); }},
      {"exec", [] { return execl("/bin/true", "true", nullptr) == 0; }},
      {"connect", [] { return connects(); }},
      {"ptrace", [=] { return ptrace(PTRACE_ATTACH, target, nullptr, nullptr) == 0; }},
      {"process_vm_readv", [=] { return reads_memory(target); }},
      {"pidfd_getfd",
       [=] {
         const long pidfd = syscall(SYS_pidfd_open, target, 0);
         return pidfd >= 0 && syscall(SYS_pidfd_getfd, pidfd, 0, 0) >= 0;
       }},
      {"proc_mem",
       [=] {
         const std::string folder = "/proc/" + std::to_string(target);
         return opens((folder + "/mem").c_str(), O_RDONLY) ||
                opens((folder + "/maps").c_str(), O_RDONLY);
       }},
      {"shmget", [=] { return shmget(target, 0, 0) >= 0; }},
      {"shm_open", [=] { return opens(("/dev/shm/" + meeting_name(target)).c_str(), O_RDONLY); }},
      {"mq_open",
       [=] { return syscall(SYS_mq_open, meeting_name(target).c_str(), O_RDONLY, 0, 0) >= 0; }},
      {"abstract_socket", [=] { return connects_to_abstract_socket(target); }},
      {"kill", [=] { return kill(target, 0) == 0; }},
      {"fork", [] { return forks_without_end(); }},
      {"memory", [] { return takes_memory_without_end(); }},
      {"descriptors", [] { return takes_descriptors_without_end(); }},
      {"code", [] { return makes_code(); }},
      {"mount", [] { return unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0; }},
      {"map_writable", [] { return map_shared(PROT_READ | PROT_WRITE) != MAP_FAILED; }},
      {"mprotect",
       [] {
         void* data = map_shared(PROT_READ);
         return data == MAP_FAILED || mprotect(data, kPage, PROT_READ | PROT_WRITE) == 0;
       }},
      {"write", [] { return write(kShared, "x", 1) == 1; }},
      {"reopen", [] { return opens("/proc/self/fd/2", O_RDWR); }},
      {"punch",
       [] {
         return fallocate(kShared, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kPage) == 0;
       }},
      {"remove",
       [] {
         void* data = map_shared(PROT_READ);
         return data == MAP_FAILED || madvise(data, kPage, MADV_REMOVE) == 0;
       }},
      {"truncate", [] { return ftruncate(kShared, 0) == 0; }},
      {"inherit", [] { return inherits(); }},
      {"seal", [] { return fcntl(kShared, F_ADD_SEALS, F_SEAL_WRITE) == 0; }},
  };
}

int number(const char* text) {
  int value = -1;
  std::from_chars(text, text + std::strlen(text), value);
  return value;
}

int run(int argc, char** argv) {
  if (argc < 3) return kBroken;
  const auto all = attacks(number(argv[2]));
  const auto attack = all.find(argv[1]);
  if (attack == all.end()) return kBroken;
  SandboxOptions options;
  for (int i = 3; i < argc; ++i) options.without.push_back(static_cast<Layer>(number(argv[i])));
  SandboxReport report;
  if (!enter_sandbox(options, report)) return kBroken;
  const std::string missing = report.missing();
  if (write(1, missing.data(), missing.size()) < 0) return kBroken;
  if (attack->first == "sibling") wait_as_sibling();
  return attack->second() ? kSucceeded : kFailed;
}

}  // namespace
}  // namespace sluice

// No destructors or exit handlers: leak checkers would need calls that the filter refuses.
int main(int argc, char** argv) { _exit(sluice::run(argc, argv)); }
