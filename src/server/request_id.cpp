#include "server/request_id.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <cctype>

#include "base/check.h"

namespace sluice {

bool is_sane_request_id(std::string_view id) {
  constexpr std::size_t kMaxBytes = 128;
  return !id.empty() && id.size() <= kMaxBytes && std::all_of(id.begin(), id.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.' ||
           c == ':';
  });
}

std::uint64_t random_bits() {
  std::uint64_t bits = 0;
  // getrandom() returns this few bytes in one call, once the system is up.
  CHECK(getrandom(&bits, sizeof(bits), 0) == sizeof(bits));
  return bits;
}

std::string make_request_id(std::string_view prefix) {
  return fmt::format("{}{:016x}{:08x}", prefix, random_bits(), random_bits() & 0xFFFFFFFFU);
}

}  // namespace sluice
