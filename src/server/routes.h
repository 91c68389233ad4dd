// Routes: which method and path is which endpoint, and what it asks of a caller. One table.
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
  std::string_view path;  // kModel: what stands before the id
  Endpoint endpoint;
  bool needs_key;    // when there are API keys
  bool needs_model;  // refused while the model is not there, or no longer
};

// What a request asks for: a route; or nullptr, and `allowed` lists the methods of that path (""
// when nothing is there).
struct RouteMatch {
  const Route* route = nullptr;
  std::string allowed;
};
RouteMatch find_route(std::string_view method, std::string_view path);

// The id behind /v1/models/, with %XX decoded. What is not valid stays as it is.
std::string model_id_of(std::string_view path);

}  // namespace sluice
