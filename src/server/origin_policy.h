// OriginPolicy: the host names by which a request may address this server, and the web pages that
// may call it. A browser runs pages of any site. Without these checks such a page could call a
// server on the user's machine: by a DNS name that it points at 127.0.0.1 (DNS rebinding), or by a
// plain form (CSRF).
//
// Host: loopback names and addresses, the address that the connection came in on, the host that
// `--host` names, and `--allowed-host`. Ports are not compared. A request without a host passes: no
// browser sends one.
// Origin: the server's own (the request's host and port) and `--cors-origin`. A request without the
// header passes, because browsers send it with every POST.
// Immutable: any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "http/message.h"
#include "server/api_error.h"

namespace sluice {

class OriginPolicy {
 public:
  struct Options {
    std::string listen_host = "127.0.0.1";
    std::vector<std::string> allowed_hosts = {};  // names or addresses; "*": every host
    std::vector<std::string> cors_origins = {};   // "https://example.org:8443"; "*": every origin
  };

  OriginPolicy() : OriginPolicy(Options{}) {}
  // Errors name the option.
  static Result<OriginPolicy> create(const Options& options);

  // 403, when the request's host or origin is foreign.
  std::optional<ApiError> refuse(const http::Request& head) const;
  // The request's origin when it is one of `cors_origins`; empty otherwise.
  std::string_view cors_origin(const http::Request& head) const;

 private:
  explicit OriginPolicy(const Options& options);
  bool allows(std::string_view origin) const;

  std::vector<std::string> hosts_;
  std::vector<std::string> cors_origins_;
  bool any_host_ = false;
  bool any_origin_ = false;
};

// The headers by which a browser lets a page of `origin` read an answer.
std::vector<http::Header> cors_headers(std::string_view origin);
// The answer to a preflight request (OPTIONS with Access-Control-Request-Method); nullopt for any
// other request. REQUIRES: the origin is allowed.
std::optional<http::Response> preflight_response(const http::Request& head);

}  // namespace sluice
