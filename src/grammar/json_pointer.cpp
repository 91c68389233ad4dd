#include "grammar/json_pointer.h"

#include <algorithm>
#include <string>
#include <utility>

namespace sluice {
namespace {

const JsonValue* child(const JsonValue& value, const std::string& name) {
  if (value.object() != nullptr) return find_member(*value.object(), name);
  if (value.array() == nullptr || name.empty() || name.size() > 6) return nullptr;
  std::size_t index = 0;
  for (const char c : name) {
    if (c < '0' || c > '9') return nullptr;
    index = index * 10 + static_cast<std::size_t>(c - '0');
  }
  return index < value.array()->size() ? &(*value.array())[index] : nullptr;
}

// "~1" is a slash, and "~0" a tilde.
std::string unescaped(std::string_view text) {
  std::string name(text);
  for (const auto& [from, to] : {std::pair{"~1", "/"}, std::pair{"~0", "~"}}) {
    for (std::size_t i = name.find(from); i != std::string::npos; i = name.find(from, i + 1)) {
      name.replace(i, 2, to);
    }
  }
  return name;
}

}  // namespace

const JsonValue* find_by_pointer(const JsonValue& root, std::string_view pointer) {
  const JsonValue* value = &root;
  while (!pointer.empty() && value != nullptr) {
    if (pointer.front() != '/') return nullptr;
    const std::size_t end = std::min(pointer.find('/', 1), pointer.size());
    value = child(*value, unescaped(pointer.substr(1, end - 1)));
    pointer.remove_prefix(end);
  }
  return value;
}

}  // namespace sluice
