#include "etcd/etcd_leader.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/rng.h"
#include "tests/support/fake_etcd.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using test::FakeEtcd;
using test::Wire;

class Process final : public EtcdLeader::Listener {
 public:
  Process(const Clock& clock, const std::string& name)
      : leader({.prefix = "/p", .name = name, .ttl_s = 3}, wire, clock, *this) {}
  void on_lead(std::int64_t at, std::vector<EtcdPair> pairs) override {
    epoch = at;
    state.clear();
    for (const EtcdPair& pair : pairs) state[pair.key] = pair.value;
  }
  void on_lost(const std::string& why) override {
    ++losses;
    cause = why;
  }

  Wire wire;
  EtcdLeader leader;
  std::map<std::string, std::string> state;
  std::int64_t epoch = 0;
  int losses = 0;
  std::string cause;
};

class EtcdLeaderTest : public testing::Test {
 protected:
  // Delivers all calls of a process, and ticks it.
  void run(Process& process) {
    process.leader.tick();
    for (int i = 0; i < 100 && !process.wire.calls.empty(); ++i) {
      const Wire::Call call = process.wire.calls.front();
      process.wire.calls.pop_front();
      call.done(etcd_.handle(call.call));
    }
  }
  void run_for(Process& process, int ms) {
    for (int i = 0; i < ms; i += 100) {
      clock_.advance(milliseconds(100));
      run(process);
    }
  }

  ManualClock clock_;
  FakeEtcd etcd_{clock_};
};

TEST_F(EtcdLeaderTest, LeadsWritesAndHandsOver) {
  Process a(clock_, "a");
  run_for(a, 500);
  ASSERT_TRUE(a.leader.leads());
  EXPECT_TRUE(a.state.empty());
  int stored = 0;
  for (int i = 0; i < 1234; ++i) {  // more than a transaction and a page have
    a.leader.write({{fmt::format("k{:04}", i), std::to_string(i)}}, [&] { ++stored; });
  }
  a.leader.write({{"k0007", std::nullopt}}, [&] { ++stored; });
  EXPECT_FALSE(a.leader.idle());
  run_for(a, 5000);
  EXPECT_TRUE(a.leader.leads());  // its lease is renewed
  EXPECT_EQ(stored, 1235);
  EXPECT_TRUE(a.leader.idle());
  Process b(clock_, "b");
  for (int i = 0; i < 50; ++i) {
    run_for(a, 100);
    run(b);
  }
  EXPECT_FALSE(b.leader.leads());
  const auto resign = a.leader.resign();
  ASSERT_TRUE(resign);
  EXPECT_FALSE(a.leader.leads());
  EXPECT_TRUE(etcd_.handle(*resign));
  run_for(b, 500);
  ASSERT_TRUE(b.leader.leads());
  EXPECT_GT(b.epoch, a.epoch);
  EXPECT_EQ(b.state.size(), 1233U);
  EXPECT_FALSE(b.state.contains("k0007"));
  EXPECT_EQ(b.state["k1233"], "1233");
}

TEST_F(EtcdLeaderTest, RepeatsAWriteWithoutAnAnswer) {
  Process a(clock_, "a");
  run_for(a, 500);
  int stored = 0;
  a.leader.write({{"x", "1"}}, [&] { ++stored; });
  // It arrives, its answer is lost, and more is written meanwhile.
  EXPECT_TRUE(etcd_.handle(a.wire.calls.back().call));
  const Wire::Call late = a.wire.calls.back();
  a.wire.calls.pop_back();
  late.done(tl::unexpected(unavailable("cut")));
  a.leader.write({{"x", "2"}, {"y", "1"}}, [&] { ++stored; });
  EXPECT_EQ(stored, 0);
  run_for(a, 500);
  EXPECT_EQ(stored, 2);
  EXPECT_EQ(etcd_.values()["/p/state/x"], "2");
  EXPECT_EQ(etcd_.values()["/p/state/y"], "1");
  EXPECT_TRUE(etcd_.handle(late.call));  // a late copy
  EXPECT_EQ(etcd_.values()["/p/state/x"], "2");
}

