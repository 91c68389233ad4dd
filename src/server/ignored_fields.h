// Request fields that the server does not know. By default a call keeps them as a list: its answer
// names them in a header, and the log names each once. With UnknownFields::kRefuse they are errors.
//
// IgnoredFieldLog: owner: ApiService; threads: the event loop's. The rest is plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

enum class UnknownFields : std::uint8_t { kIgnore, kRefuse };

// `name` is safe in headers and logs (shown_field_name). `nearest`: a known field of a similar
// name; empty: there is none.
struct IgnoredField {
  std::string name;
  std::string nearest;

  friend bool operator==(const IgnoredField&, const IgnoredField&) = default;
};

// The largest number of ignored fields that a request keeps; it does not report further ones.
inline constexpr std::size_t kMaxIgnoredFields = 32;
inline constexpr std::size_t kMaxShownFieldBytes = 64;
// The largest number of names that the log has in the life of the server.
inline constexpr std::size_t kMaxLoggedFields = 100;

inline constexpr std::string_view kIgnoredFieldsHeader = "X-Sluice-Ignored-Fields";

// The first 64 bytes of a field's name. All bytes but letters, digits, '_', '-' and '.' are
// percent-encoded.
std::string shown_field_name(std::string_view name);

// The header's value: the names, separated by ", ".
std::string ignored_fields_value(std::span<const IgnoredField> fields);

class IgnoredFieldLog {
 public:
  // The lines to log for these fields: one for each name that had none before. The last name that
  // is remembered adds a line saying so.
  std::vector<std::string> new_lines(std::span<const IgnoredField> fields);

 private:
  std::set<std::string, std::less<>> logged_;
};

}  // namespace sluice
