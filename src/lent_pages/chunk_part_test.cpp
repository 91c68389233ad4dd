// Chunks of a device that cross between a lender and a borrower: they come back by consent, or when
// the borrower's process has ended, and count as lent until then.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/shared_memory.h"
#include "lent_pages/page_borrower.h"
#include "lent_pages/page_lender.h"
#include "lent_pages/page_link.h"
#include "offload/lent_tier.h"
#include "tests/support/borrowing.h"
#include "tests/support/memfd_chunks.h"

namespace sluice {
namespace {

using test::await;
using test::BorrowerProcess;
using test::Borrowing;
using test::loan;
using test::MemfdChunks;

constexpr std::int64_t kChunk = MemfdChunks::kChunk;
constexpr std::int64_t kLent = 4 * kChunk;
constexpr std::int64_t kOfAll = 6 * kChunk;

Result<std::unique_ptr<DeviceChunks>> open_chunks(std::int64_t bytes) {
  return std::unique_ptr<DeviceChunks>(std::make_unique<MemfdChunks>(bytes));
}

class LentChunksTest : public testing::Test {
 protected:
  void start() {
    lender_ = *PageLender::start({.socket = socket_,
                                  .key = page_link_key(test::kLendToken),
                                  .most = kOfAll,
                                  .chunks = std::make_unique<MemfdChunks>(kOfAll)},
                                 clock_);
  }
  void grant(std::int64_t bytes) { lender_->set_grants({{"b", bytes, bytes, {}}}); }
  void recall(std::int64_t bytes, std::int64_t keep) {
    lender_->set_grants({{"b", bytes, keep, clock_.now() + PageOffer::kGrace}});
  }

