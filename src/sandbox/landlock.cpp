#include "sandbox/landlock.h"

#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "base/file.h"

namespace sluice {
namespace {

// struct landlock_ruleset_attr of Linux 6.12; Debian 12's header has only its first field.
struct RulesetFields {
  std::uint64_t handled_access_fs = 0;
  std::uint64_t handled_access_net = 0;
  std::uint64_t scoped = 0;
};

constexpr unsigned kVersionFlag = 1;  // LANDLOCK_CREATE_RULESET_VERSION

// The rights of a version are the lowest bits of each field.
constexpr std::uint64_t low_bits(int count) { return (std::uint64_t{1} << count) - 1; }

int file_right_count(int version) {
  if (version >= 5) return 16;  // + ioctl on devices
  if (version >= 3) return 15;  // + truncate
  if (version >= 2) return 14;  // + refer
  return 13;
}

}  // namespace

Result<int> landlock_version() {
  const long version = syscall(SYS_landlock_create_ruleset, nullptr, 0, kVersionFlag);
  if (version < 1) {
    return unsupported(fmt::format("the kernel offers no Landlock: {}", std::strerror(errno)));
  }
  return static_cast<int>(version);
}

Status enter_landlock(int version) {
  RulesetFields fields;
  fields.handled_access_fs = low_bits(file_right_count(version));
  std::size_t size = sizeof(fields.handled_access_fs);
  if (version >= 4) {
    fields.handled_access_net = low_bits(2);  // bind, connect
    size += sizeof(fields.handled_access_net);
  }
  if (version >= 6) {
    fields.scoped = low_bits(2);  // abstract sockets, signals
    size += sizeof(fields.scoped);
  }
  const FileDescriptor ruleset(
      static_cast<int>(syscall(SYS_landlock_create_ruleset, &fields, size, 0)));
  if (!ruleset.valid() || syscall(SYS_landlock_restrict_self, ruleset.get(), 0) != 0) {
    return unsupported(
        fmt::format("cannot enter Landlock ABI {}: {}", version, std::strerror(errno)));
  }
  return {};
}

}  // namespace sluice
