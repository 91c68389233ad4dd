#include "scheduler/client_ledger.h"

#include <gtest/gtest.h>

#include <string>

namespace sluice {
namespace {

TEST(ClientLedger, ANewcomerIsLiftedToTheLeastOfThoseThatWait) {
  ClientLedger ledger;
  const auto a = ledger.arrive("a");
  const auto b = ledger.arrive("b");
  ledger.charge(a, 100);
  ledger.charge(b, 40);
  const auto c = ledger.arrive("c");
  EXPECT_EQ(ledger.served(c), 40);
  // A second request of a waiting client changes nothing.
  ledger.charge(b, 500);
  EXPECT_EQ(ledger.arrive("c"), c);
  EXPECT_EQ(ledger.served(c), 40);
  ledger.check_integrity(4, 4);
}

TEST(ClientLedger, AHeavierClientPaysLess) {
  ClientLedger ledger;
  const auto light = ledger.arrive("light");
  const auto heavy = ledger.arrive("heavy", 3);
  ledger.charge(light, 100);
  ledger.charge(heavy, 300);
  EXPECT_EQ(ledger.served(light), ledger.served(heavy));
  // The file of keys was read again: its next request has the new weight.
  EXPECT_EQ(ledger.arrive("heavy", 1), heavy);
  ledger.charge(heavy, 50);
  EXPECT_EQ(ledger.served(heavy), 150);
}

TEST(ClientLedger, AReturnerKeepsItsDebtAndEarnsNoCredit) {
  ClientLedger ledger;
  const auto greedy = ledger.arrive("greedy");
  const auto quiet = ledger.arrive("quiet");
  for (const auto client : {greedy, quiet}) {
    ledger.dequeue(client);
    ledger.finish(client);
  }
  ledger.charge(greedy, 1000);
  ledger.charge(quiet, 10);
  const auto other = ledger.arrive("other");
  EXPECT_EQ(ledger.served(other), 10);  // none waited; quiet had left last
  ledger.charge(other, 190);
  EXPECT_EQ(ledger.served(ledger.arrive("quiet")), 200);    // not 10: idle time earns nothing
  EXPECT_EQ(ledger.served(ledger.arrive("greedy")), 1000);  // not 200: the debt stays
}

TEST(ClientLedger, WithoutWaitingClientsTheLastToLeaveSetsTheLevel) {
  ClientLedger ledger;
  const auto a = ledger.arrive("a");
  const auto b = ledger.arrive("b");
  ledger.dequeue(a);
  ledger.dequeue(b);  // b leaves last; both run on
  ledger.charge(a, 300);
  ledger.charge(b, 70);
  EXPECT_EQ(ledger.served(ledger.arrive("c")), 70);
  ledger.check_integrity(1, 3);
}

TEST(ClientLedger, ThePreemptedAreNotLifted) {
  ClientLedger ledger;
  const auto a = ledger.arrive("a");
  ledger.dequeue(a);
  const auto b = ledger.arrive("b");
  ledger.charge(b, 500);
  ledger.requeue(a);
  EXPECT_EQ(ledger.served(a), 0);
  ledger.check_integrity(2, 2);
}

TEST(ClientLedger, InventedClientsDoNotFillTheMemory) {
  ClientLedger ledger;
  const auto stays = ledger.arrive("stays");
  const auto greedy = ledger.arrive("greedy");
  ledger.charge(greedy, 1'000'000);
  ledger.dequeue(greedy);
  ledger.finish(greedy);
  for (int i = 0; i < 20'000; ++i) {
    const auto client = ledger.arrive(std::to_string(i));
    ledger.charge(client, 1 + i % 7);
    ledger.dequeue(client);
    ledger.finish(client);
    ASSERT_LE(ledger.size(), ClientLedger::kMaxIdle + 2);
  }
  ledger.check_integrity(1, 1);
  EXPECT_EQ(ledger.served(stays), 0);
  EXPECT_EQ(ledger.served(ledger.arrive("greedy")), 1'000'000);  // the most indebted is remembered
}

}  // namespace
}  // namespace sluice
