#include "lending/lending_records_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/rng.h"

namespace sluice {
namespace {

using testing::HasSubstr;

TimePoint at(int ms) { return TimePoint{} + std::chrono::milliseconds(ms); }

// A store in memory that follows a book.
class Store {
 public:
  void follow(LendingBook& book) {
    for (auto& [key, value] : stored_records(book.take_changes())) {
      if (value) {
        keys[key] = *value;
      } else {
        keys.erase(key);
      }
    }
  }
  LendingRecords records() const {
    LendingRecords records;
    for (const auto& [key, value] : keys) {
      const Status read = read_stored_record(key, value, records);
      EXPECT_TRUE(read) << read.error().message;
    }
    return records;
  }

  std::map<std::string, std::string> keys;
};

std::string describe(LendingBook& book, int now) {
  std::string text;
  const LendingStatus status = book.status(at(now));
  for (const PartyView& party : status.parties) {
    text += party.party + "@" + party.device + " " + std::to_string(party.epoch) + " " +
            std::to_string(party.held) + "\n";
  }
  for (const DeviceLeaseView& lease : status.leases) {
    text += lease.lease.lease + "@" + lease.device + " of " + lease.lender + " " +
            std::to_string(lease.lease.bytes) + " " + std::to_string(lease.lease.wanted_back) +
            " " + std::to_string(lease.lease.lent) + "\n";
  }
  for (const DeviceLoanView& loan : status.loans) {
    text +=
        loan.borrower + " has " + std::to_string(loan.loan.bytes) + " of " + loan.loan.lease + "\n";
  }
  return text;
}

TEST(LendingRecordsTest, BorrowersFindTheSocketOfTheirLenderAgain) {
  LendingBook book({}, at(-60'000));
  const auto send = [&](LendRequest request) {
    request.key = request.party + std::to_string(static_cast<int>(request.verb));
    return book.handle(at(0), request).reply.epoch;
  };
  const std::uint64_t lender = send({.verb = LendVerb::kJoin,
                                     .party = "l",
                                     .device = "cpu",
                                     .kind = LendKind::kPages,
                                     .socket = "here",
                                     .leases = {{"pages", 100}}});
  const std::uint64_t borrower =
      send({.verb = LendVerb::kJoin, .party = "b", .device = "cpu", .kind = LendKind::kPages});
  send({.verb = LendVerb::kAllocate, .party = "b", .epoch = borrower, .bytes = 60});
  Store store;
  store.follow(book);
  LendingBook later({}, at(0), store.records(), true);
  const LendAnswer found =
      later.handle(at(1), {.verb = LendVerb::kHeartbeat, .party = "b", .epoch = borrower});
  ASSERT_EQ(found.reply.loans.size(), 1U);
  EXPECT_EQ(found.reply.loans[0].socket, "here");
  EXPECT_EQ(found.reply.loans[0].bytes, 60);
  const LendAnswer own =
      later.handle(at(1), {.verb = LendVerb::kHeartbeat, .party = "l", .epoch = lender});
  ASSERT_EQ(own.reply.leases.size(), 1U);
  EXPECT_EQ(own.reply.leases[0].holders, (std::vector<LeaseHolder>{{"b", 60, 60}}));
}

// At any time the book that is made of the stored records is the book that wrote them.
TEST(LendingRecordsRandomTest, TheStoreFollowsTheBook) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SplitMix64 rng(seed);
    LendingOptions options{.expiry = std::chrono::milliseconds(50), .budgets = {{"cpu", 1000}}};
    LendingBook book(options, at(-50));
    book.advance(at(0));
    ASSERT_TRUE(book.settled());
    Store store;
    int now = 0;
    for (int i = 0; i < 300; ++i) {
      now += static_cast<int>(rng.below(8));
      LendRequest request;
      request.verb = static_cast<LendVerb>(rng.below(10));
      request.party = std::string(1, static_cast<char>('a' + rng.below(4)));
      request.key = "k" + std::to_string(rng.below(200));
      request.device = rng.below(8) == 0 ? "gpu" : "cpu";
      const char* const leases[] = {"x", "y", "a/x", "b/y", "budget/cpu"};
      request.lease = leases[rng.below(5)];
      if (request.party == "d" || rng.below(9) == 0) {
        request.kind = LendKind::kPages;
        request.socket = "s";
      }
      // These have no such field.
      if (request.verb != LendVerb::kUnlease && request.verb != LendVerb::kRevoke) {
        request.bytes = static_cast<std::int64_t>(rng.below(400)) - 5;
      }
      if (rng.below(2) == 0) {
        request.held = {{leases[2 + rng.below(3)], 1 + std::abs(request.bytes)}};
      }
      if (rng.below(2) == 0) request.leases = {{leases[rng.below(2)], 1 + std::abs(request.bytes)}};
      for (const PartyView& party : book.status(at(now)).parties) {
        if (party.party == request.party) request.epoch = party.epoch;
      }
      const LendAnswer answer = book.handle(at(now), request);
      store.follow(book);
      LendingBook other(options, at(now), store.records(), true);
      other.check_integrity();
      ASSERT_EQ(describe(other, now), describe(book, now)) << "seed " << seed << " step " << i;
      // It remembers requests, too.
      const bool repeats = answer.fault == LendFault::kNone && request.verb != LendVerb::kLeave &&
                           request.verb != LendVerb::kHeartbeat;
      if (repeats) {
        const LendAnswer again = other.handle(at(now), request);
        ASSERT_EQ(again.fault, LendFault::kNone) << again.message;
        ASSERT_EQ(again.reply.granted, answer.reply.granted);
        ASSERT_EQ(again.reply.returned, answer.reply.returned);
        ASSERT_EQ(describe(other, now), describe(book, now));
      }
    }
  }
}

TEST(LendingRecordsTest, ASettledBookGrantsAtOnce) {
  LendingBook book({.budgets = {{"cpu", 100}}}, at(-10'000));
  Store store;
  const LendAnswer joined =
      book.handle(at(0), {.verb = LendVerb::kJoin, .party = "a", .key = "j", .device = "cpu"});
  book.handle(at(1), {.verb = LendVerb::kAllocate,
                      .party = "a",
                      .epoch = joined.reply.epoch,
                      .key = "k",
                      .bytes = 60});
  store.follow(book);
  // The operator has lowered the budget meanwhile.
  LendingBook next({.first_epoch = 50, .budgets = {{"cpu", 40}}}, at(5), store.records(), true);
  const LendAnswer beat = next.handle(
      at(6), {.verb = LendVerb::kHeartbeat, .party = "a", .epoch = joined.reply.epoch, .want = 9});
  ASSERT_EQ(beat.fault, LendFault::kNone) << beat.message;
  EXPECT_EQ(beat.reply.no_grants_for.count(), 0);
  ASSERT_EQ(beat.reply.loans.size(), 1U);
  EXPECT_EQ(beat.reply.loans[0].bytes, 60);
  EXPECT_EQ(beat.reply.loans[0].keep, 40);
  // One that was not settled waits for parties that it does not know.
  LendingBook young({.first_epoch = 50, .budgets = {{"cpu", 100}}}, at(5), store.records(), false);
  young.handle(at(6), {.verb = LendVerb::kJoin,
                       .party = "b",
                       .key = "j",
                       .device = "cpu",
                       .held = {{"budget/cpu", 30}}});
  EXPECT_EQ(young.status(at(7)).leases[0].lease.lent, 90);
}

// A leader's first epoch is its revision of etcd, which many others may have raised, times 2^20.
TEST(LendingRecordsTest, KeepsEpochsThatNoDoubleHolds) {
  constexpr std::uint64_t kFirst = (std::uint64_t{1} << 62) + 1;
  LendingBook book({.first_epoch = kFirst}, at(0));
  const LendAnswer joined =
      book.handle(at(0), {.verb = LendVerb::kJoin, .party = "a", .key = "j", .device = "cpu"});
  EXPECT_EQ(joined.reply.epoch, kFirst);
  Store store;
  store.follow(book);
  ASSERT_EQ(store.records().parties.size(), 1U);
  EXPECT_EQ(store.records().parties[0].epoch, kFirst);
}

TEST(LendingRecordsTest, ErrorsNameKeyAndField) {
  const std::string party = R"("device":"cpu","joins":["j"],"loans":[],"remembered":[])";
  const std::pair<std::string, std::string> cases[] = {
      {"other/a", "{}"},
      {"party/a", "[]"},
      {"party/", "{}"},
      {"party/a", "{" + party + "}"},
      {"party/a", "{\"epoch\":-1," + party + "}"},
      {"party/a", "{\"epoch\":1.5," + party + "}"},
      {"party/a", R"({"epoch":1,"device":"","joins":["j"],"loans":[],"remembered":[]})"},
      {"party/a", R"({"epoch":1,"device":"d","joins":[],"loans":[],"remembered":[]})"},
      {"party/a", R"({"epoch":1,"device":"d","joins":["j"],"loans":[{}],"remembered":[]})"},
      {"party/a", R"({"epoch":1,"device":"d","joins":["j"],"loans":[],"remembered":[7]})"},
      {"lease/a/x", R"({"device":"cpu","lender":"a","target":-1})"},
      {"lease/a/x", R"({"device":"cpu","lender":"a","target":18446744073709551615})"},
      {"lease/a/x", std::string(50, '[')},
  };
  for (const auto& [key, value] : cases) {
    LendingRecords records;
    const Status read = read_stored_record(key, value, records);
    ASSERT_FALSE(read) << key << " " << value;
    EXPECT_THAT(read.error().message, HasSubstr(key));
    EXPECT_TRUE(records.parties.empty() && records.leases.empty());
  }
}

}  // namespace
}  // namespace sluice
