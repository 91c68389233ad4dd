// Text from a file for use in an error message: in quotes, printable ASCII only, cut after 60
// bytes. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

namespace sluice {

std::string quote_field(std::string_view text);

}  // namespace sluice
