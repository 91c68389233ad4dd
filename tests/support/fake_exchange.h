// FakeExchange: an Exchange without a socket, for tests. It keeps the handler's answers and lets
// the test act as the client. Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "http/exchange.h"

namespace sluice::test {

class FakeExchange final : public http::Exchange {
 public:
  explicit FakeExchange(http::Request request) : request_(std::move(request)) {}

  const http::Request& request() const override { return request_; }
  std::string take_body() override { return std::exchange(request_.body, {}); }
  void drop_body() override { request_.body.clear(); }
  void add_header(http::Header header) override { added.push_back(std::move(header)); }
  void respond(http::Response response) override {
    CHECK(!head && !ended);
    head = std::move(response);
    body = head->body;
    ended = true;
  }
  void begin_stream(http::Response response) override {
    CHECK(!head);
    head = std::move(response);
    streamed = true;
  }
  void write(std::string_view bytes) override {
    CHECK(streamed && !ended);
    if (!closed_) body += bytes;
    ++writes;
  }
  void end_stream() override {
    CHECK(streamed && !ended);
    ended = true;
  }
  std::size_t unsent_bytes() const override { return reads ? 0 : body.size(); }
  std::int64_t bytes_sent() const override { return static_cast<std::int64_t>(body.size()); }
  void on_close(std::function<void(http::CloseReason)> task) override { task_ = std::move(task); }
  bool closed() const override { return closed_; }
  void abort() override {
    aborted = true;
    closed_ = true;
  }

  // The client's side.
  void leave(http::CloseReason reason) {
    closed_ = true;
    if (auto task = std::exchange(task_, nullptr)) task(reason);
  }

  std::optional<http::Response> head;
  std::vector<http::Header> added;  // by add_header()
  std::string body;
  bool streamed = false;
  bool ended = false;
  bool aborted = false;
  bool reads = true;
  int writes = 0;

 private:
  http::Request request_;
  std::function<void(http::CloseReason)> task_;
  bool closed_ = false;
};

}  // namespace sluice::test
