#include "server/error_response.h"

#include <string>

namespace sluice {

http::Response error_response(const ApiError& error, std::string_view request_id, Dialect dialect) {
  http::Response response;
  response.status = error.status;
  response.body = to_json(error, dialect);
  if (error.retry_after_s) {
    response.headers.push_back({"Retry-After", std::to_string(*error.retry_after_s)});
  }
  if (error.status == 401) response.headers.push_back({"WWW-Authenticate", "Bearer"});
  if (!request_id.empty()) response.headers.push_back({"X-Request-Id", std::string(request_id)});
  return response;
}

}  // namespace sluice
