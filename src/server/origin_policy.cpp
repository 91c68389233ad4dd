#include "server/origin_policy.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "base/ascii.h"

namespace sluice {
namespace {

constexpr std::string_view kHttp = "http://";
constexpr std::string_view kHttps = "https://";
constexpr std::size_t kMaxShownHost = 64;

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

// The canonical spelling of a host: addresses as inet_ntop writes them, names in lower case without
// a final dot.
std::string canonical_host(std::string_view host) {
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const std::string text = lower(host.substr(0, host.find('%')));  // without an IPv6 zone
  std::array<unsigned char, sizeof(in6_addr)> address{};
  std::array<char, INET6_ADDRSTRLEN> out{};
  for (const int family : {AF_INET, AF_INET6}) {
    if (inet_pton(family, text.c_str(), address.data()) != 1) continue;
    return inet_ntop(family, address.data(), out.data(), out.size());
  }
  return text.ends_with('.') ? text.substr(0, text.size() - 1) : text;
}

bool is_loopback(const std::string& host) {
  if (host == "localhost" || host.ends_with(".localhost") || host == "::1") return true;
  in_addr address{};
  return inet_pton(AF_INET, host.c_str(), &address) == 1 && ntohl(address.s_addr) >> 24 == 127;
}

struct Authority {
  std::string host;  // canonical
  std::string port;  // empty: the scheme's
};

// "host", "host:port", "[v6]:port".
Authority split_authority(std::string_view text) {
  const std::size_t bracket = text.rfind(']');
  const std::size_t colon = text.find(':', bracket == std::string_view::npos ? 0 : bracket);
  Authority authority{canonical_host(text.substr(0, colon)), ""};
  if (colon != std::string_view::npos) authority.port = text.substr(colon + 1);
  return authority;
}

// Whether `origin` is a page of this server: a proxy may have ended TLS in front of it.
bool is_own(std::string_view origin, std::string_view authority) {
  const Authority asked = split_authority(authority);
  for (const auto& [scheme, port] : {std::pair{kHttp, "80"}, std::pair{kHttps, "443"}}) {
    if (!origin.starts_with(scheme)) continue;
    const Authority page = split_authority(origin.substr(scheme.size()));
    const auto port_of = [&, port = port](const Authority& a) {
      return a.port.empty() ? std::string(port) : a.port;
    };
    return page.host == asked.host && port_of(page) == port_of(asked);
  }
  return false;
}

ApiError forbidden(std::string message, std::string code) {
  ApiError error;
  error.status = 403;
  error.message = std::move(message);
  error.code = std::move(code);
  return error;
}

Status check_origin(const std::string& origin) {
  const std::string text = lower(origin);
  for (const std::string_view scheme : {kHttp, kHttps}) {
    if (!text.starts_with(scheme)) continue;
    const std::string_view rest = std::string_view(text).substr(scheme.size());
    if (!rest.empty() && rest.find_first_of("/?# ") == std::string_view::npos) return {};
  }
  return invalid_argument(
      fmt::format("--cors-origin must be like https://example.org or http://localhost:3000, "
                  "without a path, or *; got '{}'",
                  origin));
}

Status check_host(const std::string& host) {
  in6_addr address{};
  const std::string name = canonical_host(host);
  const bool is_v6 = inet_pton(AF_INET6, name.c_str(), &address) == 1;
  const bool fits = !name.empty() && host.find_first_of("/ ") == std::string::npos;
  if (fits && (is_v6 || name.find(':') == std::string::npos)) return {};
  return invalid_argument(fmt::format(
      "--allowed-host must be a name or an address without scheme and port, or *; got '{}'", host));
}

}  // namespace

OriginPolicy::OriginPolicy(const Options& options) {
  hosts_.push_back(canonical_host(options.listen_host));
  for (const std::string& host : options.allowed_hosts) {
    any_host_ = any_host_ || host == "*";
    hosts_.push_back(canonical_host(host));
  }
  for (const std::string& origin : options.cors_origins) {
    any_origin_ = any_origin_ || origin == "*";
    cors_origins_.push_back(lower(origin));
  }
}

Result<OriginPolicy> OriginPolicy::create(const Options& options) {
  for (const std::string& host : options.allowed_hosts) RETURN_IF_ERROR(check_host(host));
  for (const std::string& origin : options.cors_origins) {
    if (origin != "*") RETURN_IF_ERROR(check_origin(origin));
  }
  return OriginPolicy(options);
}

std::optional<ApiError> OriginPolicy::refuse(const http::Request& head) const {
  if (!head.authority.empty() && !any_host_) {
    const std::string host = split_authority(head.authority).host;
    const bool known = is_loopback(host) || host == canonical_host(head.local) ||
                       std::ranges::find(hosts_, host) != hosts_.end();
    if (!known) {
      return forbidden(fmt::format("'{}' is not a name of this server; start the server with "
                                   "--allowed-host to allow it",
                                   host.substr(0, kMaxShownHost)),
                       "host_not_allowed");
    }
  }
  const bool foreign = std::ranges::any_of(head.headers, [&](const http::Header& header) {
    return ascii::equals_ignoring_case(header.name, "Origin") && !allows(header.value) &&
           !is_own(lower(header.value), head.authority);
  });
  if (!foreign) return std::nullopt;
  return forbidden(
      "pages of this origin may not call the server; start the server with --cors-origin to allow "
      "them",
      "origin_not_allowed");
}

std::string_view OriginPolicy::cors_origin(const http::Request& head) const {
  const std::string* origin = head.header("Origin");
  return origin != nullptr && allows(*origin) ? std::string_view(*origin) : std::string_view();
}

bool OriginPolicy::allows(std::string_view origin) const {
  return !origin.empty() &&
         (any_origin_ || std::ranges::find(cors_origins_, lower(origin)) != cors_origins_.end());
}

std::vector<http::Header> cors_headers(std::string_view origin) {
  return {{"Access-Control-Allow-Origin", std::string(origin)},
          {"Access-Control-Expose-Headers", "X-Request-Id, Retry-After, X-Sluice-Ignored-Fields"},
          {"Vary", "Origin"}};
}

std::optional<http::Response> preflight_response(const http::Request& head) {
  if (head.method != "OPTIONS" || head.header("Access-Control-Request-Method") == nullptr) {
    return std::nullopt;
  }
  http::Response response;
  response.status = 204;
  response.headers = {{"Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, DELETE"},
                      {"Access-Control-Max-Age", "600"}};
  // Clients send custom headers, so the answer allows the headers that the browser requests.
  if (const std::string* asked = head.header("Access-Control-Request-Headers")) {
    response.headers.push_back({"Access-Control-Allow-Headers", *asked});
  }
  return response;
}

}  // namespace sluice
