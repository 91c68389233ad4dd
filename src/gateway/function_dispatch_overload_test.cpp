// The gateway's driver on virtual time, with a machine that computes the prompts of each function
// one after another and gives all functions that compute an equal share of itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <vector>

#include "base/rng.h"
#include "gateway/hand_host.h"

namespace sluice::test {
namespace {

using std::chrono::milliseconds;

constexpr std::int64_t kTokens = 1000;  // of a prompt
constexpr double kTokensPerMs = 10;     // a prompt takes 100 ms alone
constexpr Duration kSlo = milliseconds(500);
constexpr double kSustained = 6;    // calls a second, of 10 that the machine can compute
constexpr int kTaught_ms = 20'000;  // not counted: the gateway learns its times
constexpr int kCounted_ms = 100'000;
constexpr int kEnd_ms = kTaught_ms + kCounted_ms;

struct Outcome {
  int calls = 0;
  int admitted = 0;
  int within = 0;  // their SLO
};

// With as many functions as the parameter says.
class Overload : public FunctionLoopsTest, public testing::WithParamInterface<int> {
 protected:
  // Calls at random times, for random functions, each of a tenant of its own.
  Outcome play(double calls_per_second) {
    const int functions = GetParam();
    start({.max_requests = 100'000}, true, functions, kSlo);
    engines_.resize(static_cast<std::size_t>(functions));
    SplitMix64 random(7);
    double next_ms = 0;
    RequestId id = 1;
    for (now_ms_ = 0; now_ms_ < kEnd_ms || !arrivals_.empty(); ++now_ms_) {
      for (; next_ms <= std::min(now_ms_, kEnd_ms);
           next_ms -= 1000 / calls_per_second * std::log1p(-random.uniform())) {
        call(id++, static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(functions))));
      }
      compute();
    }
    return outcome_;
  }

 private:
  struct Engine {
    HandInstance* instance = nullptr;
    double left = kTokens;  // of the oldest prompt
  };

  void call(RequestId id, std::int32_t function) {
    Request made = request(id, function);
    made.prompt.assign(kTokens, 1);
    arrivals_[id] = now_ms_;
    ASSERT_TRUE(loops_->submit(std::move(made)));
    Engine& engine = engines_[static_cast<std::size_t>(function)];
    if (engine.instance == nullptr) engine.instance = host_.last;
    if (now_ms_ >= kTaught_ms) ++outcome_.calls;
    forget_refused();
  }

  void forget_refused() {
    for (const RefusedRequest& refused : take().refused) arrivals_.erase(refused.request);
  }

  // A millisecond.
  void compute() {
    clock_.advance(milliseconds(1));
    int busy = 0;
    const auto computes = [](const Engine& engine) {
      return engine.instance != nullptr && !engine.instance->requests.empty();
    };
    for (const Engine& engine : engines_) busy += computes(engine) ? 1 : 0;
    for (Engine& engine : engines_) {
      if (!computes(engine)) continue;
      engine.left -= kTokensPerMs / busy;
      if (engine.left > 0) continue;
      engine.left += kTokens;
      answer(engine);
    }
  }

  void answer(Engine& engine) {
    const RequestId id = engine.instance->requests.front();
    engine.instance->finish(id, clock_.now());
    forget_refused();
    const int arrival = arrivals_.at(id);
    arrivals_.erase(id);
    if (arrival < kTaught_ms) return;
    ++outcome_.admitted;
    outcome_.within += milliseconds(now_ms_ + 1 - arrival) <= kSlo ? 1 : 0;
  }

  std::vector<Engine> engines_;
  std::map<RequestId, int> arrivals_;  // of what waits or computes, in ms
  Outcome outcome_;
  int now_ms_ = 0;
};

TEST_P(Overload, ARateThatTheMachineSustainsIsHardlyRefused) {
  const Outcome outcome = play(kSustained);
  EXPECT_GE(outcome.within, 0.9 * outcome.calls);
}

TEST_P(Overload, CallsThatAreTakenMeetTheirSlo) {
  const Outcome outcome = play(3 * kSustained);
  EXPECT_GE(outcome.within, 0.9 * outcome.admitted);
  // Answers within the SLO, to those that were asked for at the rate that the machine sustains.
  EXPECT_GE(outcome.within, 0.9 * kSustained * kCounted_ms / 1000);
}

INSTANTIATE_TEST_SUITE_P(Functions, Overload, testing::Values(1, 4));

}  // namespace
}  // namespace sluice::test
