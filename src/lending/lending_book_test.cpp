#include "lending/lending_book.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "membership/join_keys.h"

namespace sluice {
namespace {

using testing::HasSubstr;

TimePoint at(int ms) { return TimePoint{} + std::chrono::milliseconds(ms); }

constexpr int kExpiry = 10'000;  // ms, as LendingOptions has it

class LendingBookTest : public testing::Test {
 protected:
  LendAnswer send(int ms, LendRequest request) {
    if (request.verb != LendVerb::kJoin && request.epoch == 0) {
      request.epoch = epochs_[request.party];
    }
    if (request.key.empty()) request.key = "k" + std::to_string(++keys_);
    LendAnswer answer = book_.handle(at(ms), request);
    book_.check_integrity();
    if (request.verb == LendVerb::kJoin && answer.fault == LendFault::kNone) {
      epochs_[request.party] = answer.reply.epoch;
    }
    return answer;
  }
  LendAnswer join(int ms, const std::string& party, std::vector<LeaseBytes> held = {}) {
    return send(
        ms, {.verb = LendVerb::kJoin, .party = party, .device = "cpu", .held = std::move(held)});
  }
  LendAnswer beat(int ms, const std::string& party, std::int64_t want, std::int64_t spare = 0) {
    return send(ms, {.verb = LendVerb::kHeartbeat, .party = party, .want = want, .spare = spare});
  }
  LendAnswer allocate(int ms, const std::string& party, std::int64_t bytes) {
    return send(ms, {.verb = LendVerb::kAllocate, .party = party, .bytes = bytes});
  }
  void restart(int ms) {
    book_ = LendingBook({.first_epoch = 1000, .budgets = {{"cpu", 100}}}, at(ms));
  }

