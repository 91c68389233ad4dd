// TestOpenAiServer: an HttpServer on a free port, with its loop on a thread of its own, whose
// answers the test chooses. By default each completion gets four tokens and usage.
// Threads: the test's own; what it does with exchanges goes through on_loop().
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "http/event_loop.h"
#include "http/http_client.h"
#include "http/http_server.h"

namespace sluice {

class TestOpenAiServer final : private http::Handler {
 public:
  using ExchangePtr = std::shared_ptr<http::Exchange>;  // shared as every exchange is

  TestOpenAiServer();
  ~TestOpenAiServer() override;
  TestOpenAiServer(const TestOpenAiServer&) = delete;
  TestOpenAiServer& operator=(const TestOpenAiServer&) = delete;

  // Instead of the usual answer to the n-th completion (from 0). Before the run; on the loop.
  std::function<void(ExchangePtr, int)> answer;
  // The answers to GET /v1/models, POST /tokenize and GET /metrics. Set before the run.
  http::Response models{200, "application/json", {}, R"({"data":[{"id":"m","max_model_len":99}]})"};
  http::Response tokenize{404, "application/json", {}, R"({"error":{"message":"no such path"}})"};
  http::Response metrics{404, "text/plain", {}, ""};
  // The answer to GET /ready. Both it and `models` are 503 the first `loading` times.
  http::Response ready{404, "text/plain", {}, ""};
  std::atomic<int> loading{0};

  http::HttpClientOptions client_options() const;
  void on_loop(const std::function<void()>& task);
  // Accepts no more connections and closes the existing ones; call from the loop.
  void die();
  // Bodies of the completions that came.
  std::vector<std::string> bodies();
  http::HttpServerStats stats();

  // Chunks of a completion: `count` of them, a last one with usage of `tokens`, and [DONE].
  static void stream_tokens(http::Exchange& exchange, int count, int tokens);
  static void begin_stream(http::Exchange& exchange);
  static void write_token(http::Exchange& exchange, bool last);

 private:
  std::optional<http::Response> admit(const http::Request&) override { return std::nullopt; }
  void handle(std::shared_ptr<http::Exchange> exchange) override;  // shared as every exchange is
  http::Response refusal(const http::Request& head, int status, std::string message) override;

  SystemClock clock_;
  http::EventLoop loop_;
  std::unique_ptr<http::HttpServer> server_;
  std::uint16_t port_ = 0;
  std::thread thread_;
  std::mutex mutex_;
  std::vector<std::string> bodies_;
};

}  // namespace sluice
