#include "sandbox/enter.h"

#include <fmt/format.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "sandbox/landlock.h"
#include "sandbox/system_calls.h"

namespace sluice {
namespace {

std::string system_error(const char* what) {
  return fmt::format("{}: {}", what, std::strerror(errno));
}

void add_result(SandboxReport& report, Layer layer, const Status& status, const std::string& how) {
  report.add(layer, status.has_value(), status ? how : status.error().message);
}

Status new_namespace(int flag) {
  if (unshare(flag) == 0) return {};
  return unsupported(system_error("the kernel refuses a new namespace"));
}

// Replaces the tree of mounts by an empty, read-only directory in memory.
Status empty_mounts() {
  RETURN_IF_ERROR(new_namespace(CLONE_NEWNS));
  const char* step = "make mounts private";
  bool ok = mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
  const auto next = [&](const char* name, auto call) {
    if (!ok) return;
    step = name;
    ok = call() == 0;
  };
  constexpr unsigned long kFlags = MS_NOSUID | MS_NODEV | MS_NOEXEC;
  next("mount an empty root", [] { return mount("none", "/tmp", "tmpfs", kFlags, "size=4k"); });
  next("enter the empty root", [] { return chdir("/tmp"); });
  next("swap roots", [] { return static_cast<int>(syscall(SYS_pivot_root, ".", ".")); });
  next("detach the old root", [] { return umount2(".", MNT_DETACH); });
  next("enter the new root", [] { return chdir("/"); });
  next("make the root read-only", [] {
    return mount("none", "/", nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY | kFlags, nullptr);
  });
  if (ok) return {};
  return unsupported(system_error(step));
}

Status limit(__rlimit_resource resource, rlim_t value, const char* name) {
  rlimit current{};
  getrlimit(resource, &current);
  const rlim_t most = std::min(value, current.rlim_max);  // an ordinary user cannot raise it
  const rlimit limits{most, most};
  if (setrlimit(resource, &limits) == 0) return {};
  return internal_error(system_error(name));
}

Status forbid_dumps() {
  RETURN_IF_ERROR(limit(RLIMIT_CORE, 0, "RLIMIT_CORE"));
  if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0) return {};
  return unsupported(system_error("PR_SET_DUMPABLE"));
}

// Drops every capability, also from the bounding set, so that no exec can bring one back.
Status drop_privileges() {
  for (unsigned long capability = 0; capability <= 63; ++capability) {
    if (prctl(PR_CAPBSET_READ, capability, 0, 0, 0) < 0) break;  // beyond the kernel's last one
    prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);  // needs a capability; an ordinary user has none
  }
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[2] = {};
  if (syscall(SYS_capset, &header, none) != 0) return unsupported(system_error("capset"));
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
    return unsupported(system_error("PR_SET_NO_NEW_PRIVS"));
  }
  return {};
}

}  // namespace

bool leaves_out(const SandboxOptions& options, Layer layer) {
  return std::find(options.without.begin(), options.without.end(), layer) != options.without.end();
}

Status enter_sandbox(const SandboxOptions& options, SandboxReport& report) {
  const auto build = [&](Layer layer, const std::string& how, auto make) {
    if (leaves_out(options, layer)) {
      report.add(layer, false, "left out by the options");
    } else {
      add_result(report, layer, make(), how);
    }
  };
  RETURN_IF_ERROR(limit(RLIMIT_NOFILE, options.max_descriptors, "RLIMIT_NOFILE"));
  // Namespaces need the capabilities that drop_privileges gives up.
  build(Layer::kNetwork, "empty", [] { return new_namespace(CLONE_NEWNET); });
  build(Layer::kIpc, "empty", [] { return new_namespace(CLONE_NEWIPC); });
  build(Layer::kHostName, "own", [] { return new_namespace(CLONE_NEWUTS); });
  build(Layer::kMounts, "empty read-only root", [] { return empty_mounts(); });
  build(Layer::kDump, "RLIMIT_CORE 0, not dumpable", [] { return forbid_dumps(); });
  // Landlock and seccomp need no_new_privs, so this layer cannot be left out.
  RETURN_IF_ERROR(drop_privileges());
  report.add(Layer::kPrivileges, true, "no capabilities, no_new_privs");
  const Result<int> version = landlock_version();
  build(Layer::kLandlock, version ? fmt::format("ABI {}", *version) : "", [&]() -> Status {
    if (!version) return version.error();
    return enter_landlock(*version);
  });
  build(Layer::kSystemCalls, "allow-list", [] { return enter_system_call_filter(); });
  return {};
}

}  // namespace sluice
