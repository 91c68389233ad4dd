// The page at /: one HTML file, part of the binary (src/server/page/index.html).
// Threads: any.
#pragma once

#include <string>
#include <string_view>

namespace sluice {

std::string page_html();

// Its Content-Security-Policy: only the scripts and styles in the page itself run, by their
// digests, and it may talk to this server only.
const std::string& page_security_policy();

// The same for any page; for tests.
std::string security_policy_for(std::string_view html);

}  // namespace sluice
