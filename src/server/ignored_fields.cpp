#include "server/ignored_fields.h"

#include <fmt/format.h>

namespace sluice {

std::string shown_field_name(std::string_view name) {
  std::string shown;
  for (const char c : name.substr(0, kMaxShownFieldBytes)) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '_' || c == '-' || c == '.';
    if (plain) {
      shown += c;
    } else {
      shown += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return shown;
}

std::string ignored_fields_value(std::span<const IgnoredField> fields) {
  std::string value;
  for (const IgnoredField& field : fields) {
    if (!value.empty()) value += ", ";
    value += field.name;
  }
  return value;
}

std::vector<std::string> IgnoredFieldLog::new_lines(std::span<const IgnoredField> fields) {
  std::vector<std::string> lines;
  for (const IgnoredField& field : fields) {
    if (logged_.size() == kMaxLoggedFields) break;
    if (!logged_.insert(field.name).second) continue;
    const std::string hint =
        field.nearest.empty() ? "" : fmt::format(" (did you mean \"{}\"?)", field.nearest);
    lines.push_back(fmt::format(
        "a request has the field \"{}\", which this server does not know; it is ignored{}; "
        "--strict-fields refuses such requests",
        field.name, hint));
    if (logged_.size() == kMaxLoggedFields) {
      lines.push_back(fmt::format("{} names of ignored fields are logged; the log names no more",
                                  kMaxLoggedFields));
    }
  }
  return lines;
}

}  // namespace sluice
