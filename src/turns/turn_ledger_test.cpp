#include "turns/turn_ledger.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "base/rng.h"

namespace sluice {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using FunctionId = TurnLedger::FunctionId;

// Gives `id` a turn of `time`, after which it waits again.
void compute(TurnLedger& ledger, FunctionId id, Duration time) {
  ledger.begin(id);
  ledger.charge(id, time);
  ledger.end(id);
  ledger.ask(id);
}

TEST(TurnLedgerTest, TheTenantWithTheLeastTurnTimeIsNext) {
  TurnLedger ledger;
  EXPECT_FALSE(ledger.next());
  const FunctionId a = ledger.add("a");
  const FunctionId b = ledger.add("b");
  ledger.ask(a);
  ledger.ask(b);
  EXPECT_EQ(ledger.next(), a);
  compute(ledger, a, 10ms);
  EXPECT_EQ(ledger.next(), b);
  compute(ledger, b, 4ms);
  EXPECT_EQ(ledger.next(), b);
  compute(ledger, b, 7ms);
  EXPECT_EQ(ledger.next(), a);
  ledger.withdraw(a);
  EXPECT_EQ(ledger.next(), b);
  ledger.check_integrity();
}

TEST(TurnLedgerTest, FunctionsOfOneTenantTakeTurnsInTheOrderOfTheirAsking) {
  TurnLedger ledger;
  std::vector<FunctionId> ids;
  for (int i = 0; i < 3; ++i) ids.push_back(ledger.add("a"));
  for (const FunctionId id : ids) ledger.ask(id);
  for (int i = 0; i < 9; ++i) {
    const FunctionId expected = ids[static_cast<std::size_t>(i) % 3];
    ASSERT_EQ(ledger.next(), expected);
    compute(ledger, expected, Duration((i % 4) * 1'000'000));
  }
}

TEST(TurnLedgerTest, TheFunctionThatIsDueFirstIsNextAmongThoseOfItsTenant) {
  TurnLedger ledger;
  const FunctionId late = ledger.add("a");
  const FunctionId first = ledger.add("a");
  const FunctionId second = ledger.add("a");
  const FunctionId other = ledger.add("b");
  for (const FunctionId id : {late, first, second, other}) ledger.ask(id);
  ledger.set_due(late, {30ms});
  ledger.set_due(first, {10ms});
  ledger.set_due(second, {10ms});
  ledger.set_due(other, {1ms});
  EXPECT_EQ(ledger.next(), first);  // also before `other`: its tenant's function asked first
  compute(ledger, first, 2ms);
  EXPECT_EQ(ledger.next(), other);  // its tenant has less turn time
  ledger.withdraw(other);
  EXPECT_EQ(ledger.next(), second);  // it has waited longer than `first`
  ledger.weaken(second);
  EXPECT_EQ(ledger.next(), first);
  ledger.withdraw(first);
  EXPECT_EQ(ledger.next(), late);
  ledger.withdraw(late);
  EXPECT_EQ(ledger.next(), second);
  ledger.check_integrity();
}

TEST(TurnLedgerTest, WithoutCreditIdleTimeEarnsNothing) {
  TurnLedger ledger;
  const FunctionId a = ledger.add("a");
  const FunctionId b = ledger.add("b");
  ledger.ask(a);
  compute(ledger, a, 100s);
  ledger.ask(b);
  EXPECT_EQ(ledger.served("b"), Duration(100s));
  // Neither does the time for which no tenant was active.
  ledger.withdraw(a);
  ledger.withdraw(b);
  const FunctionId c = ledger.add("c");
  ledger.ask(c);
  EXPECT_EQ(ledger.served("c"), Duration(100s));
  ledger.check_integrity();
}

constexpr TurnLedger::Options kCredit{.credit = 250ms, .patience = 50ms};

TEST(TurnLedgerTest, ATenantThatLeftItsShareUnusedGoesAheadByItsCreditAtMost) {
  TurnLedger ledger(kCredit);
  const FunctionId a = ledger.add("a");
  const FunctionId b = ledger.add("b");
  ledger.ask(a);
  compute(ledger, a, 100ms);
  ledger.ask(b);
  EXPECT_EQ(ledger.served("b"), Duration(0)) << "what the others have had, if that is less";
  ledger.withdraw(b);
  compute(ledger, a, 100s);
  ledger.ask(b);
  EXPECT_EQ(ledger.served("b"), Duration(100s + 100ms - 250ms));
  ledger.check_integrity();
  ASSERT_EQ(ledger.next(), b);
  ledger.begin(b);
  // No time has passed since `a` asked.
  EXPECT_EQ(ledger.lead(b), Duration(50ms));
  ledger.charge(b, 249ms);
  EXPECT_EQ(ledger.lead(b), Duration(1ms));
  ledger.charge(b, 2ms);
  EXPECT_EQ(ledger.lead(b), Duration(0));
  ledger.end(b);
  ledger.ask(b);
  EXPECT_EQ(ledger.next(), a);
  // Idle time of its own earns it nothing that it has used.
  ledger.withdraw(b);
  ledger.ask(b);
  EXPECT_EQ(ledger.next(), a);
}

TEST(TurnLedgerTest, ATenantThatHasWaitedForItsPatienceGoesBeforeOneThatUsesItsCredit) {
  TurnLedger ledger(kCredit);
  TimePoint now{1s};
  ledger.set_time(now);
  const FunctionId a = ledger.add("a");
  const FunctionId b = ledger.add("b");
  ledger.ask(a);
  compute(ledger, a, 100s);
  ledger.ask(b);
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(ledger.next(), b) << i;
    ledger.begin(b);
    EXPECT_EQ(ledger.lead(b), Duration(50ms - i * 10ms));
    ledger.set_time(now = now + 10ms);
    ledger.charge(b, 10ms);
    ledger.end(b);
    ledger.ask(b);
  }
  ASSERT_EQ(ledger.next(), a);
  ledger.begin(a);
  EXPECT_EQ(ledger.lead(a), Duration(0));
  ledger.set_time(now = now + 5ms);
  ledger.charge(a, 5ms);
  ledger.end(a);
  ledger.ask(a);
  EXPECT_EQ(ledger.next(), b);
  // Nor does waiting help beyond the credit: `a` is far ahead by now.
  ledger.begin(b);
  ledger.end(b);
  ledger.ask(b);
  compute(ledger, a, 1s);
  ledger.set_time(now + 10s);
  EXPECT_EQ(ledger.next(), b);
}

