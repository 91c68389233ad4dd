#include "server/body_fields.h"

#include <algorithm>

namespace sluice {

void BodyFields::add(std::string_view name, BodyFieldType type, std::int64_t min,
                     std::int64_t max) {
  const auto known = std::ranges::find(fields, name, &BodyField::name);
  if (known == fields.end()) fields.push_back({std::string(name), type, min, max});
}

void BodyFields::add_refused(std::string_view name, std::string_view only) {
  add(name, BodyFieldType::kAny);
  std::ranges::find(fields, name, &BodyField::name)->only = only;
}

void BodyFields::require(std::string_view name) {
  add(name, BodyFieldType::kAny);
  std::ranges::find(fields, name, &BodyField::name)->required = true;
}

void BodyFields::require_either(std::string_view name, std::string_view other) {
  either.emplace_back(name, other);
}

}  // namespace sluice