// Many heartbeats come during each write: none of them makes one more.
TEST_F(EtcdLeaderTest, ALookWaitsForTheWritesBeforeItAndMakesNone) {
  Process a(clock_, "a");
  run_for(a, 500);
  std::vector<int> order;
  a.leader.write({{"x", "1"}}, [&] { order.push_back(1); });
  a.leader.write({}, [&] { order.push_back(2); });
  a.leader.write({{"x", "2"}}, [&] { order.push_back(3); });
  a.leader.write({}, [&] { order.push_back(4); });
  const auto answer_next = [&] {
    ASSERT_EQ(a.wire.calls.size(), 1U);
    const Wire::Call call = a.wire.calls.front();
    a.wire.calls.pop_front();
    call.done(etcd_.handle(call.call));
  };
  EXPECT_TRUE(order.empty());
  answer_next();
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
  answer_next();
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3, 4}));
  EXPECT_TRUE(a.wire.calls.empty());
  EXPECT_TRUE(a.leader.idle());
}

TEST_F(EtcdLeaderTest, ALeaderThatIsCutOffIsFenced) {
  Process a(clock_, "a");
  Process b(clock_, "b");
  run_for(a, 500);
  int stored = 0;
  a.leader.write({{"x", "old"}}, [&] { ++stored; });
  const Wire::Call late = a.wire.calls.back();
  a.wire.calls.clear();
  clock_.advance(milliseconds(2999));
  EXPECT_FALSE(b.leader.leads() && a.leader.leads());
  clock_.advance(milliseconds(500));
  EXPECT_FALSE(a.leader.leads());
  run_for(b, 500);
  ASSERT_TRUE(b.leader.leads());
  EXPECT_TRUE(etcd_.handle(late.call));
  EXPECT_FALSE(etcd_.values().contains("/p/state/x"));
  a.leader.tick();
  EXPECT_EQ(a.losses, 1);
  EXPECT_EQ(stored, 0);
}

// A lease that was given up must not be renewed: the leader key that is bound to it would stay, and
// no process could lead.
TEST_F(EtcdLeaderTest, ALateRenewalDoesNotBringAGivenUpLeaseBack) {
  Process a(clock_, "a");
  run_for(a, 500);
  ASSERT_TRUE(a.leader.leads());
  a.wire.calls.clear();
  for (int i = 0; i < 12 && a.wire.calls.empty(); ++i) {
    clock_.advance(milliseconds(100));
    a.leader.tick();
  }
  ASSERT_EQ(a.wire.calls.size(), 1U);
  const Wire::Call renewal = a.wire.calls.front();
  a.wire.calls.clear();
  ASSERT_EQ(renewal.call.path, "/v3/lease/keepalive");
  const auto answer = etcd_.handle(renewal.call);
  clock_.advance(milliseconds(2500));
  a.leader.tick();
  EXPECT_EQ(a.losses, 1);
  renewal.done(answer);
  run_for(a, 6000);
  EXPECT_TRUE(a.leader.leads());
}

