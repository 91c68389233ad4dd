// Routes: one table from method and path to endpoint, with what each endpoint requires.
// Threads: any.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace sluice {

enum class Endpoint : std::uint8_t {
  kPage,
  kStatus,
  kHealth,
  kReady,
  kVersion,
  kOpenApi,
  kMetrics,
  kModels,
  kModel,  // /v1/models/{id}
  kChat,
  kCompletion,
  kEmbeddings,
  kScore,
  kRerank,
  kResponses,
  kMessages,
  kCountTokens,
  kTokenize,
  kDetokenize,
  kLoadAdapter,
  kUnloadAdapter,
  kListPins,
  kPutPin,  // these three: /v1/kv/prefixes/{id}
  kShowPin,
  kRemovePin,
};

struct Route {
  std::string_view method;
  std::string_view path;  // if takes_id(): the part before the id
  Endpoint endpoint;
  bool needs_key;    // when there are API keys
  bool needs_model;  // refused unless the model is ready
  std::string_view summary;
};

// Whether an id follows the path.
constexpr bool takes_id(const Route& route) {
  return route.path.size() > 1 && route.path.ends_with('/');
}

// All routes, in the order of the documentation.
std::span<const Route> all_routes();

// The route of a request. If there is none, `route` is nullptr and `allowed` lists the methods of
// that path ("" when nothing is there).
struct RouteMatch {
  const Route* route = nullptr;
  std::string allowed;
};
RouteMatch find_route(std::string_view method, std::string_view path);

// The endpoints of the API, for people: "GET /v1/models, POST ...".
std::string api_endpoints();

// The id after /v1/models/ or /v1/kv/prefixes/, with %XX decoded. An invalid %XX is kept unchanged.
std::string model_id_of(std::string_view path);
std::string pin_id_of(std::string_view path);

}  // namespace sluice
