// HTTP messages as plain data, in our own types, so that only src/http's .cpp files use the
// library. Values: plain; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"

namespace sluice::http {

struct Header {
  std::string name;
  std::string value;
};

struct Request {
  std::string method;           // "GET"
  std::string path;             // "/v1/models", without the query; a server's is normal_path()
  std::string query;            // after the '?'
  std::vector<Header> headers;  // as sent, in order
  std::string body;             // whole, chunked coding removed; at most HttpLimits::body_bytes
  // The requested host and port: of an absolute target, else of the Host header. Empty if an
  // HTTP/1.0 client sends neither.
  std::string authority;
  std::string peer;    // "127.0.0.1:51234"
  std::string local;   // the server's address of the connection, without port: "127.0.0.1", "::1"
  TimePoint received;  // when its last byte was read

  // The first header of that name, compared without case; nullptr when there is none.
  const std::string* header(std::string_view name) const;
};

struct Response {
  int status = 200;
  std::string content_type = "application/json";
  std::vector<Header> headers;  // besides Content-Type, Content-Length, Connection, Date, Server
  std::string body;
};

// "Not Found" for 404.
std::string_view reason_phrase(int status);

}  // namespace sluice::http
