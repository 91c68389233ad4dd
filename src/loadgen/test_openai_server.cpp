#include "loadgen/test_openai_server.h"

#include <fmt/format.h>

#include <future>
#include <utility>

#include "base/check.h"

namespace sluice {

TestOpenAiServer::TestOpenAiServer() {
  auto server = http::HttpServer::listen(loop_, "127.0.0.1", 0, {}, *this, clock_);
  CHECK(server.has_value());
  server_ = std::move(*server);
  port_ = server_->port();
  thread_ = std::thread([this] { loop_.run(); });
}

TestOpenAiServer::~TestOpenAiServer() {
  on_loop([this] { die(); });
  loop_.stop();
  thread_.join();
}

void TestOpenAiServer::die() {
  if (server_ == nullptr) return;
  server_->drain();
  server_->close_all();
}

http::HttpClientOptions TestOpenAiServer::client_options() const {
  http::HttpClientOptions options;
  options.url = *http::parse_base_url(fmt::format("http://127.0.0.1:{}", port_));
  return options;
}

void TestOpenAiServer::on_loop(const std::function<void()>& task) {
  // Shared: the waiter may be gone before set_value() returns.
  const auto done = std::make_shared<std::promise<void>>();
  loop_.post([done, &task] {
    task();
    done->set_value();
  });
  done->get_future().wait();
}

std::vector<std::string> TestOpenAiServer::bodies() {
  const std::lock_guard lock(mutex_);
  return bodies_;
}

http::HttpServerStats TestOpenAiServer::stats() {
  http::HttpServerStats stats;
  on_loop([&] { stats = server_->stats(); });
  return stats;
}

void TestOpenAiServer::begin_stream(http::Exchange& exchange) {
  exchange.begin_stream({200, "text/event-stream; charset=utf-8", {}, ""});
}

void TestOpenAiServer::write_token(http::Exchange& exchange, bool last) {
  exchange.write(fmt::format("data: {{\"choices\":[{{\"text\":\" x\",\"finish_reason\":{}}}]}}\n\n",
                             last ? "\"length\"" : "null"));
}

void TestOpenAiServer::stream_tokens(http::Exchange& exchange, int count, int tokens) {
  begin_stream(exchange);
  for (int i = 1; i <= count; ++i) write_token(exchange, i == count);
  exchange.write(
      fmt::format("data: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":5,\"completion_tokens\":{}"
                  "}}}}\n\ndata: [DONE]\n\n",
                  tokens));
  exchange.end_stream();
}

// Shared as every exchange is.
void TestOpenAiServer::handle(std::shared_ptr<http::Exchange> exchange) {
  const std::string& path = exchange->request().path;
  if ((path == "/ready" || path == "/v1/models") && loading > 0) {
    --loading;
    return exchange->respond({503, "text/plain", {}, "loading"});
  }
  if (path == "/ready") return exchange->respond(ready);
  if (path == "/v1/models") return exchange->respond(models);
  if (path == "/tokenize") return exchange->respond(tokenize);
  if (path == "/metrics") return exchange->respond(metrics);
  int number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = static_cast<int>(bodies_.size());
    bodies_.push_back(exchange->request().body);
  }
  if (answer) return answer(std::move(exchange), number);
  stream_tokens(*exchange, 4, 4);
}

http::Response TestOpenAiServer::refusal(const http::Request&, int status, std::string message) {
  return {status, "text/plain", {}, std::move(message)};
}

}  // namespace sluice
