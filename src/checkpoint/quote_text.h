// Quotes text from a file or a client for an error message: control characters and quotes are
// escaped, and the text is cut after 120 bytes. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

namespace sluice {

std::string quote_text(std::string_view text);

}  // namespace sluice