  LendingBook book_{{.budgets = {{"cpu", 100}}}, at(-kExpiry)};
  std::map<std::string, std::uint64_t> epochs_;
  int keys_ = 0;
};

TEST_F(LendingBookTest, DividesTheOperatorsBudget) {
  join(0, "a");
  join(0, "b");
  EXPECT_EQ(allocate(1, "a", 70).reply.granted, 70);
  const LendAnswer b = allocate(2, "b", 70);
  EXPECT_EQ(b.reply.granted, 30);
  ASSERT_EQ(b.reply.loans.size(), 1U);
  EXPECT_EQ(b.reply.loans[0].lease, "budget/cpu");
  EXPECT_EQ(b.reply.loans[0].lender, "");
  // b is below its share of 50, so a is asked for what it has beyond.
  const LendAnswer a = beat(3, "a", 0);
  EXPECT_EQ(a.reply.loans[0].bytes, 70);
  EXPECT_EQ(a.reply.loans[0].keep, 50);
  send(4, {.verb = LendVerb::kRespond, .party = "a", .lease = "budget/cpu", .bytes = 20});
  EXPECT_EQ(beat(5, "b", 40).reply.available, 20);
  EXPECT_EQ(allocate(6, "b", 40).reply.granted, 20);
  EXPECT_EQ(beat(7, "a", 0).reply.loans[0].keep, 50);
}

TEST_F(LendingBookTest, SpareMemoryGoesToThoseThatWant) {
  join(0, "a");
  join(0, "b");
  allocate(1, "a", 100);
  beat(2, "a", 0, 80);
  EXPECT_EQ(beat(3, "a", 0, 80).reply.loans[0].keep, 100);  // no party wants it
  beat(4, "b", 70);
  EXPECT_EQ(beat(5, "a", 0, 80).reply.loans[0].keep, 30);
  beat(6, "b", 0);
  EXPECT_EQ(beat(7, "a", 0, 80).reply.loans[0].keep, 100);
}

TEST_F(LendingBookTest, ALenderTakesAPartBackAtOnceAndTheRestByConsent) {
  join(0, "image");
  join(0, "chat");
  send(1, {.verb = LendVerb::kLease, .party = "image", .lease = "spare", .bytes = 50});
  EXPECT_EQ(allocate(2, "chat", 130).reply.granted, 130);
  const LendAnswer reclaim =
      send(3, {.verb = LendVerb::kReclaim, .party = "image", .lease = "spare", .bytes = 35});
  EXPECT_EQ(reclaim.reply.returned, 20);  // what was not lent
  ASSERT_EQ(reclaim.reply.leases.size(), 1U);
  EXPECT_EQ(reclaim.reply.leases[0].bytes, 30);
  EXPECT_EQ(reclaim.reply.leases[0].wanted_back, 15);
  const LendAnswer chat = beat(4, "chat", 0);
  ASSERT_EQ(chat.reply.loans.size(), 2U);
  EXPECT_EQ(chat.reply.loans[1].lease, "image/spare");
  EXPECT_EQ(chat.reply.loans[1].lender, "image");
  EXPECT_EQ(chat.reply.loans[1].keep, 15);
  send(5, {.verb = LendVerb::kRespond, .party = "chat", .lease = "image/spare", .bytes = 15});
  EXPECT_EQ(beat(6, "image", 0).reply.leases[0].bytes, 15);
  // All of it.
  send(7, {.verb = LendVerb::kUnlease, .party = "image", .lease = "spare"});
  EXPECT_EQ(allocate(8, "chat", 5).reply.granted, 0);
  send(9, {.verb = LendVerb::kFree, .party = "chat", .lease = "image/spare", .bytes = 15});
  EXPECT_TRUE(beat(10, "image", 0).reply.leases.empty());
}

TEST_F(LendingBookTest, ALenderDoesNotBorrowFromItself) {
  join(0, "image");
  send(1, {.verb = LendVerb::kLease, .party = "image", .lease = "spare", .bytes = 50});
  EXPECT_EQ(allocate(2, "image", 130).reply.granted, 100);
}

TEST_F(LendingBookTest, DevicesAreApart) {
  send(0, {.verb = LendVerb::kJoin, .party = "gpu", .device = "cuda0"});
  EXPECT_EQ(allocate(1, "gpu", 10).reply.granted, 0);
}

TEST_F(LendingBookTest, ASilentPartyLosesItsLoans) {
  join(0, "a");
  join(0, "b");
  allocate(1, "a", 100);
  beat(kExpiry - 1, "b", 0);
  EXPECT_EQ(allocate(kExpiry + 1, "b", 100).reply.granted, 100);
  const LendAnswer late = beat(kExpiry + 2, "a", 0);
  EXPECT_EQ(late.fault, LendFault::kUnknownParty);
  EXPECT_THAT(late.message, HasSubstr("join"));
  // It comes too late with what it held.
  EXPECT_TRUE(join(kExpiry + 3, "a", {{"budget/cpu", 100}}).reply.loans.empty());
  EXPECT_EQ(book_.status(at(kExpiry + 4)).expired, 1);
}

// Its memory is free on the device, but a new process of the lender may need it.
TEST_F(LendingBookTest, LoansOfASilentLenderAreRecalled) {
  join(0, "image");
  join(0, "chat");
  send(1, {.verb = LendVerb::kLease, .party = "image", .lease = "spare", .bytes = 50});
  allocate(2, "chat", 150);
  beat(9'000, "chat", 0);
  const LendAnswer chat = beat(kExpiry + 5, "chat", 0);
  ASSERT_EQ(chat.reply.loans.size(), 2U);
  EXPECT_EQ(chat.reply.loans[1].lender, "");
  EXPECT_EQ(chat.reply.loans[1].keep, 0);
  // The new process offers it again before it is back.
  send(kExpiry + 6,
       {.verb = LendVerb::kJoin, .party = "image", .device = "cpu", .leases = {{"spare", 20}}});
  EXPECT_EQ(beat(kExpiry + 7, "chat", 0).reply.loans[1].keep, 20);
}

TEST_F(LendingBookTest, LoansOfALenderThatJoinsOnAnotherDeviceAreRecalled) {
  join(0, "image");
  join(0, "chat");
  send(1, {.verb = LendVerb::kLease, .party = "image", .lease = "spare", .bytes = 50});
  EXPECT_EQ(allocate(2, "chat", 150).reply.granted, 150);
  send(3, {.verb = LendVerb::kJoin, .party = "image", .device = "gpu"});
  // A heartbeat that changes nothing shows it.
  const LendAnswer chat = beat(4, "chat", 0);
  ASSERT_EQ(chat.reply.loans.size(), 2U);
  EXPECT_EQ(chat.reply.loans[1].lease, "image/spare");
  EXPECT_EQ(chat.reply.loans[1].lender, "");
  EXPECT_EQ(chat.reply.loans[1].bytes, 50);
  EXPECT_EQ(chat.reply.loans[1].keep, 0);
}

// The kinds 'budget' and 'pages' are apart as devices are.
TEST_F(LendingBookTest, LoansOfALenderThatJoinsWithAnotherKindAreRecalled) {
  join(0, "image");
  join(0, "chat");
  send(1, {.verb = LendVerb::kLease, .party = "image", .lease = "spare", .bytes = 50});
  EXPECT_EQ(allocate(2, "chat", 150).reply.granted, 150);
  send(3, {.verb = LendVerb::kJoin, .party = "image", .device = "cpu", .kind = LendKind::kPages});
  const LendAnswer chat = beat(4, "chat", 0);
  ASSERT_EQ(chat.reply.loans.size(), 2U);
  EXPECT_EQ(chat.reply.loans[1].keep, 0);
}

TEST_F(LendingBookTest, ALaterProcessFencesTheOneBefore) {
  join(0, "a");
  allocate(1, "a", 60);
  const std::uint64_t old = epochs_["a"];
  const LendAnswer joined = join(2, "a");
  EXPECT_NE(joined.reply.epoch, old);
  EXPECT_TRUE(joined.reply.loans.empty());
  const LendAnswer late =
      send(3, {.verb = LendVerb::kAllocate, .party = "a", .epoch = old, .bytes = 5});
  EXPECT_EQ(late.fault, LendFault::kStaleEpoch);
  EXPECT_EQ(book_.status(at(4)).leases[0].lease.lent, 0);
}

TEST_F(LendingBookTest, ARepeatChangesNothing) {
  const LendRequest first{.verb = LendVerb::kJoin, .party = "a", .key = "j1", .device = "cpu"};
  const std::uint64_t epoch = send(0, first).reply.epoch;
  EXPECT_EQ(send(1, first).reply.epoch, epoch);
  const LendRequest borrow{.verb = LendVerb::kAllocate, .party = "a", .key = "x", .bytes = 40};
  EXPECT_EQ(send(2, borrow).reply.granted, 40);
  EXPECT_EQ(send(3, borrow).reply.granted, 40);
  EXPECT_EQ(book_.status(at(4)).leases[0].lease.lent, 40);
  LendRequest other = borrow;
  other.bytes = 41;
  EXPECT_EQ(send(5, other).fault, LendFault::kKeyReused);
  // A join from before the present one, delivered late, does not fence it.
  join(6, "a");
  EXPECT_EQ(send(7, first).fault, LendFault::kStaleEpoch);
  EXPECT_EQ(beat(8, "a", 0).fault, LendFault::kNone);
}

TEST_F(LendingBookTest, AfterAStartPartiesPresentWhatTheyHold) {
  restart(0);
  const LendAnswer a = join(1, "a", {{"budget/cpu", 60}});
  ASSERT_EQ(a.reply.loans.size(), 1U);
  EXPECT_EQ(a.reply.loans[0].bytes, 60);
  EXPECT_GT(a.reply.no_grants_for.count(), 0);
  join(2, "b", {{"image/spare", 30}});
  EXPECT_EQ(allocate(3, "b", 10).reply.granted, 0);
  EXPECT_EQ(beat(4, "b", 10).reply.available, 0);
  // The lender of the unknown lease comes: the loan stays.
  send(5, {.verb = LendVerb::kJoin, .party = "image", .device = "cpu", .leases = {{"spare", 50}}});
  EXPECT_EQ(beat(6, "b", 10).reply.loans[0].keep, 30);
  beat(kExpiry - 5, "a", 0);
  beat(kExpiry - 5, "b", 10);
  beat(kExpiry - 5, "image", 0);
  EXPECT_EQ(allocate(kExpiry, "b", 10).reply.granted, 10);
}

TEST_F(LendingBookTest, AfterAStartNothingIsReturnedWhileHoldersMayCome) {
  restart(0);
  send(1, {.verb = LendVerb::kJoin, .party = "image", .device = "cpu", .leases = {{"spare", 50}}});
  const LendAnswer reclaim =
      send(2, {.verb = LendVerb::kReclaim, .party = "image", .lease = "spare", .bytes = 50});
  EXPECT_EQ(reclaim.reply.returned, 0);
  ASSERT_EQ(reclaim.reply.leases.size(), 1U);
  EXPECT_EQ(reclaim.reply.leases[0].bytes, 50);
  // The lender's process is followed by another, which knows of less.
  send(3, {.verb = LendVerb::kJoin, .party = "image", .device = "cpu", .leases = {{"spare", 20}}});
  join(4, "b", {{"image/spare", 30}});
  beat(kExpiry - 5, "b", 0);
  EXPECT_EQ(beat(kExpiry - 4, "image", 0).reply.leases[0].bytes, 50);
  const LendAnswer after = beat(kExpiry + 1, "image", 0);
  ASSERT_EQ(after.reply.leases.size(), 1U);
  EXPECT_EQ(after.reply.leases[0].bytes, 30);
  EXPECT_EQ(after.reply.leases[0].wanted_back, 10);
}

TEST_F(LendingBookTest, LoansOfALenderThatDoesNotComeBackAreRecalled) {
  restart(0);
  join(1, "b", {{"image/spare", 30}});
  EXPECT_EQ(beat(kExpiry - 5, "b", 0).reply.loans[0].keep, 30);
  EXPECT_EQ(beat(kExpiry, "b", 0).reply.loans[0].keep, 0);
}

TEST_F(LendingBookTest, ASmallerBudgetIsRecalled) {
  restart(0);
  join(1, "a", {{"budget/cpu", 130}});
  EXPECT_EQ(beat(2, "a", 0).reply.loans[0].keep, 100);
}

struct Wrong {
  const char* name;
  LendRequest request;
  LendFault fault;
  const char* message;
};

class LendingBookErrorTest : public testing::TestWithParam<Wrong> {};

TEST_P(LendingBookErrorTest, SaysSoAndChangesNothing) {
  LendingBook book({.budgets = {{"cpu", 100}}}, at(-kExpiry));
  const auto send = [&](LendRequest request) {
    LendAnswer answer = book.handle(at(0), request);
    book.check_integrity();
    return answer;
  };
  send({.verb = LendVerb::kJoin, .party = "a", .key = "j", .device = "cpu"});
  send({.verb = LendVerb::kLease, .party = "a", .epoch = 1, .key = "l", .lease = "x", .bytes = 50});
  send({.verb = LendVerb::kAllocate, .party = "a", .epoch = 1, .key = "m", .bytes = 30});
  const auto describe = [&] {
    std::string text;
    const LendingStatus status = book.status(at(0));
    for (const PartyView& party : status.parties) {
      text += party.party + " " + std::to_string(party.epoch) + " " + std::to_string(party.held) +
              " " + std::to_string(party.want) + " " + std::to_string(party.spare) + "\n";
    }
    for (const DeviceLeaseView& lease : status.leases) {
      text += lease.lease.lease + " " + std::to_string(lease.lease.bytes) + " " +
              std::to_string(lease.lease.lent) + " " + std::to_string(lease.lease.wanted_back) +
              "\n";
    }
    return text;
  };
  const std::string before = describe();
  const LendAnswer answer = send(GetParam().request);
  EXPECT_EQ(answer.fault, GetParam().fault);
  EXPECT_THAT(answer.message, HasSubstr(GetParam().message));
  EXPECT_EQ(describe(), before);
}

LendRequest from_a(LendVerb verb, std::string lease, std::int64_t bytes) {
  return {.verb = verb,
          .party = "a",
          .epoch = 1,
          .key = "k",
          .lease = std::move(lease),
          .bytes = bytes};
}

LendRequest beat_of_a(std::int64_t want, std::int64_t spare) {
  return {.verb = LendVerb::kHeartbeat, .party = "a", .epoch = 1, .want = want, .spare = spare};
}

LendRequest join_of(std::string party, std::string device, std::vector<LeaseBytes> held,
                    std::vector<LeaseBytes> leases) {
  return {.verb = LendVerb::kJoin,
          .party = std::move(party),
          .key = "k",
          .device = std::move(device),
          .held = std::move(held),
          .leases = std::move(leases)};
}

INSTANTIATE_TEST_SUITE_P(
    All, LendingBookErrorTest,
    testing::Values(
        Wrong{"unknown_party",
              {.verb = LendVerb::kHeartbeat, .party = "z", .epoch = 1},
              LendFault::kUnknownParty,
              "'z'"},
        Wrong{"wrong_epoch",
              {.verb = LendVerb::kHeartbeat, .party = "a", .epoch = 7},
              LendFault::kStaleEpoch,
              "the epoch of party 'a' is 1, not 7"},
        Wrong{"empty_party",
              {.verb = LendVerb::kHeartbeat, .party = "", .epoch = 1},
              LendFault::kBadRequest,
              "party"},
        Wrong{"party_with_a_slash", join_of("a/b", "cpu", {}, {}), LendFault::kBadRequest, "party"},
        Wrong{"party_named_budget", join_of("budget", "cpu", {}, {}), LendFault::kBadRequest,
              "party"},
        Wrong{"long_party", join_of(std::string(65, 'x'), "cpu", {}, {}), LendFault::kBadRequest,
              "party"},
        Wrong{"no_device", join_of("b", "", {}, {}), LendFault::kBadRequest, "device"},
        Wrong{"held_negative", join_of("b", "cpu", {{"a/x", -1}}, {}), LendFault::kBadRequest,
              "held: bytes"},
        Wrong{"held_huge", join_of("b", "cpu", {{"a/x", INT64_MAX}}, {}), LendFault::kBadRequest,
              "held: bytes"},
        Wrong{"held_no_lease", join_of("b", "cpu", {{"x", 1}}, {}), LendFault::kBadRequest,
              "held: lease"},
        Wrong{"leases_zero", join_of("b", "cpu", {}, {{"x", 0}}), LendFault::kBadRequest,
              "leases: bytes"},
        Wrong{"leases_name", join_of("b", "cpu", {}, {{"x/y", 1}}), LendFault::kBadRequest,
              "leases: lease"},
        Wrong{"earlier_joins_no_key",
              {.verb = LendVerb::kJoin,
               .party = "b",
               .key = "k",
               .device = "cpu",
               .earlier_joins = {"a b"}},
              LendFault::kBadRequest,
              "earlier_joins"},
        Wrong{"earlier_joins_many",
              {.verb = LendVerb::kJoin,
               .party = "b",
               .key = "k",
               .device = "cpu",
               .earlier_joins = std::vector<std::string>(kMaxEarlierJoins + 1, "x")},
              LendFault::kBadRequest,
              "earlier_joins"},
        Wrong{"no_key",
              {.verb = LendVerb::kAllocate, .party = "a", .epoch = 1, .bytes = 1},
              LendFault::kBadRequest,
              "key"},
        Wrong{"want_negative", beat_of_a(-1, 0), LendFault::kBadRequest, "want"},
        Wrong{"spare_huge", beat_of_a(0, INT64_MAX), LendFault::kBadRequest, "spare"},
        Wrong{"allocate_zero", from_a(LendVerb::kAllocate, "", 0), LendFault::kBadRequest, "bytes"},
        Wrong{"allocate_negative", from_a(LendVerb::kAllocate, "", -5), LendFault::kBadRequest,
              "bytes"},
        Wrong{"allocate_huge", from_a(LendVerb::kAllocate, "", INT64_MAX), LendFault::kBadRequest,
              "bytes"},
        Wrong{"lease_negative", from_a(LendVerb::kLease, "y", -1), LendFault::kBadRequest, "bytes"},
        Wrong{"lease_lowered", from_a(LendVerb::kLease, "x", 10), LendFault::kBadRequest,
              "reclaim"},
        Wrong{"reclaim_unknown", from_a(LendVerb::kReclaim, "y", 1), LendFault::kUnknownLease,
              "a/y"},
        Wrong{"reclaim_too_much", from_a(LendVerb::kReclaim, "x", 51), LendFault::kBadRequest,
              "has 50 left"},
        Wrong{"reclaim_negative", from_a(LendVerb::kReclaim, "x", -1), LendFault::kBadRequest,
              "bytes"},
        Wrong{"unlease_budget", from_a(LendVerb::kUnlease, "cpu", 0), LendFault::kUnknownLease,
              "a/cpu"},
        Wrong{"free_unknown", from_a(LendVerb::kFree, "b/x", 1), LendFault::kUnknownLease, "b/x"},
        Wrong{"free_too_much", from_a(LendVerb::kFree, "budget/cpu", 31), LendFault::kBadRequest,
              "holds 30"},
        Wrong{"respond_negative", from_a(LendVerb::kRespond, "budget/cpu", -1),
              LendFault::kBadRequest, "bytes"}),
    [](const auto& test) { return test.param.name; });

TEST_F(LendingBookTest, AJoinWithAnotherBodyIsNoRepeat) {
  const LendRequest join{
      .verb = LendVerb::kJoin, .party = "a", .key = "j", .device = "cpu", .earlier_joins = {"i"}};
  const std::uint64_t epoch = send(0, join).reply.epoch;
  EXPECT_EQ(send(1, join).reply.epoch, epoch);
  LendRequest other = join;
  other.device = "gpu";
  EXPECT_EQ(send(2, other).fault, LendFault::kKeyReused);
  other = join;
  other.kind = LendKind::kPages;
  EXPECT_EQ(send(3, other).fault, LendFault::kKeyReused);
  // It was sent before, and arrives now.
  other = join;
  other.key = "i";
  other.earlier_joins.clear();
  EXPECT_EQ(send(4, other).fault, LendFault::kStaleEpoch);
  EXPECT_EQ(beat(5, "a", 0).reply.epoch, epoch);
}

// The sums that a lender hears of stay within what it accepts.
TEST_F(LendingBookTest, HoldersDoNotPresentMoreThanALeaseMayHave) {
  restart(0);
  for (const std::string party : {"a", "b", "c"}) {
    join(1, party, {{"lender/pages", kMaxLeaseBytes}, {"lender/pages", kMaxLeaseBytes}});
  }
  const LendingStatus status = book_.status(at(2));
  ASSERT_EQ(status.loans.size(), 1U);
  EXPECT_EQ(status.loans[0].borrower, "a");
  EXPECT_EQ(status.leases.back().lease.bytes, kMaxLeaseBytes);
}

// Random messages of random parties, with restarts of the book: it never fails a check.
TEST(LendingBookRandomTest, KeepsItsInvariants) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SplitMix64 rng(seed);
    LendingOptions options{.expiry = std::chrono::milliseconds(50), .budgets = {{"cpu", 1000}}};
    LendingBook book(options, at(0));
    int now = 0;
    std::uint64_t epoch = 0;
    for (int i = 0; i < 400; ++i) {
      now += static_cast<int>(rng.below(12));
      if (rng.below(100) == 0) {
        options.first_epoch += 1'000'000;
        book = LendingBook(options, at(now));
      }
      LendRequest request;
      request.verb = static_cast<LendVerb>(rng.below(10));
      request.party = std::string(1, static_cast<char>('a' + rng.below(4)));
      request.key = "k" + std::to_string(rng.below(200));
      request.device = rng.below(8) == 0 ? "gpu" : "cpu";
      if (request.party == "d") request.kind = LendKind::kPages;
      if (rng.below(9) == 0) request.kind = LendKind::kPages;
      const char* const leases[] = {"x", "y", "a/x", "b/y", "budget/cpu"};
      request.lease = leases[rng.below(5)];
      request.bytes = static_cast<std::int64_t>(rng.below(400)) - 5;
      request.want = static_cast<std::int64_t>(rng.below(3)) * 300;
      request.spare = static_cast<std::int64_t>(rng.below(3)) * 200;
      if (rng.below(2) == 0)
        request.held = {{leases[2 + rng.below(3)], 1 + std::abs(request.bytes)}};
      if (rng.below(2) == 0) request.leases = {{leases[rng.below(2)], 1 + std::abs(request.bytes)}};
      for (const PartyView& party : book.status(at(now)).parties) {
        if (party.party == request.party) epoch = party.epoch;
      }
      request.epoch = rng.below(20) == 0 ? epoch + 1 : epoch;
      static_cast<void>(book.handle(at(now), request));
      book.check_integrity();
    }
    // All that live parties hold is returned when they fall silent.
    for (const DeviceLeaseView& lease : book.status(at(now + 1000)).leases) {
      ASSERT_EQ(lease.lease.lent, 0) << "seed " << seed;
    }
    book.check_integrity();
  }
}

}  // namespace
}  // namespace sluice
