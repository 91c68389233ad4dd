#include "base/memory_size.h"

#include <fmt/format.h>

#include <array>
#include <charconv>

namespace sluice {

Result<std::int64_t> parse_memory_size(std::string_view field, std::string_view text) {
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
  if (error == std::errc()) {
    const std::string_view suffix(stop, static_cast<std::size_t>(end - stop));
    for (const Unit& unit : kUnits) {
      const double bytes = number * unit.bytes;
      if (suffix == unit.name && bytes >= 1 && bytes < 0x1p62) {
        return static_cast<std::int64_t>(bytes);
      }
    }
  }
  return invalid_argument(
      fmt::format("{} must be a size such as 4GiB, 512MiB or 2GB, got '{}'", field, text));
}

}  // namespace sluice
