// Lenders and borrowers of pages. Both ends of the faults are processes: a borrower is forked
// before this process has any thread.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <thread>

#include "base/large_pages.h"
#include "base/shared_memory.h"
#include "lent_pages/page_borrower.h"
#include "lent_pages/page_lender.h"
#include "lent_pages/page_link.h"
#include "tests/support/aligned_mapping.h"
#include "tests/support/borrowing.h"

namespace sluice {
namespace {

using test::await;
using test::loan;

// SLUICE_LEND_MIB: for figures of PagesComeBackFromAStoppedBorrower, with blocks as large as KV
// blocks are; the other tests need the default.
const char* const given_mib = std::getenv("SLUICE_LEND_MIB");
const std::int64_t kPage = given_mib != nullptr ? 256 << 10 : 4096;
const std::int64_t kLoan =
    given_mib != nullptr ? std::int64_t{std::atoi(given_mib)} << 20 : 64 * kPage;
const std::int64_t kMost = 4 * kLoan;
constexpr std::string_view kToken = test::kLendToken;

// The file that a lender gives to the party "b", which proves the token by this link.
FileDescriptor lent_file(PageLink& link) {
  FileDescriptor file;
  EXPECT_TRUE(await([&] {
    auto message = link.receive();
    if (!message || !*message) return false;
    if ((*message)->kind == PageMessageKind::kChallenge) test::prove(link, (*message)->nonce, "b");
    if ((*message)->kind == PageMessageKind::kWelcome) file = std::move((*message)->descriptor);
    return file.valid();
  }));
  return file;
}

struct FileBorrowing : test::Borrowing {
  FileBorrowing(const std::string& party, std::string_view token)
      : test::Borrowing(party, token, kMost, {}, {.page = kPage}) {}
};

class LentPagesTest : public testing::Test {
 protected:
  void start(std::string_view token = kToken) {
    lender_ =
        *PageLender::start({.socket = socket_, .key = page_link_key(token), .most = kMost}, clock_);
  }
  void grant(std::int64_t bytes) { lender_->set_grants({{"b", bytes, bytes, {}}}); }

