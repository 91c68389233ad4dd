#include "http/open_files.h"

#include <sys/resource.h>

#include <limits>

#include "base/check.h"

namespace sluice::http {

std::int64_t raise_open_files_limit() {
  rlimit limit{};
  CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = limit.rlim_max;
  // Not fatal: the server then serves as many connections as it may.
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = before;
  constexpr auto kMost = static_cast<rlim_t>(std::numeric_limits<std::int64_t>::max());
  return static_cast<std::int64_t>(limit.rlim_cur < kMost ? limit.rlim_cur : kMost);
}

}  // namespace sluice::http
