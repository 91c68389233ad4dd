// Base64 with padding (RFC 4648, 4). Pure; any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace sluice {

std::string to_base64(std::span<const std::byte> bytes);
// Absent: the text is not canonical base64 (length, alphabet, padding, bits after the last byte).
std::optional<std::string> from_base64(std::string_view text);

}  // namespace sluice
