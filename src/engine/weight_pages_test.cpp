#include "engine/weight_pages.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>

#include "base/file.h"
#include "base/large_pages.h"
#include "base/mapping_guard.h"
#include "tests/support/ticking_clock.h"

namespace sluice {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr auto kLargePage = static_cast<std::size_t>(kLargePageBytes);
constexpr std::size_t kWeightBytes = 21 * kLargePage + 4096 + 17;  // not whole pages only
constexpr std::int64_t kPlenty = std::int64_t{1} << 40;

std::byte weight_byte(std::size_t i) { return std::byte(i * 7 + i / 4096 + i / kLargePage); }

// Each page takes a tick, because a move reads the clock once after each.
using PageClock = test::TickingClock;

// A file that is mapped at a multiple of a large page, as weights are.
class WeightPagesTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string path = testing::TempDir() + "weights_XXXXXX";
    file_ = FileDescriptor(::mkstemp(path.data()));
    ::unlink(path.c_str());
    std::string contents(kWeightBytes, '\0');
    for (std::size_t i = 0; i < kWeightBytes; ++i) contents[i] = static_cast<char>(weight_byte(i));
    ASSERT_EQ(::write(file_.get(), contents.data(), kWeightBytes),
              static_cast<ssize_t>(kWeightBytes));
    space_ =
        ::mmap(nullptr, kWeightBytes + kLargePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(space_, MAP_FAILED);
    auto* const at =
        static_cast<std::byte*>(space_) + -reinterpret_cast<std::uintptr_t>(space_) % kLargePage;
    ASSERT_EQ(::mmap(at, kWeightBytes, PROT_READ, MAP_PRIVATE | MAP_FIXED, file_.get(), 0), at);
    weights_ = {at, kWeightBytes};
    guard_ = MappingGuard(at, kWeightBytes);
  }
  void TearDown() override {
    guard_ = {};
    ::munmap(space_, kWeightBytes + kLargePage);
  }

  WeightPages::Options options() const {
    return {.mappings = {weights_},
            .others = 0,
            .free_bytes = [] { return kPlenty; },
            .least_bytes = kWeightBytes};
  }
  WeightPages::Options many_options() const {
    WeightPages::Options result = options();
    result.mappings.assign(5, weights_);  // each moves what the one before it has moved
    return result;
  }
  static void move(WeightPages& pages) {
    while (!pages.finished()) pages.advance_while_idle();
  }
  bool contents_are_right() const {
    for (std::size_t i = 0; i < kWeightBytes; ++i) {
      if (weights_[i] != weight_byte(i)) return false;
    }
    return true;
  }
  static void skip_without_large_pages() {
    const std::string rule = own_large_page_rule();
    if (rule.empty() || rule == "never") GTEST_SKIP() << "large pages: '" << rule << "'";
  }

  ThreadPool pool_{1};
  FileDescriptor file_;
  void* space_ = nullptr;
  std::span<const std::byte> weights_;
  MappingGuard guard_;
};

TEST_F(WeightPagesTest, AllWholePagesMoveBetweenReads) {
  skip_without_large_pages();
  if (IsSkipped()) return;
  const PageClock clock(WeightPages::kIdleMove / 2);
  WeightPages pages(options(), pool_, clock);
  for (std::size_t i = 0; !pages.finished(); ++i) {
    const std::size_t before = pages.moved();
    pages.advance_while_idle();
    ASSERT_LE(pages.moved() - before, 2 * kLargePage);
    const std::size_t at = i * 4099 % kWeightBytes;
    ASSERT_EQ(weights_[at], weight_byte(at));
  }
  EXPECT_TRUE(contents_are_right());
  EXPECT_EQ(pages.why(), "");
  EXPECT_EQ(pages.moved(), 21 * kLargePage);
  EXPECT_EQ(bytes_in_large_pages(weights_.data(), kWeightBytes), 21 * kLargePage);
  // All pages are one mapping, which cannot be written.
  const auto map = *read_file("/proc/self/maps", 1 << 20);
  const auto begin = reinterpret_cast<std::uintptr_t>(weights_.data());
  EXPECT_THAT(map, HasSubstr(fmt::format("{:x}-{:x} r--p", begin, begin + 21 * kLargePage)));
  pages.advance_while_idle();
  pages.advance_after_step();
}

TEST_F(WeightPagesTest, EachThreadCopiesAPage) {
  skip_without_large_pages();
  if (IsSkipped()) return;
  ThreadPool pool(4);
  const PageClock clock(WeightPages::kIdleMove);
  WeightPages pages(options(), pool, clock);
  pages.advance_while_idle();
  pages.advance_while_idle();
  EXPECT_EQ(pages.moved(), 4 * kLargePage);
  move(pages);
  EXPECT_EQ(pages.why(), "");
  EXPECT_EQ(pages.moved(), 21 * kLargePage);
  EXPECT_EQ(bytes_in_large_pages(weights_.data(), kWeightBytes), 21 * kLargePage);
  EXPECT_TRUE(contents_are_right());
}

