#include "server/routes.h"

#include <array>
#include <charconv>

namespace sluice {
namespace {

constexpr std::string_view kModelPrefix = "/v1/models/";

constexpr std::array kRoutes = {
    Route{"GET", "/", Endpoint::kPage, false, false},
    Route{"GET", "/status", Endpoint::kStatus, true, false},
    Route{"GET", "/health", Endpoint::kHealth, false, false},
    Route{"GET", "/ready", Endpoint::kReady, false, false},
    Route{"GET", "/version", Endpoint::kVersion, false, false},
    Route{"GET", "/metrics", Endpoint::kMetrics, false, false},
    Route{"GET", "/v1/models", Endpoint::kModels, true, true},
    Route{"GET", kModelPrefix, Endpoint::kModel, true, true},
    Route{"POST", "/v1/chat/completions", Endpoint::kChat, true, true},
    Route{"POST", "/v1/completions", Endpoint::kCompletion, true, true},
    Route{"POST", "/tokenize", Endpoint::kTokenize, true, true},
    Route{"POST", "/detokenize", Endpoint::kDetokenize, true, true},
};

bool covers(const Route& route, std::string_view path) {
  if (route.endpoint != Endpoint::kModel) return route.path == path;
  return path.size() > route.path.size() && path.starts_with(route.path);
}

// HEAD is allowed wherever GET is (RFC 9110, 9.1); the HTTP server leaves out the body.
bool takes(const Route& route, std::string_view method) {
  return route.method == method || (route.method == "GET" && method == "HEAD");
}

}  // namespace

RouteMatch find_route(std::string_view method, std::string_view path) {
  RouteMatch match;
  for (const Route& route : kRoutes) {
    if (!covers(route, path)) continue;
    if (takes(route, method)) {
      match.route = &route;
      match.allowed.clear();
      return match;
    }
    if (!match.allowed.empty()) match.allowed += ", ";
    match.allowed += route.method == "GET" ? "GET, HEAD" : route.method;
  }
  return match;
}

std::string model_id_of(std::string_view path) {
  path.remove_prefix(kModelPrefix.size());
  std::string id;
  for (std::size_t i = 0; i < path.size(); ++i) {
    unsigned value = 0;
    if (path[i] == '%' && i + 2 < path.size()) {
      const char* digits = path.data() + i + 1;
      const auto [end, problem] = std::from_chars(digits, digits + 2, value, 16);
      if (problem == std::errc() && end == digits + 2) {
        id += static_cast<char>(value);
        i += 2;
        continue;
      }
    }
    id += path[i];
  }
  return id;
}

}  // namespace sluice
