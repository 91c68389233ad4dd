#include "base/memory_policy.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <string>
#include <system_error>

#include "base/check.h"

namespace sluice {
namespace {

constexpr std::size_t kMaxNodes = 1024;
constexpr std::size_t kWordBits = sizeof(unsigned long) * CHAR_BIT;
using NodeMask = std::array<unsigned long, kMaxNodes / kWordBits>;

}  // namespace

// The calls are those of libnuma, which is not needed for two of them.
Status spread_new_memory(std::span<const int> nodes) {
  CHECK(!nodes.empty());
  int mode = MPOL_DEFAULT;
  NodeMask mask{};
  if (syscall(SYS_get_mempolicy, &mode, mask.data(), kMaxNodes, nullptr, 0) == 0 &&
      mode != MPOL_DEFAULT) {
    return unsupported("the process was started with a memory policy of its own, which is kept");
  }
  mask = {};
  for (const int node : nodes) {
    CHECK(node >= 0 && static_cast<std::size_t>(node) < kMaxNodes);
    mask[static_cast<std::size_t>(node) / kWordBits] |=
        1UL << (static_cast<std::size_t>(node) % kWordBits);
  }
  if (syscall(SYS_set_mempolicy, MPOL_INTERLEAVE, mask.data(), kMaxNodes) == 0) return {};
  return unsupported("set_mempolicy: " + std::generic_category().message(errno));
}

}  // namespace sluice
