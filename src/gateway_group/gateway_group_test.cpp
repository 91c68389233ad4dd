#include "gateway_group/gateway_group.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gateway_group/join_group.h"
#include "tests/support/fake_etcd.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::FakeEtcd;
using test::Wire;
using testing::ElementsAre;
using testing::IsEmpty;

class Gateway final : public GatewayGroup::Listener {
 public:
  GatewayUse use() override { return used; }
  void on_round(const GroupView& now) override {
    view = now;
    ++rounds;
  }
  void on_functions(const std::string& text) override { functions.push_back(text); }
  void on_lost(const std::string& why) override { lost.push_back(why); }
  void on_fenced() override { ++fenced; }

  GatewayUse used{"", "2026-11-25", {}};
  GroupView view;
  int rounds = 0;
  std::vector<std::string> functions;
  std::vector<std::string> lost;
  int fenced = 0;
  Wire wire;
  std::unique_ptr<GatewayGroup> group;
};

class GatewayGroupTest : public testing::Test {
 protected:
  static GroupOptions options(const std::string& name, const std::string& process) {
    return {.prefix = "/g", .name = name, .process = process, .ttl_s = 5};
  }

  Status join(Gateway& gateway, const std::string& name, const std::string& process,
              const std::string& functions = "file") {
    const GroupCalls calls{[this](const EtcdCall& call) { return etcd_.handle(call); },
                           [this](Duration time) { clock_.advance(time); }};
    ASSIGN_OR_RETURN(const GroupStart start,
                     join_group(options(name, process), functions, calls, clock_));
    gateway.functions = {start.functions};
    gateway.group = std::make_unique<GatewayGroup>(options(name, process), start, gateway.wire,
                                                   clock_, gateway);
    return {};
  }
  // Delivers all calls of a gateway, and ticks it.
  void run(Gateway& gateway) {
    gateway.group->tick();
    for (int i = 0; i < 100 && !gateway.wire.calls.empty(); ++i) {
      const Wire::Call call = gateway.wire.calls.front();
      gateway.wire.calls.pop_front();
      call.done(etcd_.handle(call.call));
    }
  }
  void run_for(std::initializer_list<Gateway*> gateways, Duration time) {
    for (Duration past{0}; past < time; past += milliseconds(100)) {
      clock_.advance(milliseconds(100));
      for (Gateway* gateway : gateways) run(*gateway);
    }
  }
  // The gateway cannot reach etcd.
  void run_cut(Gateway& gateway, Duration time) {
    for (Duration past{0}; past < time; past += milliseconds(100)) {
      clock_.advance(milliseconds(100));
      gateway.group->tick();
      while (!gateway.wire.calls.empty()) {
        const Wire::Call call = gateway.wire.calls.front();
        gateway.wire.calls.pop_front();
        call.done(tl::unexpected(unavailable("cut")));
      }
    }
  }
  void publish(const std::string& text) {
    ASSERT_TRUE(etcd_.handle(publish_functions("/g", text, Publish::kAlways)));
  }

  ManualClock clock_;
  FakeEtcd etcd_{clock_};
};

TEST_F(GatewayGroupTest, GatewaysSeeEachOther) {
  Gateway a;
  Gateway b;
  ASSERT_TRUE(join(a, "a", "pa"));
  ASSERT_TRUE(join(b, "b", "pb"));
  a.used.tenants["t"] = {3, 4, 1, 0, 0};
  run_for({&a, &b}, seconds(2));
  EXPECT_THAT(b.view.live, ElementsAre("a", "b"));
  ASSERT_TRUE(b.view.others.contains("a"));
  EXPECT_EQ(b.view.others.at("a").tenants.at("t").requests, 3);
  EXPECT_EQ(b.view.others.at("a").process, "pa");
  EXPECT_FALSE(b.view.others.contains("b"));
  a.used.tenants["t"].requests = 9;
  run_for({&a, &b}, GatewayGroup::kRound * 2);
  EXPECT_EQ(b.view.others.at("a").tenants.at("t").requests, 9) << "at most two rounds late";
  run_for({&a, &b}, seconds(20));  // leases are renewed
  EXPECT_THAT(a.view.live, ElementsAre("a", "b"));
  EXPECT_THAT(a.lost, IsEmpty());
  EXPECT_EQ(a.fenced, 0);
}

TEST_F(GatewayGroupTest, AKilledGatewayLeavesItsUseAndIsReplacedAfterItsLease) {
  Gateway a;
  Gateway b;
  ASSERT_TRUE(join(a, "a", "pa"));
  ASSERT_TRUE(join(b, "b", "pb"));
  a.used.tenants["t"] = {3, 4, 1, 0, 0};
  run_for({&a, &b}, seconds(2));
  run_for({&b}, seconds(6));  // `a` is dead
  EXPECT_THAT(b.view.live, ElementsAre("b"));
  EXPECT_EQ(b.view.others.at("a").tenants.at("t").tokens, 4);
  Gateway next;
  ASSERT_TRUE(join(next, "a", "pa2"));
  run_for({&next, &b}, seconds(2));
  EXPECT_EQ(b.view.others.at("a").process, "pa2");
}

