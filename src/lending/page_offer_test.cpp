#include "lending/page_offer.h"

#include <gtest/gtest.h>

#include <memory>

#include "base/rng.h"
#include "lending/lending_agent.h"
#include "lending/lending_book.h"

namespace sluice {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr std::int64_t kOwn = 512 * kMiB;
constexpr std::int64_t kMost = 256 * kMiB;
constexpr Duration kExpiry = std::chrono::seconds(2);

TimePoint at(std::int64_t ms) { return TimePoint{} + std::chrono::milliseconds(ms); }

// A lender whose memory is bytes of a map: it gives what the coordinator's answer says, and takes
// what is recalled at the end of the grace.
struct Lender {
  explicit Lender(int run)
      : offer({.party = "lender",
               .device = "cpu",
               .socket = "s",
               .key_prefix = "lender" + std::to_string(run)}) {}

  void live(std::int64_t ms) {
    std::map<std::string, std::int64_t> now;
    for (const PageGrant& grant : offer.grants()) {
      const bool over = grant.keep < grant.bytes && at(ms) >= grant.until;
      now[grant.party] = over ? grant.keep : grant.bytes;
    }
    given = now;
    offer.update(at(ms), target, backed());
  }
  std::int64_t backed() const {
    std::int64_t sum = 0;
    for (const auto& [party, bytes] : given) sum += bytes;
    return sum;
  }

  PageOffer offer;
  std::int64_t target = 0;
  std::map<std::string, std::int64_t> given;
};

struct Borrower {
  explicit Borrower(const std::string& name)
      : agent({.party = name,
               .device = "cpu",
               .key_prefix = name,
               .least = 0,
               .most = kMost,
               .kind = LendKind::kPages}) {}

  void live(std::int64_t ms) {
    backed = std::min(backed + 4 * kMiB, agent.limit());
    agent.update(at(ms), {.limit = agent.limit(),
                          .used = agent.limit(),
                          .backed = backed,
                          .waiting = agent.limit() == 0 ? 1 : 0});
  }

  LendingAgent agent;
  std::int64_t backed = 0;
  bool stopped = false;
};

class PageOfferTest : public testing::Test {
 protected:
  // One round of all parties that run; `loss`: of 100 messages and answers.
  void round(std::uint64_t loss = 0) {
    ms_ += 20;
    lender_->live(ms_);
    if (const auto message = lender_->offer.next(at(ms_))) {
      const auto answer = carry(*message, loss);
      if (answer) {
        lender_->offer.answer(at(ms_), *answer);
      } else {
        lender_->offer.failed(at(ms_));
      }
      lender_->live(ms_);
    }
    for (auto& borrower : borrowers_) {
      if (borrower->stopped) continue;
      borrower->live(ms_);
      const auto message = borrower->agent.next(at(ms_));
      if (!message) continue;
      const auto answer = carry(*message, loss);
      if (answer) {
        borrower->agent.answer(*answer);
      } else {
        borrower->agent.failed(at(ms_));
      }
    }
    book_->check_integrity();
    ASSERT_LE(lender_->backed(), kOwn);
  }
  std::optional<LendAnswer> carry(const LendRequest& request, std::uint64_t loss) {
    if (rng_.below(100) < loss) return std::nullopt;
    const LendAnswer answer = book_->handle(at(ms_), request);
    if (rng_.below(100) < loss) return std::nullopt;
    return answer;
  }
  void lend_all() {
    lender_->target = kOwn;
    for (int i = 0; i < 50; ++i) round();
    ASSERT_EQ(lender_->backed(), kOwn);
  }

