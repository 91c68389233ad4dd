// TestServer: an HttpServer on a free port with its loop on a thread of its own, and a Handler
// whose action depends on the path. `/hold` keeps the exchange for the test, which answers it from
// the loop.
// Threads: the test's own; what it does with exchanges goes through on_loop().
#pragma once

#include <condition_variable>
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
#include "http/exchange.h"
#include "http/http_server.h"

namespace sluice::http {

class TestServer final : private Handler {
 public:
  // `tls`: it outlives the server; null: plain HTTP.
  explicit TestServer(const HttpLimits& limits = {}, const std::string& host = "127.0.0.1",
                      TlsContext* tls = nullptr);
  ~TestServer() override;
  TestServer(const TestServer&) = delete;
  TestServer& operator=(const TestServer&) = delete;

  std::uint16_t port() const { return port_; }
  HttpServer& server() { return *server_; }
  EventLoop& loop() { return loop_; }
  // Runs `task` on the loop's thread and waits until it is done.
  void on_loop(std::function<void()> task);
  // The n-th exchange of /hold; waits until it has come. nullptr: it does not come in time.
  std::shared_ptr<Exchange> held(std::size_t n = 0);  // shared as every exchange is
  // Lets go of all held exchanges.
  void release_held();
  // Why the n-th held exchange was closed; waits for it. Nothing: it is not, in time.
  std::optional<CloseReason> close_reason(std::size_t n = 0);
  HttpServerStats stats();
  // Waits until `count` connections are open; false: not in time.
  bool wait_for_connections(std::int32_t count);
  // Requests that reached handle().
  int handled();

 private:
  std::optional<Response> admit(const Request& head) override;
  void handle(std::shared_ptr<Exchange> exchange) override;  // shared as every exchange is
  Response refusal(const Request& head, int status, std::string message) override;
  // Shared as every exchange is.
  void hold(std::shared_ptr<Exchange> exchange);

  SystemClock clock_;
  EventLoop loop_;
  std::unique_ptr<HttpServer> server_;
  std::uint16_t port_ = 0;
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<Exchange>> held_;  // shared as every exchange is
  std::vector<std::optional<CloseReason>> reasons_;
  int handled_ = 0;
};

}  // namespace sluice::http
