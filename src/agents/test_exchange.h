// For tests of agents: a token, and an exchange without a connection.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agents/agent_frames.h"
#include "http/exchange.h"
#include "membership/bearer_token.h"

namespace sluice::test {

inline constexpr const char* kToken = "0123456789abcdef0123";

// An exchange whose answer stays here.
class HeldExchange final : public http::Exchange {
 public:
  explicit HeldExchange(http::Request request) : request_(std::move(request)) {}
  const http::Request& request() const override { return request_; }
  std::string take_body() override { return std::move(request_.body); }
  void drop_body() override {}
  void add_header(http::Header) override {}
  void respond(http::Response response) override { answer = std::move(response); }
  void begin_stream(http::Response head) override { answer = std::move(head); }
  void write(std::string_view bytes) override { written += bytes; }
  void end_stream() override {}
  std::size_t unsent_bytes() const override { return 0; }
  std::int64_t bytes_sent() const override { return 0; }
  void on_close(std::function<void(http::CloseReason)> task) override { close = std::move(task); }
  bool closed() const override { return false; }
  void abort() override { aborted = true; }

  // The commands since the last call.
  std::vector<AgentCommand> commands() {
    std::vector<AgentCommand> read;
    EXPECT_TRUE(reader_.put(std::exchange(written, {}), [&](AgentCommand command) -> Status {
      read.push_back(std::move(command));
      return {};
    }));
    return read;
  }

  std::optional<http::Response> answer;
  std::string written;
  std::function<void(http::CloseReason)> close;
  bool aborted = false;

 private:
  http::Request request_;
  AgentCommandReader reader_;
};

inline BearerToken agent_token() {
  const std::string path =
      testing::TempDir() + "/agent_token_" + std::to_string(static_cast<int>(getpid()));
  std::ofstream(path) << kToken;
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return *BearerToken::load(path);
}

}  // namespace sluice::test