// As etcd does when its space is used up: leases go on, and nothing is stored.
TEST_F(EtcdLeaderTest, ALeaderWhoseWritesAreRefusedStops) {
  Process a(clock_, "a");
  run_for(a, 500);
  int stored = 0;
  a.leader.write({{"x", "1"}}, [&] { ++stored; });
  int most = 0;  // milliseconds
  for (; a.losses == 0 && most < 60'000; most += 100) {
    clock_.advance(milliseconds(100));
    a.leader.tick();
    while (!a.wire.calls.empty()) {
      const Wire::Call call = a.wire.calls.front();
      a.wire.calls.pop_front();
      Result<std::string> answer =
          tl::unexpected(unavailable("etcdserver: mvcc: database space exceeded"));
      if (call.call.path != "/v3/kv/txn") answer = etcd_.handle(call.call);
      call.done(std::move(answer));
    }
  }
  EXPECT_EQ(a.losses, 1);
  EXPECT_LT(most, 16'000);
  EXPECT_EQ(stored, 0);
  EXPECT_THAT(a.cause, testing::HasSubstr("space exceeded"));
  run_for(a, 6000);  // it has space again
  EXPECT_TRUE(a.leader.leads());
}

TEST_F(EtcdLeaderTest, StoresAndReadsLargeStatesInParts) {
  Process a(clock_, "a");
  run_for(a, 500);
  int stored = 0;
  std::vector<EtcdChange> changes;
  for (int i = 0; i < 60; ++i) {
    changes.push_back({fmt::format("k{:02}", i), std::string(150'000, static_cast<char>('A' + i))});
  }
  a.leader.write({{"one", std::string(1'200'000, 'x')}}, [&] { ++stored; });
  a.leader.write(changes, [&] { ++stored; });
  run_for(a, 500);
  EXPECT_EQ(stored, 2);
  EXPECT_TRUE(a.leader.idle());
  EXPECT_TRUE(etcd_.handle(*a.leader.resign()));
  Process b(clock_, "b");
  run_for(b, 500);
  ASSERT_TRUE(b.leader.leads()) << b.leader.cause();
  EXPECT_EQ(b.state.size(), 61U);
  EXPECT_EQ(b.state["one"].size(), 1'200'000U);
  for (const EtcdChange& change : changes) EXPECT_EQ(b.state[change.key], *change.value);
}

// Two processes and an etcd over a bad network: calls that are lost, answered late or repeated. A
// write that was confirmed is in the state of each later leader, and never two lead.
TEST_F(EtcdLeaderTest, KeepsItsPromisesUnderRandomFaults) {
  int leads = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SplitMix64 rng(seed);
    FakeEtcd etcd(clock_);
    std::vector<std::unique_ptr<Process>> processes;
    std::vector<Wire::Call> copies;
    std::vector<int> cut = {0, 0};
    processes.push_back(std::make_unique<Process>(clock_, "a"));
    processes.push_back(std::make_unique<Process>(clock_, "b"));
    std::int64_t confirmed = 0;
    std::int64_t epoch = 0;
    for (int step = 0; step < 1500; ++step) {
      clock_.advance(milliseconds(50));
      int leading = 0;
      for (std::size_t i = 0; i < 2; ++i) {
        Process& process = *processes[i];
        process.leader.tick();
        if (rng.below(150) == 0) cut[i] = static_cast<int>(rng.below(150));
        if (cut[i] > 0) --cut[i];
        while (!process.wire.calls.empty() && rng.below(3) != 0) {
          const Wire::Call call = process.wire.calls.front();
          process.wire.calls.pop_front();
          if (rng.below(10) == 0) copies.push_back(call);
          const bool arrives = cut[i] == 0 && rng.below(20) != 0;
          Result<std::string> answer = tl::unexpected(unavailable("lost"));
          if (arrives) answer = etcd.handle(call.call);
          if (rng.below(20) == 0) answer = tl::unexpected(unavailable("lost"));
          call.done(std::move(answer));
        }
        if (!process.leader.leads()) continue;
        ++leading;
        if (process.epoch > epoch) {
          epoch = process.epoch;
          ++leads;
          const auto found = process.state.find("n");
          const std::int64_t value = found == process.state.end() ? 0 : std::stoll(found->second);
          ASSERT_GE(value, confirmed) << "seed " << seed << " step " << step;
          process.state["n"] = std::to_string(value);
        }
        if (rng.below(4) == 0) {
          const std::int64_t next = std::stoll(process.state["n"]) + 1;
          process.state["n"] = std::to_string(next);
          process.leader.write({{"n", std::to_string(next)}},
                               [&confirmed, next] { confirmed = std::max(confirmed, next); });
        }
      }
      ASSERT_LE(leading, 1) << "seed " << seed << " step " << step;
      if (!copies.empty() && rng.below(20) == 0) {
        EXPECT_TRUE(etcd.handle(copies[rng.below(copies.size())].call));
      }
    }
    ASSERT_GT(confirmed, 20) << "seed " << seed;
  }
  EXPECT_GT(leads, 40);
}

}  // namespace
}  // namespace sluice
