// datetime.strftime in the C locale, for strftime_now.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "base/result.h"

namespace sluice::jinja {

Result<std::string> format_time(std::chrono::local_seconds time, std::string_view format);

}  // namespace sluice::jinja
