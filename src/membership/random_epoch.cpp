#include "membership/random_epoch.h"

#include <sys/random.h>

namespace sluice {

Result<std::uint64_t> random_epoch() {
  std::uint64_t bits = 0;
  if (getrandom(&bits, sizeof(bits), 0) != static_cast<ssize_t>(sizeof(bits))) {
    return unavailable("the system gives no random numbers");
  }
  return (((bits >> 32) & 0xffff'ffffU) << 20) + 1;
}

}  // namespace sluice
