// Turns of real function processes: shares of tenants, and functions that do not keep to them.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/function_fixture.h"

namespace sluice {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using std::chrono_literals::operator""us;
using test::FunctionClient;
using test::greedy_request;

class FunctionTurnsTest : public test::FunctionFixture {
 protected:
  std::map<std::string, Duration> usage() const {
    std::map<std::string, Duration> usage;
    for (const auto& [tenant, time] : turns_->totals().usage) usage[tenant] = time;
    return usage;
  }

  ProcessEngineLoop::Options many_requests() const {
    ProcessEngineLoop::Options many = options();
    many.start.max_requests = 128;
    return many;
  }

  // Keeps `outstanding` requests in the client's queue.
  struct Load {
    FunctionClient* client;
    std::int32_t outstanding;
    RequestId next = 1;
    void refill() {
      while (client->loop().unfinished_requests() < outstanding) {
        ASSERT_TRUE(client->loop().submit(greedy_request(next, {1, 2, 3, 4}, 40)));
        ++next;
      }
    }
  };
};

TEST_F(FunctionTurnsTest, TenTimesTheRequestsGetNoLargerShare) {
  FunctionClient a(backbone_, *turns_, many_requests());
  FunctionClient b(backbone_, *turns_, many_requests());
  a.loop().set_tenant("a");
  b.loop().set_tenant("b");
  ASSERT_TRUE(a.wait_until_ready() && b.wait_until_ready());
  Load loads[] = {{&a, 100}, {&b, 10}};
  const auto end = std::chrono::steady_clock::now() + 2s;
  while (std::chrono::steady_clock::now() < end) {
    for (Load& load : loads) {
      load.refill();
      OutputBatch batch;
      load.client->loop().take(batch);
    }
    std::this_thread::sleep_for(200us);
  }
  auto times = usage();
  EXPECT_GT(to_seconds(times["a"] + times["b"]), kSanitized ? 0.5 : 1.0);
  EXPECT_GE(to_seconds(times["b"]) / to_seconds(times["a"] + times["b"]), 0.45);
  EXPECT_EQ(turns_->totals().suspensions, 0);
}

TEST_F(FunctionTurnsTest, OnlyOneComputesAtATimeAndAllAnswersAreThoseOfAnEngineAlone) {
  std::vector<std::unique_ptr<FunctionClient>> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(std::make_unique<FunctionClient>(backbone_, *turns_, many_requests()));
    clients.back()->loop().set_tenant(std::to_string(i));
  }
  for (auto& client : clients) ASSERT_TRUE(client->wait_until_ready());
  const auto begin = std::chrono::steady_clock::now();
  for (auto& client : clients) {
    for (RequestId id = 1; id <= 8; ++id) {
      ASSERT_TRUE(
          client->loop().submit(greedy_request(id, {static_cast<TokenId>(id), 3, 5, 7}, 40)));
    }
  }
  for (RequestId id = 1; id <= 8; ++id) {
    const auto tokens = expected(greedy_request(id, {static_cast<TokenId>(id), 3, 5, 7}, 40));
    for (auto& client : clients) EXPECT_EQ(client->wait_for_answer(id).tokens, tokens);
  }
  Duration sum{0};
  for (const auto& [tenant, time] : usage()) sum += time;
  EXPECT_LE(sum, std::chrono::steady_clock::now() - begin);
}

// Decodes in `sibling` beside a function of greedy_function.cpp. Returns the time that the greedy
// one disturbed the sibling: the sum of all gaps beyond `usual`.
class GreedyFunctionTest : public FunctionTurnsTest {
 protected:
  Duration disturbance(const char* mode, Duration usual, Duration length) {
    FunctionClient sibling(backbone_, *turns_, many_requests());
    ProcessEngineLoop::Options options = many_requests();
    options.command = {SLUICE_GREEDY_FUNCTION, mode};
    options.start.threads = 2;
    FunctionClient greedy(backbone_, *turns_, options);
    sibling.loop().set_tenant("sibling");
    greedy.loop().set_tenant("greedy");
    EXPECT_TRUE(sibling.wait_until_ready() && greedy.wait_until_ready());
    EXPECT_FALSE(greedy.loop().failure());
    EXPECT_TRUE(greedy.loop().submit(greedy_request(1, {1, 2}, 3)));
    Load load{&sibling, 4};
    Duration sum{0};
    auto last = std::chrono::steady_clock::now();
    const auto end = last + length;
    while (last < end) {
      load.refill();
      OutputBatch batch;
      sibling.loop().take(batch);
      std::this_thread::sleep_for(1ms);
      if (batch.events.empty()) continue;
      const auto now = std::chrono::steady_clock::now();
      sum += std::max<Duration>(now - last - usual, Duration(0));
      last = now;
    }
    // On a machine that is busy otherwise the greedy one's CPU time tells later.
    while (turns_->totals().suspensions == 0 && std::chrono::steady_clock::now() < end + 30s) {
      load.refill();
      OutputBatch batch;
      sibling.loop().take(batch);
      std::this_thread::sleep_for(1ms);
    }
    return sum;
  }
};

TEST_F(GreedyFunctionTest, ATurnThatIsNeverReturnedDisturbsSiblingsForLessThanASecond) {
  EXPECT_LE(disturbance("keeps", 50ms, 4s), 900ms);
  EXPECT_EQ(turns_->totals().suspensions, 1);
}

TEST_F(GreedyFunctionTest, ComputingWithoutATurnDisturbsSiblingsForLessThanASecond) {
  EXPECT_LE(disturbance("ignores", 50ms, 3s), 900ms);
  EXPECT_GE(turns_->totals().suspensions, 1);
}

}  // namespace
}  // namespace sluice
