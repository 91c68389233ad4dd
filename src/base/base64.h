// Base64 with padding (RFC 4648, 4). Pure; any thread.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace sluice {

std::string to_base64(std::span<const std::byte> bytes);

}  // namespace sluice
