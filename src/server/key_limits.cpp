#include "server/key_limits.h"

#include <fmt/format.h>

#include <charconv>

#include "base/memory_size.h"

namespace sluice {
namespace {

struct Setting {
  std::string_view name;
  std::optional<std::int64_t> KeyLimits::* member;
  std::int64_t least;
  std::int64_t most;
  std::string_view unit;  // behind the number
  bool is_size = false;   // bytes, such as 2GiB
};

constexpr std::int64_t kMost = 1'000'000'000;
constexpr Setting kSettings[] = {
    {"rpm", &KeyLimits::requests_per_minute, 1, kMost, ""},
    {"tpm", &KeyLimits::tokens_per_minute, 1, kMost, ""},
    {"concurrency", &KeyLimits::concurrency, 1, kMost, ""},
    {"queue", &KeyLimits::queue_percent, 1, 100, "%"},
    {"priority", &KeyLimits::best_priority, -kMost, kMost, ""},
    {"weight", &KeyLimits::weight, 1, 1000, ""},
    {"pins", &KeyLimits::pinned_bytes, 0, 0, "", true},
};

std::optional<std::int64_t> number_of(std::string_view text, std::string_view unit) {
  if (!text.ends_with(unit)) return std::nullopt;
  text.remove_suffix(unit.size());
  std::int64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<std::int64_t> size_of(std::string_view text) {
  if (text == "0") return 0;
  const auto size = parse_memory_size("pins", text);
  return size ? std::optional(*size) : std::nullopt;
}

}  // namespace

Status read_limit(std::string_view name, std::string_view value, KeyLimits& limits) {
  for (const Setting& setting : kSettings) {
    if (setting.name != name) continue;
    const auto number = setting.is_size ? size_of(value) : number_of(value, setting.unit);
    if (!number && setting.is_size) {
      return invalid_argument(fmt::format("{} must be 0 or a size such as 512MiB or 2GiB", name));
    }
    if (!setting.is_size && (!number || *number < setting.least || *number > setting.most)) {
      return invalid_argument(fmt::format("{} must be a whole number between {}{} and {}{}", name,
                                          setting.least, setting.unit, setting.most, setting.unit));
    }
    auto& limit = limits.*setting.member;
    if (limit) return invalid_argument(fmt::format("{} is given twice", name));
    limit = number;
    return {};
  }
  return not_found("no such setting");
}

Status merge_limits(const KeyLimits& more, KeyLimits& limits) {
  for (const Setting& setting : kSettings) {
    const auto& given = more.*setting.member;
    auto& limit = limits.*setting.member;
    if (!given) continue;
    if (limit && *limit != *given) {
      return invalid_argument(
          fmt::format("{} differs from that of an earlier line with the same name; the keys of a "
                      "name share its limits, so give it once",
                      setting.name));
    }
    limit = given;
  }
  return {};
}

}  // namespace sluice