  SystemClock clock_;
  const std::string socket_ = test::unique_socket();
  std::unique_ptr<PageLender> lender_;
};

TEST_F(LentChunksTest, BlocksGoThereAndBack) {
  start();
  Borrowing b("b", test::kLendToken, kOfAll, open_chunks);
  // A part of a chunk is of no use.
  b.borrower->set_loans({loan(socket_, kLent + 5, kLent + 5)});
  grant(kLent + 5);
  ASSERT_TRUE(await([&] { return b.memory->usable() == kLent; }));
  EXPECT_EQ(lender_->backed(), kLent);
  for (int i = 0; i < 64; ++i) ASSERT_TRUE(b.save(i));
  for (int i = 0; i < 64; ++i) ASSERT_TRUE(b.load(i));
  // The borrower gives a half back by what the coordinator says to it.
  b.borrower->set_loans({loan(socket_, kLent, kLent / 2)});
  ASSERT_TRUE(await([&] { return b.borrower->in_use() == kLent / 2; }));
  grant(kLent / 2);
  ASSERT_TRUE(await([&] { return lender_->backed() == kLent / 2; }));
  int found = 0;
  for (int i = 0; i < 64; ++i) found += b.load(i) ? 1 : 0;
  EXPECT_EQ(found, 32);
  // It gives all back by what the lender says, which no coordinator has told it.
  recall(kLent / 2, 0);
  ASSERT_TRUE(await([&] { return lender_->backed() == 0; }));
  EXPECT_EQ(b.borrower->in_use(), 0);
  grant(kLent / 2);
  ASSERT_TRUE(await([&] { return b.memory->usable() == kLent / 2; }));
  EXPECT_TRUE(b.save(1));
  EXPECT_TRUE(b.load(1));
}

// A chunk that has crossed already goes back. The borrower may shut its end before the chunk is
// sent; then it connects again, and the test sends another one.
TEST_F(LentChunksTest, ABorrowerWithoutADeviceRefusesThem) {
  const FileDescriptor listener = *listen_for_pages(socket_);
  Borrowing b("b", test::kLendToken, kOfAll);
  b.borrower->set_loans({loan(socket_, kLent, kLent)});
  std::vector<std::int64_t> crossed;
  std::vector<std::int64_t> returned;
  for (std::int64_t number = 1; crossed.empty() && number < 100; ++number) {
    pollfd ready{listener.get(), POLLIN, 0};
    ASSERT_EQ(::poll(&ready, 1, 60'000), 1);
    PageLink link(
        FileDescriptor(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)));
    ASSERT_TRUE(link.send({.kind = PageMessageKind::kChallenge}).value_or(false));
    ASSERT_TRUE(await([&] {
      auto message = link.receive();
      if (!message) return true;
      if (!*message) return false;
      if ((*message)->kind == PageMessageKind::kReturned) returned.push_back((*message)->number);
      if ((*message)->kind != PageMessageKind::kHello) return false;
      PageMessage welcome{.kind = PageMessageKind::kWelcome, .bytes = kChunk};
      welcome.tag =
          page_proof(page_link_key(test::kLendToken), PageEnd::kLender, {}, (*message)->nonce, "b");
      EXPECT_TRUE(link.send(welcome).value_or(false));
      const PageMessage chunk{.kind = PageMessageKind::kChunk, .number = number};
      if (link.send(chunk, listener.get()).value_or(false)) crossed.push_back(number);
      return false;
    }));
  }
  EXPECT_EQ(returned, crossed);
  EXPECT_EQ(crossed.size(), 1U);
  EXPECT_EQ(b.memory->given(), 0);
}

// A lender of the test's own, whose borrower has been welcomed if `welcomed`. Null: none came.
std::unique_ptr<PageLink> lender_of_b(const FileDescriptor& listener, bool welcomed) {
  pollfd ready{listener.get(), POLLIN, 0};
  if (::poll(&ready, 1, 60'000) != 1) return nullptr;
  auto link = std::make_unique<PageLink>(
      FileDescriptor(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)));
  EXPECT_TRUE(link->send({.kind = PageMessageKind::kChallenge}).value_or(false));
  const bool answered = await([&] {
    auto message = link->receive();
    if (!message || !*message || (*message)->kind != PageMessageKind::kHello) return false;
    if (!welcomed) return true;
    PageMessage welcome{.kind = PageMessageKind::kWelcome, .bytes = kChunk};
    welcome.tag =
        page_proof(page_link_key(test::kLendToken), PageEnd::kLender, {}, (*message)->nonce, "b");
    return link->send(welcome).value_or(false);
  });
  return answered ? std::move(link) : nullptr;
}

// The numbers of the chunks that come back until the borrower closes its end.
std::vector<std::int64_t> returned_until_the_end(PageLink& link) {
  std::vector<std::int64_t> numbers;
  EXPECT_TRUE(await([&] {
    for (;;) {
      auto message = link.receive();
      if (!message) return true;
      if (!*message) return false;
      EXPECT_EQ((*message)->kind, PageMessageKind::kReturned);
      numbers.push_back((*message)->number);
    }
  }));
  return numbers;
}

// The lender breaks the protocol, but it counts the chunk as lent.
TEST_F(LentChunksTest, AChunkBeforeTheWelcomeGoesBack) {
  const FileDescriptor listener = *listen_for_pages(socket_);
  Borrowing b("b", test::kLendToken, kOfAll, open_chunks);
  b.borrower->set_loans({loan(socket_, kLent, kLent)});
  const auto link = lender_of_b(listener, false);
  ASSERT_TRUE(link);
  ASSERT_TRUE(
      *link->send({.kind = PageMessageKind::kChunk, .bytes = kChunk, .number = 3}, listener.get()));
  EXPECT_EQ(returned_until_the_end(*link), std::vector<std::int64_t>{3});
  EXPECT_EQ(b.memory->given(), 0);
}

// A lender that is stopped reads nothing, and its socket holds some 300 messages. The rest waits.
TEST_F(LentChunksTest, ALenderThatReadsLateHearsOfEachChunk) {
  constexpr std::int64_t kMany = 500;
  const FileDescriptor listener = *listen_for_pages(socket_);
  const FileDescriptor memory = *create_shared_memory("chunk", kChunk);
  Borrowing b("b", test::kLendToken, kMany * kChunk, open_chunks);
  for (const bool by_lender : {true, false}) {
    b.borrower->set_loans({loan(socket_, kMany * kChunk, kMany * kChunk)});
    const auto link = lender_of_b(listener, true);
    ASSERT_TRUE(link);
    std::vector<std::int64_t> crossed;
    while (crossed.size() < kMany) {
      const auto number = static_cast<std::int64_t>(crossed.size());
      const PageMessage chunk{
          .kind = PageMessageKind::kChunk, .bytes = (number + 1) * kChunk, .number = number};
      ASSERT_TRUE(await([&] { return link->send(chunk, memory.get()).value_or(false); }));
      crossed.push_back(number);
    }
    ASSERT_TRUE(await([&] { return b.memory->usable() == kMany * kChunk; }));
    // The last chunk goes back first.
    std::ranges::reverse(crossed);
    if (by_lender) {
      ASSERT_TRUE(*link->send({.kind = PageMessageKind::kBacked}));
      ASSERT_TRUE(await([&] { return b.borrower->in_use() == 0; }));
      std::vector<std::int64_t> returned;
      ASSERT_TRUE(await([&] {
        auto message = link->receive();
        if (message && *message) returned.push_back((*message)->number);
        return !message || returned.size() == crossed.size();
      }));
      EXPECT_EQ(returned, crossed);
    }
    // The loan ends, and with it the link: not before all is told.
    b.borrower->set_loans({});
    ASSERT_TRUE(await([&] { return b.borrower->in_use() == 0; }));
    const std::vector<std::int64_t> rest = returned_until_the_end(*link);
    EXPECT_EQ(rest, by_lender ? std::vector<std::int64_t>{} : crossed);
  }
}

// Without peer access between two GPUs. Nothing of it stays lent.
TEST_F(LentChunksTest, AChunkThatCannotBeMappedGoesBack) {
  start();
  grant(kLent);
  std::atomic<int> opened = 0;
  Borrowing b("b", test::kLendToken, kOfAll, [&](std::int64_t bytes) {
    ++opened;
    auto chunks = std::make_unique<MemfdChunks>(bytes);
    chunks->refuses_imports = true;
    return Result<std::unique_ptr<DeviceChunks>>(std::move(chunks));
  });
  b.borrower->set_loans({loan(socket_, kLent, kLent)});
  ASSERT_TRUE(await([&] { return opened >= 2; }));  // it tries again
  b.borrower->set_loans({});
  ASSERT_TRUE(await([&] { return lender_->borrowers() == 0; }));
  ASSERT_TRUE(await([&] { return lender_->backed() == 0; }));
  EXPECT_EQ(b.memory->given(), 0);
}

TEST_F(LentChunksTest, ALenderThatEndsTakesNothingFromAProcess) {
  start();
  Borrowing b("b", test::kLendToken, kOfAll, open_chunks);
  grant(kLent);
  b.borrower->set_loans({loan(socket_, kLent, kLent)});
  ASSERT_TRUE(await([&] { return b.memory->usable() == kLent; }));
  lender_.reset();
  ASSERT_TRUE(await([&] { return b.borrower->in_use() == 0; }));
  start();
  grant(kLent);
  ASSERT_TRUE(await([&] { return b.memory->usable() == kLent; }));
  EXPECT_TRUE(b.save(1));
  EXPECT_TRUE(b.load(1));
}

// A connection of the same party takes the place of the first one, which may still map chunks:
// these count until it has said that it dropped them.
TEST_F(LentChunksTest, ABorrowerThatIsReplacedGivesItsChunksBackFirst) {
  start();
  grant(kOfAll);
  Borrowing first("b", test::kLendToken, kOfAll, open_chunks);
  first.borrower->set_loans({loan(socket_, kOfAll, kOfAll)});
  ASSERT_TRUE(await([&] { return first.memory->usable() == kOfAll; }));
  PageLink link(*connect_for_pages(socket_));
  std::int64_t crossed = 0;
  ASSERT_TRUE(await([&] {
    auto message = link.receive();
    if (!message || !*message) return false;
    if ((*message)->kind == PageMessageKind::kChallenge) test::prove(link, (*message)->nonce, "b");
    EXPECT_LE(lender_->backed(), kOfAll);
    crossed += (*message)->kind == PageMessageKind::kChunk ? 1 : 0;
    return crossed == kOfAll / kChunk;
  }));
  EXPECT_EQ(lender_->backed(), kOfAll);
}

TEST_F(LentChunksTest, AReturnOfWhatItHasNotEndsTheLink) {
  start();
  PageLink link(*connect_for_pages(socket_));
  bool closed = false;
  ASSERT_TRUE(await([&] {
    auto message = link.receive();
    if (message && *message && (*message)->kind == PageMessageKind::kChallenge) {
      test::prove(link, (*message)->nonce, "b");
      EXPECT_TRUE(*link.send({.kind = PageMessageKind::kReturned, .number = 7}));
    }
    closed = closed || !message;
    return closed;
  }));
  ASSERT_TRUE(await([&] { return lender_->borrowers() == 0; }));
}

// ---------------------------------------------------------------- processes

TEST_F(LentChunksTest, ChunksOfABorrowerThatDiesComeBack) {
  const BorrowerProcess process(socket_, kLent, open_chunks);
  start();
  grant(kLent);
  ASSERT_TRUE(process.fill());
  EXPECT_EQ(lender_->backed(), kLent);
  process.signal(SIGKILL);  // in the middle of its copies
  ASSERT_TRUE(await([&] { return lender_->backed() == 0 && lender_->borrowers() == 0; }));
  ASSERT_TRUE(await([&] { return lender_->overdue() == 0; }));
}

// The lender is busy, so its socket holds some of the chunks that come back, and the borrower the
// rest. Nothing counts once the borrower has died.
TEST_F(LentChunksTest, ABorrowerThatDiesBeforeTheLenderHasHeardOfEachChunk) {
  constexpr std::int64_t kMany = 400 * kChunk;
  const BorrowerProcess process(socket_, kMany, open_chunks);
  std::mutex busy;
  std::atomic<int> drops = 0;
  auto chunks = std::make_unique<MemfdChunks>(kMany);
  chunks->before_drop = [&] {
    ++drops;
    const std::lock_guard wait(busy);
  };
  lender_ = *PageLender::start({.socket = socket_,
                                .key = page_link_key(test::kLendToken),
                                .most = kMany,
                                .chunks = std::move(chunks)},
                               clock_);
  grant(kMany);
  ASSERT_TRUE(process.fill());
  {
    const std::lock_guard hold(busy);
    recall(kMany, 0);
    ASSERT_TRUE(await([&] { return drops > 0; }));
    process.signal(SIGKILL);
  }
  ASSERT_TRUE(await([&] { return lender_->backed() == 0 && lender_->borrowers() == 0; }));
  ASSERT_TRUE(await([&] { return lender_->overdue() == 0; }));
  EXPECT_EQ(drops, kMany / kChunk);
}

// Nothing takes a chunk from a process. So the lender waits, says so, and lends no other borrower
// what the process may still use.
TEST_F(LentChunksTest, AStoppedBorrowerKeepsItsChunksUntilItGoesOnOrDies) {
  const BorrowerProcess process(socket_, kLent, open_chunks);
  start();
  grant(kLent);
  ASSERT_TRUE(process.fill());
  process.stop();
  lender_->set_grants({{"b", kLent, 0, clock_.now()}, {"c", kOfAll, kOfAll, {}}});
  Borrowing other("c", test::kLendToken, kOfAll, open_chunks);
  other.borrower->set_loans({loan(socket_, kOfAll, kOfAll)});
  ASSERT_TRUE(await([&] { return lender_->overdue() == kLent; }));
  ASSERT_TRUE(await([&] { return other.memory->usable() == kOfAll - kLent; }));
  EXPECT_EQ(lender_->backed(), kOfAll);
  // All goes on: it gives back, and the other one gets the rest.
  process.signal(SIGCONT);
  ASSERT_TRUE(await([&] { return other.memory->usable() == kOfAll; }));
  ASSERT_TRUE(await([&] { return lender_->overdue() == 0; }));
  EXPECT_EQ(lender_->backed(), kOfAll);
}

TEST_F(LentChunksTest, AStoppedBorrowerThatIsKilledGivesItsChunksBack) {
  const BorrowerProcess process(socket_, kLent, open_chunks);
  start();
  grant(kLent);
  ASSERT_TRUE(process.fill());
  process.stop();
  // As when no coordinator answers: nothing is granted any more.
  lender_->set_grants({});
  ASSERT_TRUE(await([&] { return lender_->overdue() == kLent; }));
  EXPECT_EQ(lender_->backed(), kLent);
  process.signal(SIGKILL);
  ASSERT_TRUE(await([&] { return lender_->backed() == 0; }));
  ASSERT_TRUE(await([&] { return lender_->overdue() == 0; }));
}

}  // namespace
}  // namespace sluice
