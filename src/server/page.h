// The server's pages: HTML files that are part of the binary. src/server/page has the one at / and
// what all pages share.
// Threads: any.
#pragma once

#include <string>
#include <string_view>

#include "http/message.h"

namespace sluice {

// The page to chat and to watch one server.
std::string_view page_html();

// The Content-Security-Policy of a page: only the scripts and styles in the page itself run, by
// their digests, and it may talk to this server only.
std::string security_policy_for(std::string_view html);

// The answer with a page. Computes the digests of the policy: callers keep the answer.
http::Response page_response(std::string_view html);

}  // namespace sluice
