#include "http/base_url.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "http/unix_path.h"

namespace sluice::http {
namespace {

constexpr std::string_view kScheme = "http://";
constexpr std::string_view kTlsScheme = "https://";
constexpr std::string_view kUnix = "unix:";

Error bad_url(std::string_view text, std::string_view problem) {
  return invalid_argument(fmt::format(
      "'{}': {}; write it as http://HOST:PORT, such as http://127.0.0.1:8000", text, problem));
}

bool is_host_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '-' || c == '_';
}

bool is_host(std::string_view host, bool numeric_v6) {
  if (host.empty()) return false;
  if (!numeric_v6) return std::all_of(host.begin(), host.end(), is_host_char);
  return std::all_of(host.begin(), host.end(),
                     [](char c) { return is_host_char(c) || c == ':' || c == '%'; });
}

bool is_path(std::string_view path) {
  return std::all_of(path.begin(), path.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte > 0x20 && byte < 0x7f && c != '?' && c != '#';
  });
}

Status parse_port(std::string_view text, std::string_view digits, BaseUrl& url) {
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, url.port);
  if (digits.empty() || error != std::errc() || stop != end || url.port == 0) {
    return bad_url(text, fmt::format("'{}' is not a port (1 to 65535)", digits));
  }
  return {};
}

// Host and port.
Status parse_authority(std::string_view text, std::string_view authority, BaseUrl& url) {
  if (authority.find('@') != std::string_view::npos) {
    return bad_url(text, "a user in the address is not supported");
  }
  std::string_view rest;
  const bool numeric_v6 = authority.starts_with('[');
  if (numeric_v6) {
    const std::size_t end = authority.find(']');
    if (end == std::string_view::npos) return bad_url(text, "a ']' is missing");
    url.host = authority.substr(1, end - 1);
    rest = authority.substr(end + 1);
  } else {
    const std::size_t colon = authority.find(':');
    url.host = authority.substr(0, colon);
    if (colon != std::string_view::npos) rest = authority.substr(colon);
  }
  if (!is_host(url.host, numeric_v6)) return bad_url(text, "the host is missing or not valid");
  url.authority = authority;
  if (rest.empty()) return {};
  if (rest.front() != ':') return bad_url(text, "expected ':PORT' after the host");
  return parse_port(text, rest.substr(1), url);
}

}  // namespace

std::string server_name(const BaseUrl& url) {
  if (!url.unix_path.empty()) return fmt::format("{}{}", kUnix, url.unix_path);
  return fmt::format("{} port {}", url.host, url.port);
}

Result<BaseUrl> parse_base_url(std::string_view text) {
  if (text.starts_with(kUnix)) {
    BaseUrl url;
    url.unix_path = text.substr(kUnix.size());
    url.authority = "localhost";
    RETURN_IF_ERROR(check_socket_path(url.unix_path));
    return url;
  }
  BaseUrl url;
  url.tls = text.starts_with(kTlsScheme);
  if (url.tls) url.port = 443;
  if (!url.tls && !text.starts_with(kScheme)) {
    return bad_url(text, "it does not begin with http://, https:// or unix:");
  }
  std::string_view rest = text.substr(url.tls ? kTlsScheme.size() : kScheme.size());
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  RETURN_IF_ERROR(parse_authority(text, rest.substr(0, slash), url));
  std::string_view prefix = rest.substr(slash);
  while (prefix.ends_with('/')) prefix.remove_suffix(1);
  if (prefix == "/v1" || prefix.ends_with("/v1")) prefix.remove_suffix(3);
  while (prefix.ends_with('/')) prefix.remove_suffix(1);
  if (!is_path(prefix)) {
    return bad_url(text, "the path has a query, a fragment, blanks or control characters");
  }
  url.prefix = prefix;
  return url;
}

}  // namespace sluice::http
