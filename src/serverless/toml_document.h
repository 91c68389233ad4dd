// A TOML file as a tree of plain values with their places, so that only one source knows the
// library. Strings of several lines and keys of very many parts are refused. Pure; any thread.
// Limits: kMaxTomlBytes, kMaxTomlDots.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice {

inline constexpr std::size_t kMaxTomlBytes = std::size_t{16} << 20;
inline constexpr int kMaxTomlDots = 32;  // dots outside of strings in one line

struct TomlPlace {  // from 1
  std::int64_t line = 1;
  std::int64_t column = 1;
};

struct TomlMember;

struct TomlValue {
  enum class Kind : std::uint8_t { kBoolean, kInteger, kNumber, kText, kDate, kList, kTable };

  Kind kind = Kind::kTable;
  TomlPlace place;
  bool boolean = false;
  std::int64_t integer = 0;
  double number = 0;  // of kInteger too
  std::string text;
  std::vector<TomlValue> items;     // of a list
  std::vector<TomlMember> members;  // of a table, in order of keys
};

struct TomlMember {
  std::string key;
  TomlPlace place;  // of the key
  TomlValue value;
};

// The root table. Errors are "path:line:column: not TOML: reason".
Result<TomlValue> parse_toml(std::string_view text, std::string_view path);

}  // namespace sluice
