#include "sandbox/system_calls.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <type_traits>

namespace sluice {
namespace {

// Calls that only act on the process itself or on descriptors that it has.
constexpr int kAllowed[] = {
    SCMP_SYS(read),
    SCMP_SYS(readv),
    SCMP_SYS(pread64),
    SCMP_SYS(write),
    SCMP_SYS(writev),
    SCMP_SYS(recvmsg),
    SCMP_SYS(recvfrom),
    SCMP_SYS(sendmsg),
    SCMP_SYS(sendto),
    SCMP_SYS(shutdown),
    SCMP_SYS(poll),
    SCMP_SYS(ppoll),
    SCMP_SYS(close),
    SCMP_SYS(fstat),
    SCMP_SYS(lseek),
    SCMP_SYS(eventfd2),
    SCMP_SYS(munmap),
    SCMP_SYS(mremap),
    SCMP_SYS(madvise),
    SCMP_SYS(brk),
    SCMP_SYS(futex),
    SCMP_SYS(set_robust_list),
    SCMP_SYS(rseq),
    SCMP_SYS(membarrier),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
    SCMP_SYS(clock_gettime),
    SCMP_SYS(clock_getres),
    SCMP_SYS(clock_nanosleep),
    SCMP_SYS(nanosleep),
    SCMP_SYS(sched_yield),
    SCMP_SYS(sched_getaffinity),
    SCMP_SYS(sched_setaffinity),
    SCMP_SYS(getcpu),
    SCMP_SYS(getpid),
    SCMP_SYS(gettid),
    SCMP_SYS(getrandom),
    SCMP_SYS(getrusage),
    SCMP_SYS(sysinfo),
    SCMP_SYS(uname),
    SCMP_SYS(rt_sigaction),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(sigaltstack),
    SCMP_SYS(restart_syscall),
};

// Calls that no library of ours makes: to try one is an attack.
constexpr int kKilled[] = {
    SCMP_SYS(execve),
    SCMP_SYS(execveat),
    SCMP_SYS(ptrace),
    SCMP_SYS(process_vm_readv),
    SCMP_SYS(process_vm_writev),
    SCMP_SYS(process_madvise),
    SCMP_SYS(pidfd_open),
    SCMP_SYS(pidfd_getfd),
    SCMP_SYS(kcmp),
    SCMP_SYS(mount),
    SCMP_SYS(umount2),
    SCMP_SYS(pivot_root),
    SCMP_SYS(chroot),
    SCMP_SYS(unshare),
    SCMP_SYS(setns),
    SCMP_SYS(open_by_handle_at),
    SCMP_SYS(bpf),
    SCMP_SYS(perf_event_open),
    SCMP_SYS(userfaultfd),
    SCMP_SYS(io_uring_setup),
    SCMP_SYS(add_key),
    SCMP_SYS(request_key),
    SCMP_SYS(keyctl),
    SCMP_SYS(init_module),
    SCMP_SYS(finit_module),
    SCMP_SYS(kexec_load),
    SCMP_SYS(reboot),
    SCMP_SYS(personality),
};

// Collects the first error, so that the list of rules stays readable.
class Rules {
 public:
  explicit Rules(scmp_filter_ctx filter) : filter_(filter) {}

  void add(std::uint32_t action, int call, std::initializer_list<scmp_arg_cmp> arguments = {}) {
    const int result = seccomp_rule_add_array(
        filter_, action, call, static_cast<unsigned>(arguments.size()), arguments.begin());
    if (status_ == 0) status_ = result;
  }
  void allow(int call, std::initializer_list<scmp_arg_cmp> arguments = {}) {
    add(SCMP_ACT_ALLOW, call, arguments);
  }
  int status() const { return status_; }

 private:
  scmp_filter_ctx filter_;
  int status_ = 0;
};

scmp_arg_cmp equals(unsigned argument, scmp_datum_t value) {
  return {argument, SCMP_CMP_EQ, value, 0};
}

// The argument has exactly the bits of `value` among those of `mask`.
scmp_arg_cmp masked(unsigned argument, scmp_datum_t mask, scmp_datum_t value) {
  return {argument, SCMP_CMP_MASKED_EQ, mask, value};
}

void add_rules(Rules& rules) {
  for (const int call : kAllowed) rules.allow(call);
  for (const int call : kKilled) rules.add(SCMP_ACT_KILL_PROCESS, call);
  rules.allow(SCMP_SYS(mmap), {masked(2, PROT_EXEC, 0)});
  rules.allow(SCMP_SYS(mprotect), {masked(2, PROT_EXEC, 0)});
  // A thread, never a process, and never a namespace. CLONE_NEW* flags lie outside of the mask of
  // pthread_create's flags, so they are named.
  constexpr scmp_datum_t kThread = CLONE_VM | CLONE_THREAD | CLONE_SIGHAND;
  constexpr scmp_datum_t kNamespaces = CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWNS |
                                       CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP;
  rules.allow(SCMP_SYS(clone), {masked(0, kThread | kNamespaces, kThread)});
  // A filter cannot read clone3's flags. glibc falls back to clone.
  rules.add(SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3));
  // abort() and the thread pool's signals: only to this process.
  rules.allow(SCMP_SYS(tgkill), {equals(0, static_cast<scmp_datum_t>(getpid()))});
  // fstat of glibc. A path would be looked up in the empty root.
  rules.allow(SCMP_SYS(newfstatat), {equals(3, AT_EMPTY_PATH)});
  for (const int command : {F_GETFD, F_GETFL, F_SETFL, F_GET_SEALS}) {
    rules.allow(SCMP_SYS(fcntl), {equals(1, static_cast<scmp_datum_t>(command))});
  }
  // Reads limits of this process (pthread_getattr_np); sets none.
  rules.allow(SCMP_SYS(prlimit64), {equals(0, 0), equals(2, 0)});
  rules.allow(SCMP_SYS(prctl), {equals(0, PR_SET_NAME)});
  // To ask for AMX: kernels that the server uses must be there in its functions too.
  constexpr scmp_datum_t kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  rules.allow(SCMP_SYS(arch_prctl), {equals(0, kRequestPermission)});
}

}  // namespace

Status enter_system_call_filter() {
  const auto release = [](scmp_filter_ctx filter) { seccomp_release(filter); };
  const std::unique_ptr<std::remove_pointer_t<scmp_filter_ctx>, decltype(release)> filter(
      seccomp_init(SCMP_ACT_ERRNO(EPERM)), release);
  if (filter == nullptr) return unsupported("libseccomp cannot create a filter");
  // Another architecture's calls (32-bit, x32) have other numbers: they kill.
  int status = seccomp_attr_set(filter.get(), SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
  Rules rules(filter.get());
  add_rules(rules);
  if (status == 0) status = rules.status();
  if (status == 0) status = seccomp_load(filter.get());
  if (status != 0) {
    return unsupported(fmt::format("cannot load the seccomp filter: {}", std::strerror(-status)));
  }
  return {};
}

}  // namespace sluice