  SplitMix64 rng_{1};
  std::int64_t ms_ = 0;
  std::unique_ptr<LendingBook> book_ =
      std::make_unique<LendingBook>(LendingOptions{.expiry = kExpiry}, at(-10'000));
  std::unique_ptr<Lender> lender_ = std::make_unique<Lender>(0);
  std::vector<std::unique_ptr<Borrower>> borrowers_ = [] {
    std::vector<std::unique_ptr<Borrower>> made;
    made.push_back(std::make_unique<Borrower>("a"));
    made.push_back(std::make_unique<Borrower>("b"));
    return made;
  }();
};

TEST_F(PageOfferTest, LendsWhatBorrowersWantAndTakesAPartBack) {
  lend_all();
  EXPECT_EQ(borrowers_[0]->agent.limit(), kMost);
  EXPECT_EQ(borrowers_[0]->agent.loans()[0].socket, "s");
  lender_->target = 100 * kMiB;
  for (int i = 0; i < 9; ++i) round();
  EXPECT_LE(lender_->backed(), 100 * kMiB);
  for (int i = 0; i < 60; ++i) round();
  EXPECT_GT(lender_->backed(), 50 * kMiB);
  EXPECT_LE(borrowers_[0]->agent.limit() + borrowers_[1]->agent.limit(), 100 * kMiB);
  EXPECT_EQ(lender_->offer.revoked(), 0U);  // all gave back in time
  EXPECT_EQ(book_->status(at(ms_)).leases[0].lease.bytes, 100 * kMiB);
}

TEST_F(PageOfferTest, AStoppedBorrowerDelaysNoOther) {
  lend_all();
  borrowers_[0]->stopped = true;
  lender_->target = 0;
  const std::int64_t from = ms_;
  while (lender_->backed() > 0) round();
  // The grace, and rounds.
  EXPECT_LE(ms_ - from, 100 + 60);
  for (int i = 0; i < 3; ++i) round();
  EXPECT_GT(lender_->offer.revoked(), 0U);
  EXPECT_TRUE(book_->status(at(ms_)).leases.empty());
  EXPECT_TRUE(book_->status(at(ms_)).loans.empty());
  // The one that was stopped learns it by its next message and goes on.
  borrowers_[0]->stopped = false;
  for (int i = 0; i < 20; ++i) round();
  EXPECT_EQ(borrowers_[0]->agent.limit(), 0);
  lend_all();
}

TEST_F(PageOfferTest, WithoutACoordinatorItHasAllOfItsMemory) {
  lend_all();
  for (int i = 0; i < 60; ++i) round(100);
  EXPECT_FALSE(lender_->offer.joined());
  EXPECT_EQ(lender_->backed(), 0);
  EXPECT_TRUE(borrowers_[0]->agent.loans().empty());
  lend_all();
}

TEST_F(PageOfferTest, ALaterProcessOfItsNameFencesIt) {
  lend_all();
  book_->handle(at(ms_),
                {.verb = LendVerb::kJoin, .party = "lender", .key = "other", .device = "cpu"});
  for (int i = 0; i < 20; ++i) round();
  EXPECT_EQ(lender_->backed(), 0);
  EXPECT_FALSE(lender_->offer.next(at(ms_ + 1000)));
}

TEST_F(PageOfferTest, ALateJoinOfItsOwnDoesNotFenceIt) {
  std::vector<LendRequest> late;
  for (const std::int64_t target : {kOwn / 2, kOwn / 2, kOwn}) {
    lender_->target = target;
    ms_ += 300;
    lender_->live(ms_);
    const auto join = lender_->offer.next(at(ms_));
    ASSERT_TRUE(join);
    ASSERT_EQ(join->verb, LendVerb::kJoin);
    late.push_back(*join);
    lender_->offer.failed(at(ms_));
  }
  EXPECT_EQ(late[0], late[1]);  // a repeat
  EXPECT_NE(late[1].key, late[2].key);
  ms_ += 300;
  lend_all();
  for (const LendRequest& join : late) book_->handle(at(ms_), join);
  for (int i = 0; i < 20; ++i) round();
  EXPECT_TRUE(lender_->offer.joined());
  EXPECT_EQ(lender_->backed(), kOwn);
}

TEST_F(PageOfferTest, ABudgetCannotBeRevoked) {
  book_->handle(at(0), {.verb = LendVerb::kJoin, .party = "x", .key = "j", .device = "cpu"});
  book_->handle(
      at(0),
      {.verb = LendVerb::kLease, .party = "x", .epoch = 1, .key = "l", .lease = "y", .bytes = 5});
  const LendAnswer answer = book_->handle(
      at(0), {.verb = LendVerb::kRevoke, .party = "x", .epoch = 1, .key = "r", .lease = "y"});
  EXPECT_EQ(answer.fault, LendFault::kBadRequest);
  EXPECT_NE(answer.message.find("by consent"), std::string::npos);
}

// The two kinds of one device are apart.
TEST_F(PageOfferTest, PagesAreNotLentAsBudget) {
  lend_all();
  book_->handle(at(ms_), {.verb = LendVerb::kJoin, .party = "x", .key = "j", .device = "cpu"});
  const std::uint64_t epoch =
      book_->handle(at(ms_), {.verb = LendVerb::kJoin, .party = "x", .key = "j", .device = "cpu"})
          .reply.epoch;
  const LendAnswer answer = book_->handle(
      at(ms_), {.verb = LendVerb::kAllocate, .party = "x", .epoch = epoch, .key = "m", .bytes = 5});
  EXPECT_EQ(answer.fault, LendFault::kNone);
  EXPECT_EQ(answer.reply.granted, 0);
}

// Lost messages, stopped borrowers, restarts of coordinator and lender: whatever happens, the
// lender has its memory soon after it wants it.
TEST_F(PageOfferTest, AlwaysReturnsInTime) {
  constexpr std::int64_t kLongest = 100 + 60;  // the grace, rounds
  std::uint64_t revoked = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    rng_ = SplitMix64(seed);
    std::int64_t wanted_since = ms_;
    int run = 1;
    for (int i = 0; i < 1500; ++i) {
      if (rng_.below(60) == 0) {
        lender_->target = static_cast<std::int64_t>(rng_.below(5)) * (kOwn / 4);
        wanted_since = ms_;
      }
      for (auto& borrower : borrowers_) {
        if (rng_.below(100) == 0) borrower->stopped = !borrower->stopped;
      }
      if (rng_.below(400) == 0) {
        book_ = std::make_unique<LendingBook>(
            LendingOptions{.expiry = kExpiry, .first_epoch = 1U + (rng_.below(1000) << 20)},
            at(ms_));
      }
      if (rng_.below(400) == 0) {
        revoked += lender_->offer.revoked();
        const std::int64_t target = lender_->target;
        lender_ = std::make_unique<Lender>(++run + static_cast<int>(seed) * 1000);
        lender_->target = target;
      }
      round(10);
      if (ms_ - wanted_since > kLongest) {
        ASSERT_LE(lender_->backed(), lender_->target) << "seed " << seed << " at " << ms_;
      }
    }
    revoked += lender_->offer.revoked();
  }
  EXPECT_GT(revoked, 100U);
}

}  // namespace
}  // namespace sluice
