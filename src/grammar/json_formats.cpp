#include "grammar/json_formats.h"

#include <fmt/format.h>

namespace sluice {
namespace {

// February has 28 days here.
constexpr std::string_view kDate =
    R"(\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|)"
    R"((?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8])))";
constexpr std::string_view kTime =
    R"((?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d))";
constexpr std::string_view kUuid =
    R"([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})";
constexpr std::string_view kEmail =
    R"([A-Za-z0-9_+-]+(?:\.[A-Za-z0-9_+-]+)*@)"
    R"([A-Za-z0-9]+(?:-[A-Za-z0-9]+)*(?:\.[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*)+)";
constexpr std::string_view kIpv4 =
    R"((?:(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)\.){3}(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d))";

}  // namespace

std::string format_pattern(std::string_view format) {
  if (format == "date") return std::string(kDate);
  if (format == "time") return std::string(kTime);
  if (format == "date-time") return fmt::format("{}T{}", kDate, kTime);
  if (format == "uuid") return std::string(kUuid);
  if (format == "email") return std::string(kEmail);
  if (format == "ipv4") return std::string(kIpv4);
  return {};
}

}  // namespace sluice