TEST(TurnLedgerTest, LeadIsTheTimeUntilAnotherHasTheBetterRight) {
  TurnLedger ledger;
  const FunctionId a = ledger.add("a");
  const FunctionId b = ledger.add("b");
  const FunctionId sibling = ledger.add("a");
  ledger.ask(a);
  ledger.ask(b);
  ledger.begin(a);
  EXPECT_EQ(ledger.lead(a), Duration(0));
  ledger.charge(a, 3ms);
  ledger.end(a);
  ledger.begin(b);
  EXPECT_FALSE(ledger.lead(b));  // none waits
  ledger.ask(a);
  EXPECT_EQ(ledger.lead(b), Duration(3ms));
  ledger.withdraw(a);
  ledger.end(b);
  ledger.ask(a);
  ledger.begin(a);
  ledger.ask(sibling);
  EXPECT_EQ(ledger.lead(a), Duration(0));
}

TEST(TurnLedgerTest, AWeakenedFunctionWaitsForAllOthersAndIsRaisedWhenItRecovers) {
  TurnLedger ledger;
  const FunctionId a = ledger.add("a");
  const FunctionId b = ledger.add("b");
  ledger.ask(a);
  ledger.weaken(a);
  ledger.ask(b);
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(ledger.next(), b);
    compute(ledger, b, 1s);
  }
  ledger.withdraw(b);
  ASSERT_EQ(ledger.next(), a);
  ledger.begin(a);
  ledger.ask(b);
  EXPECT_EQ(ledger.lead(a), Duration(0));
  ledger.end(a);
  ledger.ask(a);
  ledger.begin(b);
  EXPECT_FALSE(ledger.lead(b));
  ledger.recover(a);
  EXPECT_EQ(ledger.served("a"), Duration(5s));  // no credit for the time of its weakness
  ledger.check_integrity();
}

TEST(TurnLedgerTest, UsageKeepsWhatEndedFunctionsUsedWithoutWhatTenantsWereRaisedBy) {
  TurnLedger ledger;
  const FunctionId a = ledger.add("a");
  ledger.ask(a);
  compute(ledger, a, 2s);
  ledger.remove(a);
  const FunctionId again = ledger.add("spare");
  ledger.set_tenant(again, "b");
  ledger.ask(again);
  compute(ledger, again, 1s);
  std::map<std::string, Duration> usage;
  for (const auto& [tenant, time] : ledger.usage()) usage[tenant] = time;
  EXPECT_EQ(usage, (std::map<std::string, Duration>{{"a", 2s}, {"b", 1s}, {"spare", 0s}}));
  ledger.check_integrity();
}

