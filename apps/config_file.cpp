#include "apps/config_file.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/file.h"

namespace sluice {
namespace {

constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 20;

std::string place(std::string_view path, const YAML::Mark& mark) {
  return fmt::format("{}:{}", path, mark.line + 1);
}

Result<std::vector<std::string>> values_of(const YAML::Node& node) {
  std::vector<std::string> values;
  if (node.IsScalar()) {
    values.push_back(node.Scalar());
  } else if (node.IsSequence()) {
    for (const YAML::Node& item : node) {
      if (!item.IsScalar()) {
        return invalid_argument("has a list with something else than single values in it");
      }
      values.push_back(item.Scalar());
    }
  }
  if (values.empty()) return invalid_argument("needs a value or a list of values");
  return values;
}

// Throws what yaml-cpp throws.
Result<std::vector<ConfigEntry>> entries_of(const YAML::Node& root, std::string_view path) {
  std::vector<ConfigEntry> entries;
  if (root.IsNull()) return entries;
  if (!root.IsMap()) {
    return invalid_argument(fmt::format("{}: must be a map from option names to values", path));
  }
  for (const auto& member : root) {
    const std::string where = place(path, member.first.Mark());
    if (!member.first.IsScalar()) {
      return invalid_argument(fmt::format("{}: an option's name must be a text", where));
    }
    ConfigEntry entry{member.first.Scalar(), {}, where};
    std::ranges::replace(entry.name, '_', '-');
    const auto same = [&](const ConfigEntry& other) { return other.name == entry.name; };
    if (std::ranges::any_of(entries, same)) {
      return invalid_argument(fmt::format("{}: {} is given twice", where, entry.name));
    }
    auto values = values_of(member.second);
    if (!values) {
      return invalid_argument(fmt::format("{}: {} {}", where, entry.name, values.error().message));
    }
    entry.values = *std::move(values);
    entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace

Result<std::vector<ConfigEntry>> parse_config(const std::string& text, std::string_view path) {
  try {
    return entries_of(YAML::Load(text), path);
  } catch (const YAML::Exception& error) {
    return invalid_argument(fmt::format("{}: not YAML: {}", place(path, error.mark), error.msg));
  }
}

Result<std::vector<ConfigEntry>> read_config_file(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxBytes));
  return parse_config(text, path);
}

}  // namespace sluice
