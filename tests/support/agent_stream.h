// For tests of agents: a token, and the commands of a stream.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <utility>
#include <vector>

#include "agents/agent_frames.h"
#include "membership/bearer_token.h"
#include "tests/support/fake_exchange.h"
#include "tests/support/load_token.h"

namespace sluice::test {

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

inline BearerToken agent_token() { return *load_token(kToken); }

// AgentHub::Aside without another thread.
inline void at_once(const std::function<void()>& work, const std::function<void()>& done) {
  work();
  done();
}

}  // namespace sluice::test
