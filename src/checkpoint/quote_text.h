// Text from a file or a client for use in an error message: in quotes, control characters and
// quotes escaped, cut after 120 bytes. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

namespace sluice {

std::string quote_text(std::string_view text);

}  // namespace sluice
