// Routes: one table from method and path to endpoint, with what each endpoint requires.
// Threads: any.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sluice {

enum class Endpoint : std::uint8_t {
  kPage,
  kStatus,
  kHealth,
  kReady,
  kVersion,
  kMetrics,
  kModels,
  kModel,  // /v1/models/{id}
  kChat,
  kCompletion,
  kTokenize,
  kDetokenize,
};

struct Route {
  std::string_view method;
  std::string_view path;  // kModel: the part before the id
  Endpoint endpoint;
  bool needs_key;    // when there are API keys
  bool needs_model;  // refused unless the model is ready
};

// The route of a request. If there is none, `route` is nullptr and `allowed` lists the methods of
// that path ("" when nothing is there).
struct RouteMatch {
  const Route* route = nullptr;
  std::string allowed;
};
RouteMatch find_route(std::string_view method, std::string_view path);

// The id after /v1/models/, with %XX decoded. An invalid %XX is kept unchanged.
std::string model_id_of(std::string_view path);

}  // namespace sluice