TEST_F(WeightPagesTest, WeightsStayWhereMemoryIsShort) {
  skip_without_large_pages();
  if (IsSkipped()) return;
  WeightPages::Options options = this->options();
  options.others = std::int64_t{1} << 30;
  options.free_bytes = [] { return WeightPages::kKeptFreeBytes + (std::int64_t{1} << 30); };
  WeightPages pages(options, pool_);
  move(pages);
  EXPECT_THAT(pages.why(), HasSubstr("1536 MiB are free; large pages and KV memory would take "
                                     "1066 MiB, and 512 MiB are to stay free"));
  EXPECT_EQ(pages.moved(), 0U);
  EXPECT_TRUE(contents_are_right());
}

TEST_F(WeightPagesTest, TheMoveEndsWhenMemoryBecomesShort) {
  skip_without_large_pages();
  if (IsSkipped()) return;
  WeightPages::Options options = many_options();
  int calls = 0;
  options.free_bytes = [&] { return calls++ < 2 ? kPlenty : 0; };
  WeightPages pages(options, pool_);
  move(pages);
  EXPECT_THAT(pages.why(), HasSubstr("0 MiB are free"));
  EXPECT_EQ(pages.moved(), 64 * kLargePage);  // two checks
  EXPECT_TRUE(contents_are_right());
}

// The share holds over all steps, however long they and the pages are, and it is used.
TEST_F(WeightPagesTest, MovesAfterStepsTakeTheirShareOfTheTime) {
  skip_without_large_pages();
  if (IsSkipped()) return;
  struct Case {
    Duration step;
    Duration page;
  };
  for (const auto& [step, page] :
       {Case{milliseconds(25), microseconds(230)}, Case{milliseconds(2), microseconds(230)},
        Case{milliseconds(25), microseconds(4500)}, Case{milliseconds(100), microseconds(4500)}}) {
    SCOPED_TRACE(fmt::format("steps of {} us, pages of {} us", step / microseconds(1),
                             page / microseconds(1)));
    PageClock clock(page);
    WeightPages pages(many_options(), pool_, clock);
    pages.advance_after_step();
    EXPECT_EQ(pages.moved(), 0U);
    const TimePoint begin = clock.time();
    Duration moves{0};
    for (int i = 0; pages.moved() < 100 * kLargePage; ++i) {
      ASSERT_LT(i, 10'000);
      clock.run_step(step - page);  // the clock's reading before the move is the rest
      const std::size_t before = pages.moved();
      pages.advance_after_step();
      const Duration move = static_cast<int>((pages.moved() - before) / kLargePage) * page;
      ASSERT_LE(move, step / WeightPages::kStepsPerMove + page);
      moves += move;
      const Duration steps = clock.time() - begin - moves;
      ASSERT_EQ(steps, (i + 1) * step);
      ASSERT_LE(moves, steps / WeightPages::kStepsPerMove + page);
      ASSERT_GE(moves, steps / WeightPages::kStepsPerMove);
    }
  }
}

TEST_F(WeightPagesTest, LongStepsAndRestsEarnNoLongMove) {
  skip_without_large_pages();
  if (IsSkipped()) return;
  PageClock clock(milliseconds(1));
  WeightPages pages(many_options(), pool_, clock);
  pages.advance_after_step();
  clock.run_step(std::chrono::hours(1));
  pages.advance_after_step();
  EXPECT_EQ(pages.moved(), WeightPages::kLongestMove / milliseconds(1) * kLargePage);
}

TEST_F(WeightPagesTest, MovesWhileIdleKeepARequestWaitingForAMoment) {
  skip_without_large_pages();
  if (IsSkipped()) return;
  const PageClock clock(microseconds(300));
  WeightPages pages(many_options(), pool_, clock);
  pages.advance_while_idle();
  EXPECT_EQ(pages.moved(), 0U);
  for (int i = 0; i < 5; ++i) {
    const TimePoint begin = clock.now();
    pages.advance_while_idle();
    EXPECT_LE(clock.time() - begin, WeightPages::kIdleMove + 2 * microseconds(300));
  }
  EXPECT_EQ(pages.moved(), 5 * 14 * kLargePage);  // 4.2 ms each
}

TEST_F(WeightPagesTest, SmallWeightsStay) {
  WeightPages::Options options = this->options();
  options.least_bytes = kWeightBytes + 1;
  WeightPages pages(options, pool_);
  EXPECT_TRUE(pages.finished());
  pages.advance_while_idle();
  EXPECT_EQ(pages.moved(), 0U);
  EXPECT_EQ(bytes_in_large_pages(weights_.data(), kWeightBytes), 0U);
}

TEST_F(WeightPagesTest, EndsWhileItMoves) {
  const PageClock clock(milliseconds(1));
  for (int i = 0; i < 8; ++i) {
    WeightPages pages(options(), pool_, clock);
    for (int calls = 0; calls < i; ++calls) pages.advance_while_idle();
  }
  EXPECT_TRUE(contents_are_right());
}

// The guard tells that what was read is wrong; the process lives.
TEST_F(WeightPagesTest, ATruncatedFileIsTold) {
  skip_without_large_pages();
  if (IsSkipped()) return;
  ASSERT_EQ(::ftruncate(file_.get(), 4096), 0);
  WeightPages pages(options(), pool_);
  move(pages);
  EXPECT_TRUE(guard_.faulted());
}

}  // namespace
}  // namespace sluice
