#include "function/own_memory.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace sluice {

std::int64_t own_memory_bytes(pid_t process) {
  std::ifstream numbers(fmt::format("/proc/{}/statm", process));
  std::int64_t size = 0;
  std::int64_t resident = 0;
  std::int64_t shared = 0;
  if (!(numbers >> size >> resident >> shared)) return 0;
  return std::max<std::int64_t>(0, resident - shared) * sysconf(_SC_PAGESIZE);
}

}  // namespace sluice
