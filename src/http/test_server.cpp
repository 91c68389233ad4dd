#include "http/test_server.h"

#include <chrono>
#include <future>
#include <utility>

#include "base/check.h"

namespace sluice::http {
namespace {

constexpr auto kPatience = std::chrono::seconds(5);

std::string echo(const Request& request) {
  return request.method + " " + request.path + "?" + request.query + "\n" + request.body;
}

}  // namespace

TestServer::TestServer(const HttpLimits& limits, const std::string& host, TlsContext* tls) {
  auto server = HttpServer::listen(loop_, host, 0, limits, *this, clock_, tls);
  CHECK(server.has_value());
  server_ = std::move(*server);
  port_ = server_->port();
  thread_ = std::thread([this] { loop_.run(); });
}

TestServer::~TestServer() {
  on_loop([this] {
    server_->close_all();
    held_.clear();
  });
  loop_.stop();
  thread_.join();
  server_.reset();
}

void TestServer::on_loop(std::function<void()> task) {
  // Shared: the waiter may be gone before set_value() returns.
  const auto done = std::make_shared<std::promise<void>>();
  loop_.post([done, &task] {
    task();
    done->set_value();
  });
  done->get_future().wait();
}

// Shared as every exchange is.
std::shared_ptr<Exchange> TestServer::held(std::size_t n) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kPatience, [&] { return held_.size() > n; });
  return held_.size() > n ? held_[n] : nullptr;
}

void TestServer::release_held() {
  on_loop([this] {
    const std::lock_guard lock(mutex_);
    for (auto& exchange : held_) exchange.reset();
  });
}

std::optional<CloseReason> TestServer::close_reason(std::size_t n) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kPatience, [&] { return reasons_.size() > n && reasons_[n]; });
  return reasons_.size() > n ? reasons_[n] : std::nullopt;
}

HttpServerStats TestServer::stats() {
  HttpServerStats stats;
  on_loop([&] { stats = server_->stats(); });
  return stats;
}

bool TestServer::wait_for_connections(std::int32_t count) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (stats().open_connections != count) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

int TestServer::handled() {
  const std::lock_guard lock(mutex_);
  return handled_;
}

std::optional<Response> TestServer::admit(const Request& head) {
  if (head.path.starts_with("/refused")) return Response{401, "text/plain", {}, "no key"};
  return std::nullopt;
}

// Shared as every exchange is.
void TestServer::handle(std::shared_ptr<Exchange> exchange) {
  {
    const std::lock_guard lock(mutex_);
    ++handled_;
  }
  const Request& request = exchange->request();
  if (request.path == "/hold") return hold(std::move(exchange));
  if (request.path == "/drop") return;
  if (request.path == "/stream") {
    exchange->begin_stream({200, "text/event-stream", {}, ""});
    for (const char* word : {"one ", "two ", "three"}) exchange->write(word);
    return exchange->end_stream();
  }
  if (request.path == "/large") {
    return exchange->respond({200, "text/plain", {}, std::string(8 << 20, 'x')});
  }
  if (request.path == "/none") return exchange->respond({204, "text/plain", {}, ""});
  Response response{200, "text/plain", {{"X-Peer", request.peer}}, echo(request)};
  if (const std::string* id = request.header("x-id")) response.headers.push_back({"X-Id", *id});
  exchange->respond(std::move(response));
}

// Shared as every exchange is.
void TestServer::hold(std::shared_ptr<Exchange> exchange) {
  std::size_t index = 0;
  {
    const std::lock_guard lock(mutex_);
    index = held_.size();
    held_.push_back(exchange);
    reasons_.emplace_back();
  }
  exchange->on_close([this, index](CloseReason reason) {
    const std::lock_guard lock(mutex_);
    CHECK(!reasons_[index]);  // once
    reasons_[index] = reason;
    changed_.notify_all();
  });
  changed_.notify_all();
}

Response TestServer::refusal(const Request& head, int status, std::string message) {
  return {status, "text/plain", {{"X-Peer", head.peer}, {"X-Path", head.path}}, std::move(message)};
}

}  // namespace sluice::http
