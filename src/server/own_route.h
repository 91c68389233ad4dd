// OwnRoute: an endpoint that a command adds to the API's. It wins over the API's own endpoint of
// the same method and path.
// Values: plain.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "http/message.h"
#include "server/api_keys.h"
#include "server/body_fields.h"

namespace sluice {

// A field of a query, for GET /openapi.json.
struct QueryField {
  std::string name;
  std::string format = {};               // of JSON Schema, such as "date"; empty: any text
  std::vector<std::string> values = {};  // the only ones; empty: all
};

struct OwnRoute {
  // `answer` is called once, on the event loop.
  using Answer = std::function<void(http::Response)>;
  // `key`: the caller's; with an empty name if the route needs none.
  using Handle = std::function<void(const http::Request&, const ApiKey& key, Answer answer)>;

  std::string method;
  std::string path;
  Handle handle;
  // For GET /openapi.json.
  std::string summary;
  bool needs_key = true;
  std::string content_type = "application/json";
  std::string other_content_type = {};  // that a query may ask for; empty: none
  std::vector<QueryField> query;
  BodyFields body;  // of a POST
};

}  // namespace sluice
