#include "engine/weight_pages.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>

#include "base/file.h"
#include "base/large_pages.h"
#include "base/mapping_guard.h"

namespace sluice {
namespace {

using testing::HasSubstr;

constexpr auto kLargePage = static_cast<std::size_t>(kLargePageBytes);
constexpr std::size_t kWeightBytes = 21 * kLargePage + 4096 + 17;  // more than two pieces
constexpr std::int64_t kPlenty = std::int64_t{1} << 40;

std::byte weight_byte(std::size_t i) { return std::byte(i * 7 + i / 4096 + i / kLargePage); }

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
  static void move(WeightPages& pages) {
    while (!pages.finished()) pages.advance();
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

  FileDescriptor file_;
  void* space_ = nullptr;
  std::span<const std::byte> weights_;
  MappingGuard guard_;
};

TEST_F(WeightPagesTest, AllWholePagesMoveBetweenReads) {
  skip_without_large_pages();
  if (IsSkipped()) return;
  WeightPages pages(options());
  for (std::size_t i = 0; !pages.finished(); ++i) {
    const std::size_t before = pages.placed();
    pages.advance(2 * kLargePage);
    ASSERT_LE(pages.placed() - before, 2 * kLargePage);
    const std::size_t at = i * 4099 % kWeightBytes;
    ASSERT_EQ(weights_[at], weight_byte(at));
  }
  EXPECT_TRUE(contents_are_right());
  EXPECT_EQ(pages.why(), "");
  EXPECT_EQ(pages.placed(), 21 * kLargePage);
  EXPECT_EQ(bytes_in_large_pages(weights_.data(), kWeightBytes), 21 * kLargePage);
  // All copies are one mapping, which cannot be written.
  const auto map = *read_file("/proc/self/maps", 1 << 20);
  const auto begin = reinterpret_cast<std::uintptr_t>(weights_.data());
  EXPECT_THAT(map, HasSubstr(fmt::format("{:x}-{:x} r--p", begin, begin + 21 * kLargePage)));
  pages.advance();
}

TEST_F(WeightPagesTest, WeightsStayWhereMemoryIsShort) {
  skip_without_large_pages();
  if (IsSkipped()) return;
  WeightPages::Options options = this->options();
  options.others = std::int64_t{1} << 30;
  options.free_bytes = [] { return WeightPages::kKeptFreeBytes + (std::int64_t{1} << 30); };
  WeightPages pages(options);
  move(pages);
  EXPECT_THAT(pages.why(), HasSubstr("1536 MiB are free; large pages and KV memory would take "
                                     "1066 MiB, and 512 MiB are to stay free"));
  EXPECT_EQ(pages.placed(), 0U);
  EXPECT_TRUE(contents_are_right());
}

// Bytes that have been copied move nevertheless.
TEST_F(WeightPagesTest, TheMoveEndsWhenMemoryBecomesShort) {
  skip_without_large_pages();
  if (IsSkipped()) return;
  WeightPages::Options options = this->options();
  options.mappings.assign(5, weights_);  // six pieces each
  std::atomic<int> calls{0};
  options.free_bytes = [&] { return calls++ == 0 ? kPlenty : 0; };
  WeightPages pages(options);
  move(pages);
  EXPECT_THAT(pages.why(), HasSubstr("0 MiB are free"));
  EXPECT_EQ(pages.placed(), 21 * kLargePage + 2 * 4 * kLargePage);  // eight pieces
  EXPECT_TRUE(contents_are_right());
}

TEST_F(WeightPagesTest, CopiesWaitForTheirPlaces) {
  skip_without_large_pages();
  if (IsSkipped()) return;
  WeightPages::Options options = this->options();
  options.mappings.assign(5, weights_);
  WeightPages pages(options);
  pages.advance();
  while (pages.copied() < WeightPages::kAheadBytes) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_LE(pages.copied(), WeightPages::kAheadBytes + 4 * kLargePage);
  move(pages);
  EXPECT_EQ(pages.placed(), 5 * 21 * kLargePage);
  EXPECT_EQ(pages.why(), "");
  EXPECT_TRUE(contents_are_right());
}

// Copies beside long steps would wait for many of these if each was followed by a millisecond.
TEST(WeightPagesPace, LongerStepsAreFollowedByMore) {
  using std::chrono::milliseconds;
  constexpr std::size_t kRound = WeightPages::kRoundBytes;
  EXPECT_EQ(WeightPages::bytes_after(Duration::zero()), kRound);
  EXPECT_EQ(WeightPages::bytes_after(milliseconds(63)), kRound);
  EXPECT_EQ(WeightPages::bytes_after(milliseconds(64)), 2 * kRound);
  EXPECT_EQ(WeightPages::bytes_after(milliseconds(500)), 15 * kRound);
  EXPECT_EQ(WeightPages::bytes_after(std::chrono::hours(1)), 64 * kRound);
}

TEST_F(WeightPagesTest, SmallWeightsStay) {
  WeightPages::Options options = this->options();
  options.least_bytes = kWeightBytes + 1;
  WeightPages pages(options);
  EXPECT_TRUE(pages.finished());
  pages.advance();
  EXPECT_EQ(pages.placed(), 0U);
  EXPECT_EQ(bytes_in_large_pages(weights_.data(), kWeightBytes), 0U);
}

TEST_F(WeightPagesTest, EndsWhileItMoves) {
  for (int i = 0; i < 20; ++i) {
    WeightPages pages(options());
    pages.advance();
    std::this_thread::sleep_for(std::chrono::microseconds(200 * i));
    pages.advance();
  }
  EXPECT_TRUE(contents_are_right());
}

// The guard tells that what was read is wrong; the process lives.
TEST_F(WeightPagesTest, ATruncatedFileIsTold) {
  skip_without_large_pages();
  if (IsSkipped()) return;
  ASSERT_EQ(::ftruncate(file_.get(), 4096), 0);
  WeightPages pages(options());
  move(pages);
  EXPECT_TRUE(guard_.faulted());
}

}  // namespace
}  // namespace sluice