TEST_F(GatewayGroupTest, ANameBelongsToOneProcess) {
  Gateway a;
  ASSERT_TRUE(join(a, "a", "pa"));
  Gateway twin;
  // The first one lives, and renews its lease while the second one waits.
  const GroupCalls calls{[this](const EtcdCall& call) { return etcd_.handle(call); },
                         [&](Duration time) { run_for({&a}, time); }};
  const auto refused = join_group(options("a", "pb"), "file", calls, clock_);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, testing::HasSubstr("another gateway with the name 'a'"));
  // One that has just died is waited for.
  ASSERT_TRUE(join(twin, "a", "pb"));
  run_for({&twin}, seconds(1));
  // The first one was only stopped: it goes on, and must not write.
  a.used.tenants["t"] = {99, 0, 0, 0, 0};
  run_for({&a, &twin}, seconds(2));
  EXPECT_EQ(a.fenced, 1);
  EXPECT_EQ(twin.fenced, 0);
  EXPECT_EQ(etcd_.values()["/g/state/live/a"], "pb");
  EXPECT_THAT(etcd_.values()["/g/state/use/a"], testing::HasSubstr("pb"));
}

TEST_F(GatewayGroupTest, ALateWriteOfAFencedProcessChangesNothing) {
  Gateway a;
  ASSERT_TRUE(join(a, "a", "pa"));
  run_for({&a}, seconds(1));
  a.used.tenants["t"] = {1, 0, 0, 0, 0};
  clock_.advance(seconds(1));
  a.group->tick();
  ASSERT_FALSE(a.wire.calls.empty());
  const Wire::Call late = a.wire.calls.back();
  clock_.advance(seconds(10));
  Gateway next;
  ASSERT_TRUE(join(next, "a", "pb"));
  run_for({&next}, seconds(1));
  EXPECT_TRUE(etcd_.handle(late.call));
  EXPECT_THAT(etcd_.values()["/g/state/use/a"], testing::HasSubstr("pb"));
}

TEST_F(GatewayGroupTest, ALostEtcdIsToldAndTheNameIsTakenAgain) {
  Gateway a;
  ASSERT_TRUE(join(a, "a", "pa"));
  run_for({&a}, seconds(2));
  run_cut(a, seconds(4));
  EXPECT_THAT(a.lost, IsEmpty());
  run_cut(a, seconds(4));
  EXPECT_THAT(a.lost, ElementsAre("cut"));
  EXPECT_TRUE(a.group->is_lost());
  run_cut(a, seconds(60));
  const int rounds = a.rounds;
  run_for({&a}, seconds(3));
  EXPECT_GT(a.rounds, rounds);
  EXPECT_FALSE(a.group->is_lost());
  EXPECT_EQ(a.fenced, 0);
  EXPECT_EQ(etcd_.values()["/g/state/live/a"], "pa");
  EXPECT_EQ(a.lost.size(), 1U);
}

TEST_F(GatewayGroupTest, AnEtcdThatForgetsEverythingIsFilledAgain) {
  Gateway a;
  ASSERT_TRUE(join(a, "a", "pa"));
  run_for({&a}, seconds(2));
  etcd_.forget();
  run_for({&a}, seconds(12));
  EXPECT_EQ(etcd_.values()["/g/state/live/a"], "pa");
  EXPECT_FALSE(a.group->is_lost());
}

TEST_F(GatewayGroupTest, AllFollowThePublishedFile) {
  Gateway a;
  Gateway b;
  ASSERT_TRUE(join(a, "a", "pa", "first"));
  ASSERT_TRUE(join(b, "b", "pb", "another"));
  EXPECT_THAT(b.functions, ElementsAre("first")) << "the group's file counts, not the own one";
  run_for({&a, &b}, seconds(2));
  publish("second");
  run_for({&a, &b}, seconds(2));
  EXPECT_THAT(a.functions, ElementsAre("first", "second"));
  EXPECT_THAT(b.functions, ElementsAre("first", "second"));
  publish("third");
  publish("fourth");
  run_for({&a, &b}, seconds(2));
  EXPECT_THAT(a.functions, ElementsAre("first", "second", "fourth"));
  a.group->read_functions_again();
  run_for({&a, &b}, seconds(2));
  EXPECT_EQ(a.functions.size(), 4U);
  EXPECT_EQ(b.functions.size(), 3U);
}

TEST_F(GatewayGroupTest, TextsOfOthersThatAreBrokenDoNotCount) {
  Gateway a;
  ASSERT_TRUE(join(a, "a", "pa"));
  EtcdTransaction bad;
  bad.changes = {{"/g/state/use/b", "{"}};
  ASSERT_TRUE(etcd_.handle(etcd_transaction(bad)));
  run_for({&a}, seconds(2));
  EXPECT_GT(a.rounds, 1);
  EXPECT_THAT(a.view.others, IsEmpty());
}

TEST_F(GatewayGroupTest, AllKnowWhenEachWroteItsUsage) {
  Gateway a;
  ASSERT_TRUE(join(a, "a", "pa"));
  EtcdTransaction written;
  written.changes = {{group_usage_key("/g", "b"), "1764000000"}, {group_usage_key("/g", "c"), "x"}};
  ASSERT_TRUE(etcd_.handle(etcd_transaction(written)));
  run_for({&a}, seconds(2));
  EXPECT_THAT(a.view.usage_written, ElementsAre(testing::Pair("b", 1764000000)));
}

TEST_F(GatewayGroupTest, ResigningFreesTheName) {
  Gateway a;
  ASSERT_TRUE(join(a, "a", "pa"));
  run_for({&a}, seconds(2));
  const auto resign = a.group->resign();
  ASSERT_TRUE(resign);
  ASSERT_TRUE(etcd_.handle(*resign));
  EXPECT_FALSE(etcd_.values().contains("/g/state/live/a"));
  Gateway next;
  const TimePoint before = clock_.now();
  ASSERT_TRUE(join(next, "a", "pb"));
  EXPECT_EQ(clock_.now(), before) << "without a wait";
}

}  // namespace
}  // namespace sluice