  SystemClock clock_;
  const std::string socket_ = test::unique_socket();
  std::unique_ptr<PageLender> lender_;
};

TEST_F(LentPagesTest, APageGoesThereAndBack) {
  start();
  FileBorrowing b("b", kToken);
  b.borrower->set_loans({loan(socket_, kLoan, kLoan)});
  ASSERT_TRUE(await([&] { return lender_->borrowers() == 1; }));
  EXPECT_EQ(lender_->backed(), 0);
  grant(kLoan);
  ASSERT_TRUE(await([&] { return b.memory->usable() == kLoan; }));
  EXPECT_EQ(lender_->backed(), kLoan);  // taken before it is used
  for (int i = 0; i < 64; ++i) ASSERT_TRUE(b.save(i));
  for (int i = 0; i < 64; ++i) ASSERT_TRUE(b.load(i));
  EXPECT_EQ(lender_->backed(), kLoan);
  // By consent: the borrower stops to use a half, and then the coordinator says less to the lender.
  b.borrower->set_loans({loan(socket_, kLoan, kLoan / 2)});
  ASSERT_TRUE(await([&] { return b.borrower->in_use() == kLoan / 2; }));
  grant(kLoan / 2);
  ASSERT_TRUE(await([&] { return lender_->backed() == kLoan / 2; }));
  int found = 0;
  for (int i = 0; i < 64; ++i) found += b.load(i) ? 1 : 0;
  EXPECT_EQ(found, 32);
  // The loan is over.
  b.borrower->set_loans({});
  ASSERT_TRUE(await([&] { return b.borrower->in_use() == 0 && lender_->backed() == 0; }));
}

TEST_F(LentPagesTest, OnlyHoldersOfTheTokenLendAndBorrow) {
  start("another token, of another operator");
  grant(kLoan);
  FileBorrowing b("b", kToken);
  b.borrower->set_loans({loan(socket_, kLoan, kLoan)});
  ASSERT_TRUE(await([&] { return lender_->refused() > 1; }));  // it tries again
  EXPECT_EQ(lender_->borrowers(), 0);
  EXPECT_EQ(b.memory->given(), 0);
}

TEST_F(LentPagesTest, ABorrowerTakesNothingFromALenderWithoutTheToken) {
  // It says what a lender says, and cannot prove the token.
  FileDescriptor listener = *listen_for_pages(socket_);
  FileBorrowing b("b", kToken);
  b.borrower->set_loans({loan(socket_, kLoan, kLoan)});
  pollfd ready{listener.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&ready, 1, 60'000), 1);
  PageLink link(FileDescriptor(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)));
  ASSERT_TRUE(*link.send({.kind = PageMessageKind::kChallenge}));
  ASSERT_TRUE(*link.send({.kind = PageMessageKind::kWelcome}, listener.get()));
  bool closed = false;
  ASSERT_TRUE(await([&] {
    closed = closed || !link.receive();
    return closed;
  }));
  EXPECT_EQ(b.memory->given(), 0);
}

TEST_F(LentPagesTest, WrongMessagesEndALinkAndNothingElse) {
  start();
  const auto answer_to = [&](const PageMessage& message, int descriptor) {
    PageLink link(*connect_for_pages(socket_));
    EXPECT_TRUE(*link.send(message, descriptor));
    bool closed = false;
    return await([&] {
      const auto got = link.receive();
      closed = closed || !got;
      return closed;
    });
  };
  PageMessage replay;
  replay.kind = PageMessageKind::kHello;
  replay.party = "b";  // a proof of another connection
  replay.tag = page_proof(page_link_key(kToken), PageEnd::kBorrower, {}, replay.nonce, "b");
  EXPECT_TRUE(answer_to(replay, -1));
  EXPECT_TRUE(answer_to({.kind = PageMessageKind::kBacked, .bytes = 1 << 20}, 0));
  EXPECT_TRUE(answer_to({.kind = static_cast<PageMessageKind>(77)}, -1));
  FileDescriptor raw = *connect_for_pages(socket_);
  ASSERT_EQ(::send(raw.get(), "x", 1, 0), 1);
  EXPECT_EQ(lender_->backed(), 0);
  // The next one is served.
  FileBorrowing b("b", kToken);
  grant(kLoan);
  b.borrower->set_loans({loan(socket_, kLoan, kLoan)});
  EXPECT_TRUE(await([&] { return b.memory->usable() == kLoan; }));
}

TEST_F(LentPagesTest, ALenderThatEndsTakesItsMemoryWithIt) {
  start();
  FileBorrowing b("b", kToken);
  grant(kLoan);
  b.borrower->set_loans({loan(socket_, kLoan, kLoan)});
  ASSERT_TRUE(await([&] { return b.memory->usable() == kLoan; }));
  ASSERT_TRUE(b.save(1));
  lender_.reset();
  ASSERT_TRUE(await([&] { return b.memory->given() == 0; }));
  EXPECT_FALSE(b.load(1));
  // A later one at the same place.
  start();
  grant(kLoan);
  ASSERT_TRUE(await([&] { return b.memory->usable() == kLoan; }));
  EXPECT_FALSE(b.load(1));
  EXPECT_TRUE(b.save(1));
  EXPECT_TRUE(b.load(1));
}

// Large holes need time: they begin before the deadline, in slices, and small ones do not.
TEST_F(LentPagesTest, LargeRecallsBeginBeforeTheirDeadline) {
  const std::int64_t large = std::int64_t{80} << 20;
  PageLender::Options options{
      .socket = socket_, .key = page_link_key(kToken), .most = large + kLoan};
  options.take_rate = static_cast<double>(large) / 7200;
  lender_ = *PageLender::start(std::move(options), clock_);
  FileBorrowing b("b", kToken);
  b.borrower->set_loans({loan(socket_, large, large)});
  FileBorrowing c("c", kToken);
  c.borrower->set_loans({loan(socket_, kLoan, kLoan)});
  lender_->set_grants({{"b", large, large, {}}, {"c", kLoan, kLoan, {}}});
  ASSERT_TRUE(await([&] { return lender_->backed() == large + kLoan; }));
  const TimePoint deadline = clock_.now() + std::chrono::hours(1);
  // 80 MiB take two hours, so two slices of 32 MiB are late already. The rest is not.
  lender_->set_grants({{"b", large, 0, deadline}, {"c", kLoan, kLoan, {}}});
  const std::int64_t rest = std::int64_t{16} << 20;
  ASSERT_TRUE(await([&] { return lender_->backed() == rest + kLoan; }));
  ASSERT_TRUE(await([&] { return b.memory->given() == rest; }));  // it hears of it
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(lender_->backed(), rest + kLoan);
  EXPECT_EQ(lender_->latest_return(), Duration{0});
  // After the deadline: all of it at once, and nothing of the other's.
  lender_->set_grants({{"b", large, 0, clock_.now()}, {"c", kLoan, kLoan, {}}});
  ASSERT_TRUE(await([&] { return lender_->backed() == kLoan; }));
  EXPECT_GT(lender_->latest_return(), Duration{0});
  EXPECT_EQ(c.memory->usable(), kLoan);
}

// Large pages come back much faster. Memory that grows by small parts has them, too.
TEST_F(LentPagesTest, LentMemoryIsInLargePages) {
  const std::int64_t most = 4 * kLargePageBytes;
  const std::int64_t first = kLargePageBytes + kLargePageBytes / 2;
  const FileDescriptor probe = *create_shared_memory("probe", kLargePageBytes);
  if (!take_large_pages(probe.get(), 0, kLargePageBytes)) {
    GTEST_SKIP() << "shmem_enabled is " << shared_large_page_rule();
  }
  lender_ =
      *PageLender::start({.socket = socket_, .key = page_link_key(kToken), .most = most}, clock_);
  lender_->set_grants({{"b", first, first, {}}});
  PageLink link(*connect_for_pages(socket_));
  const FileDescriptor file = lent_file(link);
  ASSERT_TRUE(await([&] { return lender_->backed() == first; }));
  ASSERT_EQ(::pwrite(file.get(), "x", 1, first - 1), 1);
  lender_->set_grants({{"b", most, most, {}}});
  ASSERT_TRUE(await([&] { return lender_->backed() == most; }));
  const std::byte* const map = test::map_aligned(file, static_cast<std::size_t>(most));
  ASSERT_NE(map, MAP_FAILED);
  EXPECT_EQ(map[first - 1], std::byte{'x'});
  EXPECT_EQ(map[0], std::byte{0});
  EXPECT_EQ(map[2 * kLargePageBytes], std::byte{0});
  EXPECT_EQ(map[3 * kLargePageBytes], std::byte{0});
  const std::size_t large = bytes_in_large_pages(map, static_cast<std::size_t>(most));
  EXPECT_GE(large, static_cast<std::size_t>(3 * kLargePageBytes));
  // Under "never" the part that was small is collapsed, too.
  if (!grants_large_pages(shared_large_page_rule())) {
    EXPECT_EQ(large, static_cast<std::size_t>(most));
  }
}

// Takes and punches while loads run: each is exact or a miss.
TEST_F(LentPagesTest, AHoleInTheMiddleOfAReadIsAMiss) {
  start();
  FileBorrowing b("b", kToken);
  grant(kLoan);
  b.borrower->set_loans({loan(socket_, kLoan, kLoan)});
  ASSERT_TRUE(await([&] { return b.memory->usable() == kLoan; }));
  std::atomic<bool> over = false;
  std::thread taker([&] {
    while (!over) {
      // At once: the borrower is not asked.
      lender_->set_grants({{"b", kLoan, kPage, TimePoint{}}});
      std::this_thread::yield();
      grant(kLoan);
      std::this_thread::yield();
    }
  });
  int hits = 0;
  int misses = 0;
  for (int i = 0; i < 4000; ++i) {
    static_cast<void>(b.save(i % 64));
    (b.load(i % 64) ? hits : misses) += 1;
  }
  over = true;
  taker.join();
  EXPECT_EQ(hits + misses, 4000);
  grant(kLoan);
  ASSERT_TRUE(await([&] { return lender_->backed() == kLoan && b.save(5) && b.load(5); }));
}

// ---------------------------------------------------------------- processes

TEST_F(LentPagesTest, ABorrowerThatDiesGivesItsMemoryBack) {
  const test::BorrowerProcess process(socket_, kLoan, {}, {.page = kPage});
  start();
  grant(kLoan);
  ASSERT_TRUE(process.fill());
  EXPECT_EQ(lender_->backed(), kLoan);
  process.signal(SIGKILL);  // in the middle of its copies
  ASSERT_TRUE(await([&] { return lender_->backed() == 0 && lender_->borrowers() == 0; }));
}

// The figure of docs/elastic-memory.md: make campaign NAME=lend-pages.
TEST_F(LentPagesTest, PagesComeBackFromAStoppedBorrower) {
  const char* const given = std::getenv("SLUICE_LEND_TRIALS");
  const int trials = given != nullptr ? std::atoi(given) : 20;
  const test::BorrowerProcess process(socket_, kLoan, {}, {.page = kPage});
  start();
  for (int i = 0; i < trials; ++i) {
    grant(kLoan);
    ASSERT_TRUE(await([&] { return lender_->backed() == kLoan; }));
    ASSERT_TRUE(process.fill());
    process.stop();
    // As after a recall of the coordinator.
    lender_->set_grants({{"b", kLoan, 0, clock_.now() + PageOffer::kGrace}});
    ASSERT_TRUE(await([&] { return lender_->backed() == 0; }));
    // Pages that it writes when it goes on are taken again, until it knows.
    process.signal(SIGCONT);
    ASSERT_TRUE(await([&] { return lender_->backed() == 0; }));
  }
  const double late = std::chrono::duration<double, std::milli>(lender_->latest_return()).count();
  ::testing::Test::RecordProperty("latest_ms", std::to_string(late));
  if (given != nullptr) {
    std::printf("%d trials of %d KiB: pages back at most %.1f ms after the deadline\n", trials,
                static_cast<int>(kLoan >> 10), late);
    EXPECT_LT(late, 50);
  }
}

// The kernel keeps the borrower from changing the size, and from sealing the memory.
TEST_F(LentPagesTest, ABorrowerCannotKeepTheMemory) {
  start();
  grant(kLoan);
  PageLink link(*connect_for_pages(socket_));
  const FileDescriptor file = lent_file(link);
  ASSERT_TRUE(file.valid());
  ASSERT_TRUE(await([&] { return lender_->backed() == kLoan; }));
  EXPECT_NE(::ftruncate(file.get(), 0), 0);
  EXPECT_NE(::ftruncate(file.get(), 2 * kMost), 0);
  EXPECT_NE(::fcntl(file.get(), F_ADD_SEALS, F_SEAL_WRITE), 0);
  lender_->set_grants({});
  ASSERT_TRUE(await([&] { return lender_->backed() == 0; }));
  // A write to the hole takes memory again: the lender looks, and takes it back.
  ASSERT_EQ(::pwrite(file.get(), "x", 1, 5 * kPage), 1);
  struct stat facts{};
  ASSERT_TRUE(await([&] { return ::fstat(file.get(), &facts) == 0 && facts.st_blocks == 0; }));
}

}  // namespace
}  // namespace sluice
