// Borrowers of pages for tests: the borrower's side in this process (Borrowing), and a process of
// its own that saves all the time (BorrowerProcess).
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "lent_pages/page_borrower.h"
#include "lent_pages/page_link.h"
#include "offload/lent_tier.h"
#include "tests/support/tier_moves.h"

namespace sluice::test {

inline constexpr std::string_view kLendToken = "0123456789abcdef";

// The bytes that a page holds, and those of a block that fits.
struct PageSizes {
  std::int64_t page = 4096;
  std::uint64_t block() const { return static_cast<std::uint64_t>(page - 96); }
};

inline std::string unique_socket() {
  static int count = 0;
  return "sluice-test-" + std::to_string(::getpid()) + "-" + std::to_string(++count);
}

// True states only: a test that waits longer than this has failed.
inline bool await(const std::function<bool()>& test) {
  for (int i = 0; i < 60'000; ++i) {
    if (test()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

// Answers a lender's challenge as the party.
inline void prove(PageLink& link, const PageNonce& challenge, const std::string& party) {
  PageMessage hello;
  hello.kind = PageMessageKind::kHello;
  hello.party = party;
  hello.tag = page_proof(page_link_key(kLendToken), PageEnd::kBorrower, challenge, {}, party);
  EXPECT_TRUE(*link.send(hello));
}

inline LoanView loan(const std::string& socket, std::int64_t bytes, std::int64_t keep) {
  return {"lender/pages", "lender", bytes, keep, socket};
}

// The borrower's side: memory, tier and the thread that speaks to the lender.
struct Borrowing {
  Borrowing(const std::string& party, std::string_view token, std::int64_t most,
            OpenDeviceChunks chunks = {}, PageSizes page_sizes = {})
      : sizes(page_sizes),
        memory(std::make_shared<LentMemory>(most)),
        tier(*LentTier::open(memory, sizes.block())),
        borrower(
            *PageBorrower::start(party, page_link_key(token), memory, clock, std::move(chunks))) {}

  static TierPage at(std::int32_t page) {
    return {.page = page, .group = 0, .name = {1, 2}, .tenant = {}};
  }
  std::vector<std::byte> contents(std::int32_t page) const {
    return random_block(sizes.block(), static_cast<std::uint64_t>(page));
  }
  bool save(std::int32_t page) { return save_block(*tier, at(page), contents(page)).has_value(); }
  // The block is exact, or a miss.
  bool load(std::int32_t page) { return load_exactly(*tier, at(page), contents(page)).has_value(); }

  const PageSizes sizes;
  SystemClock clock;
  std::shared_ptr<LentMemory> memory;  // shared with the tier
  std::unique_ptr<LentTier> tier;
  std::unique_ptr<PageBorrower> borrower;
};

// A process with a borrower "b" that saves pages all the time, in all of its loan. REQUIRES: this
// process has no other thread when it is made.
class BorrowerProcess {
 public:
  BorrowerProcess(const std::string& socket, std::int64_t loan_bytes, OpenDeviceChunks chunks = {},
                  PageSizes sizes = {}) {
    int orders[2];
    int answers[2];
    EXPECT_EQ(::pipe2(orders, O_CLOEXEC), 0);
    EXPECT_EQ(::pipe2(answers, O_CLOEXEC), 0);
    process_ = ::fork();
    if (process_ == 0) {
      ::close(orders[1]);
      ::close(answers[0]);
      Borrowing b("b", kLendToken, loan_bytes, std::move(chunks), sizes);
      b.borrower->set_loans({loan(socket, loan_bytes, loan_bytes)});
      live(b, loan_bytes, orders[0], answers[1]);
    }
    ::close(orders[0]);
    ::close(answers[1]);
    orders_ = FileDescriptor(orders[1]);
    answers_ = FileDescriptor(answers[0]);
  }
  ~BorrowerProcess() {
    signal(SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  BorrowerProcess(const BorrowerProcess&) = delete;
  BorrowerProcess& operator=(const BorrowerProcess&) = delete;

  void signal(int number) const { ::kill(process_, number); }
  // All of its threads have stopped.
  void stop() const {
    signal(SIGSTOP);
    int status = 0;
    ASSERT_EQ(::waitpid(process_, &status, WUNTRACED), process_);
    ASSERT_TRUE(WIFSTOPPED(status));
  }
  // Returns once it has written to all of the loan, and goes on.
  bool fill() const {
    char answer = 0;
    return ::write(orders_.get(), "f", 1) == 1 && ::read(answers_.get(), &answer, 1) == 1;
  }

 private:
  [[noreturn]] static void live(Borrowing& b, std::int64_t loan_bytes, int orders, int answers) {
    const auto pages = static_cast<std::int32_t>(loan_bytes / b.sizes.page);
    const std::vector<std::byte> block = b.contents(0);  // of every page: nothing reads them
    int left = -1;                                       // saves until the answer
    for (int i = 0;; ++i) {
      pollfd order{orders, POLLIN, 0};
      char byte = 0;
      if (::poll(&order, 1, 0) == 1) {
        if (::read(orders, &byte, 1) != 1) ::_exit(0);  // the test is over
        left = pages;
      }
      if (b.memory->usable() < loan_bytes) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        continue;
      }
      const Status saved = save_block(*b.tier, Borrowing::at(i % pages), block);
      if (saved && left > 0 && --left == 0 && ::write(answers, "u", 1) != 1) {
        ::_exit(0);
      }
    }
  }

  pid_t process_ = -1;
  FileDescriptor orders_;
  FileDescriptor answers_;
};

}  // namespace sluice::test
