// For tests of agents: a token, and the commands of a stream.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "agents/agent_frames.h"
#include "membership/bearer_token.h"
#include "tests/support/fake_exchange.h"

namespace sluice::test {

inline constexpr const char* kToken = "0123456789abcdef0123";

// The commands that the stream has got since the last call.
inline std::vector<AgentCommand> take_commands(FakeExchange& stream) {
  std::vector<AgentCommand> read;
  AgentCommandReader reader;
  EXPECT_TRUE(reader.put(std::exchange(stream.body, {}), [&](AgentCommand command) -> Status {
    read.push_back(std::move(command));
    return {};
  }));
  return read;
}

inline BearerToken agent_token() {
  const std::string path =
      testing::TempDir() + "/agent_token_" + std::to_string(static_cast<int>(getpid()));
  std::ofstream(path) << kToken;
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  BearerToken token = *BearerToken::load(path);
  std::filesystem::remove(path);
  return token;
}

// AgentHub::Aside without another thread.
inline void at_once(const std::function<void()>& work, const std::function<void()>& done) {
  work();
  done();
}

}  // namespace sluice::test