// Random tenants, functions, turns and idle times, with two tenants that never stop asking: their
// times differ by at most one turn, no waiting function starves, and the counters stay right.
TEST(TurnLedgerProperty, TwoTenantsThatAlwaysWaitGetEqualTimeAndNoFunctionStarves) {
  constexpr Duration kLongest = 20ms;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    SplitMix64 rng(seed);
    const auto below = [&](std::uint64_t n) { return static_cast<int>(rng.below(n)); };
    TurnLedger ledger;
    std::vector<FunctionId> ids;
    const int functions = 3 + below(6);
    const auto tenant_of = [&](int i) { return "t" + std::to_string(i < 4 ? i % 2 : i % 4); };
    for (int i = 0; i < functions; ++i) ids.push_back(ledger.add(tenant_of(i)));
    std::map<FunctionId, int> waits;  // turns that went by
    const auto ask = [&](FunctionId id) {
      ledger.ask(id);
      waits[id] = 0;
    };
    for (int i = 0; i < functions; ++i) ask(ids[static_cast<std::size_t>(i)]);
    for (int round = 0; round < 2000; ++round) {
      const FunctionId id = *ledger.next();
      ledger.begin(id);
      waits.erase(id);
      ledger.charge(id, Duration(1 + below(static_cast<std::uint64_t>(kLongest.count()))));
      ledger.end(id);
      // The first two functions, of two tenants, ask at once; others may pause.
      if (id <= ids[1] || below(3) > 0) ask(id);
      for (const FunctionId other : ids) {
        if (!waits.contains(other) && below(4) == 0) ask(other);
      }
      for (auto& [other, count] : waits) {
        // A tenant may be one turn ahead, and its functions come after one another: short turns of
        // the others fit into that many times.
        ASSERT_LT(++count, 2000) << "function " << other << " starves";
      }
      ASSERT_LE(std::chrono::abs(ledger.served("t0") - ledger.served("t1")), kLongest);
      ledger.check_integrity();
    }
  }
}

// Tenants that always wait, with turns of random lengths, beside one that asks for a tenth of its
// share: that one computes at once, those that always wait get equal times up to the credit, and
// no stream pauses for longer than its patience and a turn of each other tenant.
TEST(TurnLedgerProperty, CreditServesTenantsInsideOfTheirShareAndStallsNoStream) {
  constexpr Duration kLongest = 10ms;
  constexpr Duration kCall = 40ms;
  constexpr int kFloods = 3;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    SplitMix64 rng(seed);
    TurnLedger ledger(kCredit);
    TimePoint now{1s};
    ledger.set_time(now);
    std::vector<FunctionId> floods;
    for (int i = 0; i < kFloods; ++i) floods.push_back(ledger.add("flood" + std::to_string(i)));
    const FunctionId small = ledger.add("small");
    std::map<FunctionId, TimePoint> since;
    for (const FunctionId id : floods) {
      ledger.ask(id);
      since[id] = now;
    }
    TimePoint call_at = now + 10s;
    Duration left{0};
    int calls = 0;
    for (int round = 0; round < 20'000; ++round) {
      if (left <= 0ms && now >= call_at) {
        ledger.ask(small);
        left = kCall;
        call_at = now;
      }
      const FunctionId id = *ledger.next();
      ledger.begin(id);
      const Duration time =
          std::min(Duration(1 + static_cast<std::int64_t>(
                                    rng.below(static_cast<std::uint64_t>(kLongest.count())))),
                   id == small ? left : kLongest);
      ledger.set_time(now = now + time);
      ledger.charge(id, time);
      ledger.end(id);
      if (id == small) {
        left -= time;
        if (left > 0ms) {
          ledger.ask(small);
        } else {
          // The call itself, and a turn of each flood whose patience ends meanwhile.
          ASSERT_LE(now - call_at, kCall + (kFloods + 1) * kLongest);
          ++calls;
          call_at = now + kCall * (kFloods + 1) * 10;
        }
      } else {
        ASSERT_LE(now - since[id], kCredit.patience + (kFloods + 1) * kLongest);
        since[id] = now;
        ledger.ask(id);
      }
      ledger.check_integrity();
      for (const FunctionId one : floods) {
        const std::string name = "flood" + std::to_string(one);
        ASSERT_LE(std::chrono::abs(ledger.served(name) - ledger.served("flood0")),
                  kCredit.credit + kLongest);
      }
    }
    EXPECT_GT(calls, 20);
  }
}

// A tenant with ten functions has no more of the time than one with a single function.
TEST(TurnLedgerProperty, ManyFunctionsEarnATenantNoMoreTime) {
  TurnLedger ledger;
  SplitMix64 rng(7);
  const FunctionId single = ledger.add("single");
  ledger.ask(single);
  for (int i = 0; i < 10; ++i) ledger.ask(ledger.add("many"));
  for (int i = 0; i < 5000; ++i) {
    compute(ledger, *ledger.next(), Duration(1 + static_cast<int>(rng.below(5'000'000))));
  }
  const double one = to_seconds(ledger.served("single"));
  EXPECT_NEAR(one / (one + to_seconds(ledger.served("many"))), 0.5, 0.001);
}

}  // namespace
}  // namespace sluice
