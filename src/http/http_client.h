// HttpClient: HTTP/1.1 requests to one server over a pool of kept connections, on the event loop,
// with TLS if the URL says https.
// If a kept connection is closed before any byte of an answer, the request is sent once more on a
// new connection; nothing else is ever repeated.
// Owner: the run. Threads: the event loop's. REQUIRES: the loop outlives the client, and does not
// run once the client has ended.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "http/base_url.h"
#include "http/event_loop.h"
#include "http/message.h"
#include "http/response_parser.h"
#include "http/tls.h"

namespace sluice::http {

struct HttpClientOptions {
  BaseUrl url;
  std::vector<Header> headers;  // of every request, besides Host and those of a body
  Duration connect_timeout = std::chrono::seconds(10);
  Duration silence_timeout = std::chrono::minutes(10);  // without a byte in either direction
  std::optional<TlsPartyFiles> party = {};              // with https: certificates of both sides
  std::string silence_option = {};  // of the user, for the error of a silence; empty: there is none
};

struct ClientRequest {
  std::string method = "GET";
  std::string path;  // after the address's prefix: "/v1/models"
  std::string body;  // JSON, or nothing
};

// The receiver of an answer. Called from the loop, never inside start() or cancel().
class ResponseSink {
 public:
  virtual ~ResponseSink() = default;
  virtual void on_head(const ResponseHead& head) = 0;
  virtual void on_body(std::string_view piece) = 0;
  // The last call, unless the request was cancelled. Errors name the server.
  virtual void on_end(Status status) = 0;
};

class HttpClient {
 public:
  // Looks the host up. Errors name it.
  static Result<std::unique_ptr<HttpClient>> open(EventLoop& loop, HttpClientOptions options);
  ~HttpClient();  // closes all connections; no sink is called
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // REQUIRES: `sink` lives until its on_end() or until it is cancelled, and has one request at a
  // time.
  void start(const ClientRequest& request, ResponseSink& sink);
  // Closes the request's connection; its sink is not called again. The sink may call it.
  void cancel(ResponseSink& sink);

  // The number of connections opened so far.
  std::int64_t connections() const;

 private:
  struct Impl;
  explicit HttpClient(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::http
