// The gateway's page at / (src/gateway/page/functions.html, part of the binary): functions,
// backbones, memory, queues, times and money, from GET /gateway/state. Threads: any.
#pragma once

#include <string_view>

namespace sluice {

std::string_view functions_page_html();

}  // namespace sluice
