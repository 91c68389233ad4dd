// BaseUrl: the parts of `http://host:port/prefix`, `https://...` or `unix:PATH` (a
// Unix-domain socket) that a connection and a request line need.
// Plain data; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace sluice::http {

struct BaseUrl {
  std::string host;  // "127.0.0.1", "::1" (no brackets), "example.org"
  std::uint16_t port = 80;
  bool tls = false;       // https
  std::string unix_path;  // of a Unix-domain socket; host and port are then unused
  std::string authority;  // for the header Host: "[::1]:8000"
  std::string prefix;     // before every path: "" or "/gpt"; no slash at its end
};

// The server's name for messages: "127.0.0.1 port 8000", "unix:/run/sluice.sock".
std::string server_name(const BaseUrl& url);

// Errors say what is wrong with the address and what is expected; callers add their option. A /v1
// at the end of the prefix, which OpenAI's clients use, is removed.
Result<BaseUrl> parse_base_url(std::string_view text);

}  // namespace sluice::http
