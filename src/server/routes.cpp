#include "server/routes.h"

#include <array>
#include <charconv>

namespace sluice {
namespace {

constexpr std::string_view kModelPrefix = "/v1/models/";
constexpr std::string_view kPinPrefix = "/v1/kv/prefixes/";

constexpr std::array kRoutes = {
    Route{"GET", "/", Endpoint::kPage, false, false, "A page to chat and to watch the server"},
    Route{"GET", "/status", Endpoint::kStatus, true, false,
          "Gauges, latencies and unfinished requests"},
    Route{"GET", "/health", Endpoint::kHealth, false, false,
          "Whether the server is well: it answers calls, or drains"},
    Route{"GET", "/ready", Endpoint::kReady, false, false,
          "Whether the model is loaded and answers"},
    Route{"GET", "/version", Endpoint::kVersion, false, false, "The server's version"},
    Route{"GET", "/openapi.json", Endpoint::kOpenApi, false, false, "This document"},
    Route{"GET", "/metrics", Endpoint::kMetrics, false, false, "Metrics as Prometheus text"},
    Route{"GET", "/v1/models", Endpoint::kModels, true, true, "The models that a request may name"},
    Route{"GET", kModelPrefix, Endpoint::kModel, true, true, "One model"},
    Route{"POST", "/v1/chat/completions", Endpoint::kChat, true, true, "Answer a chat"},
    Route{"POST", "/v1/completions", Endpoint::kCompletion, true, true,
          "Complete text or token ids"},
    Route{"POST", "/v1/embeddings", Endpoint::kEmbeddings, true, true, "Vectors of texts"},
    Route{"POST", "/v1/score", Endpoint::kScore, true, true, "How alike pairs of texts are"},
    Route{"POST", "/score", Endpoint::kScore, true, true, "The same, as vLLM names it"},
    Route{"POST", "/v1/rerank", Endpoint::kRerank, true, true,
          "Documents by their likeness to a query"},
    Route{"POST", "/v2/rerank", Endpoint::kRerank, true, true, "The same, as Cohere names it"},
    Route{"POST", "/rerank", Endpoint::kRerank, true, true, "The same, as vLLM names it"},
    Route{"POST", "/v1/responses", Endpoint::kResponses, true, true,
          "Answer a chat in OpenAI's Responses API"},
    Route{"POST", "/v1/messages", Endpoint::kMessages, true, true,
          "Answer a chat in Anthropic's Messages API"},
    Route{"POST", "/v1/messages/count_tokens", Endpoint::kCountTokens, true, true,
          "Count the tokens of a chat"},
    Route{"POST", "/tokenize", Endpoint::kTokenize, true, true, "Text or chat to token ids"},
    Route{"POST", "/detokenize", Endpoint::kDetokenize, true, true, "Token ids to text"},
    Route{"POST", "/v1/load_lora_adapter", Endpoint::kLoadAdapter, true, true,
          "Load a LoRA adapter; needs an admin key"},
    Route{"POST", "/v1/unload_lora_adapter", Endpoint::kUnloadAdapter, true, true,
          "Unload a LoRA adapter; needs an admin key"},
    Route{"GET", "/v1/kv/prefixes", Endpoint::kListPins, true, true,
          "The caller's pinned prefixes"},
    Route{"PUT", kPinPrefix, Endpoint::kPutPin, true, true,
          "Compute a prefix and keep its KV in memory for a time"},
    Route{"GET", kPinPrefix, Endpoint::kShowPin, true, true, "One pinned prefix"},
    Route{"DELETE", kPinPrefix, Endpoint::kRemovePin, true, true, "End a pin"},
};

bool covers(const Route& route, std::string_view path) {
  if (!takes_id(route)) return route.path == path;
  return path.size() > route.path.size() && path.starts_with(route.path);
}

// HEAD is allowed wherever GET is (RFC 9110, 9.1); the HTTP server leaves out the body.
bool takes(const Route& route, std::string_view method) {
  return route.method == method || (route.method == "GET" && method == "HEAD");
}

}  // namespace

std::span<const Route> all_routes() { return kRoutes; }

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

std::string api_endpoints() {
  std::string list;
  for (const Route& route : kRoutes) {
    if (!route.needs_model || takes_id(route)) continue;
    if (!list.empty()) list += ", ";
    list += std::string(route.method) + " " + std::string(route.path);
  }
  return list;
}

namespace {

std::string decoded(std::string_view path) {
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

}  // namespace

std::string model_id_of(std::string_view path) { return decoded(path.substr(kModelPrefix.size())); }

std::string pin_id_of(std::string_view path) { return decoded(path.substr(kPinPrefix.size())); }

}  // namespace sluice
