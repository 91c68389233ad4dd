#include "base/memory_size.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace sluice {
namespace {

constexpr double kMemorySizeEnd = 0x1p62;  // a sum of two fits into 64 bits

}  // namespace

Result<std::int64_t> read_memory_size(std::string_view text) {
  struct Unit {
    std::string_view name;
    double bytes;
  };
  constexpr std::array<Unit, 10> kUnits = {{{"", 1},
                                            {"B", 1},
                                            {"KiB", 0x1p10},
                                            {"MiB", 0x1p20},
                                            {"GiB", 0x1p30},
                                            {"TiB", 0x1p40},
                                            {"KB", 1e3},
                                            {"MB", 1e6},
                                            {"GB", 1e9},
                                            {"TB", 1e12}}};
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  const std::string_view suffix(stop, static_cast<std::size_t>(end - stop));
  const auto unit = std::ranges::find(kUnits, suffix, &Unit::name);
  if (error == std::errc() && std::isfinite(number) && number >= 0 && unit != kUnits.end()) {
    const double bytes = number * unit->bytes;
    if (bytes >= 1 && bytes < kMemorySizeEnd) return static_cast<std::int64_t>(bytes);
    if (bytes < 1) return invalid_argument(fmt::format("must be at least 1 byte, got '{}'", text));
    return invalid_argument(fmt::format("is too large: it must be below {}TiB, got '{}'",
                                        kMemorySizeEnd / 0x1p40, text));
  }
  return invalid_argument(
      fmt::format("must be a size such as 4GiB, 512MiB or 2GB, got '{}'", text));
}

Result<std::int64_t> parse_memory_size(std::string_view field, std::string_view text) {
  auto bytes = read_memory_size(text);
  if (!bytes) return invalid_argument(fmt::format("{} {}", field, bytes.error().message));
  return bytes;
}

}  // namespace sluice
