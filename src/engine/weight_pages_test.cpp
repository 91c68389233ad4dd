#include "engine/weight_pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
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

TEST_F(WeightPagesTest, AllWholePagesMoveWhileTheyAreRead) {
  skip_without_large_pages();
  if (IsSkipped()) return;
  std::atomic<bool> end{false};
  std::atomic<bool> wrong{false};
  std::thread reader([&] {
    while (!end) {
      for (std::size_t i = 0; i < kWeightBytes && !end; i += 509) {
        if (weights_[i] != weight_byte(i)) wrong = true;
      }
    }
  });
  WeightPages pages(options());
  pages.start();
  const WeightPages::Outcome& outcome = pages.wait();
  end = true;
  reader.join();
  EXPECT_FALSE(wrong);
  EXPECT_TRUE(contents_are_right());
  EXPECT_EQ(outcome.why, "");
  EXPECT_EQ(outcome.moved, 21 * kLargePage);
  // Copies are in large pages, all in one mapping, which cannot be written.
  EXPECT_EQ(bytes_in_large_pages(weights_.data(), kWeightBytes), outcome.copied);
  const auto map = *read_file("/proc/self/maps", 1 << 20);
  char line[64];
  std::snprintf(line, sizeof line, "%lx-%lx r--p",
                reinterpret_cast<std::uintptr_t>(weights_.data()),
                reinterpret_cast<std::uintptr_t>(weights_.data()) + 21 * kLargePage);
  EXPECT_THAT(map, HasSubstr(line));
}

TEST_F(WeightPagesTest, WeightsStayWhereMemoryIsShort) {
  skip_without_large_pages();
  if (IsSkipped()) return;
  WeightPages::Options options = this->options();
  options.others = std::int64_t{1} << 30;
  options.free_bytes = [] { return WeightPages::kKeptFreeBytes + (std::int64_t{1} << 30); };
  WeightPages pages(options);
  pages.start();
  EXPECT_THAT(pages.wait().why, HasSubstr("1536 MiB are free; large pages and KV memory would take "
                                          "1066 MiB, and 512 MiB are to stay free"));
  EXPECT_EQ(pages.wait().moved, 0U);
  EXPECT_TRUE(contents_are_right());
}

// Bytes that have moved stay moved.
TEST_F(WeightPagesTest, TheMoveEndsWhenMemoryBecomesShort) {
  skip_without_large_pages();
  if (IsSkipped()) return;
  WeightPages::Options options = this->options();
  options.mappings.assign(5, weights_);  // six pieces each
  options.least_bytes = 0;
  std::atomic<int> calls{0};
  options.free_bytes = [&] { return calls++ == 0 ? kPlenty : 0; };
  WeightPages pages(options);
  pages.start();
  EXPECT_THAT(pages.wait().why, HasSubstr("0 MiB are free"));
  EXPECT_EQ(pages.wait().moved, 21 * kLargePage + 2 * 4 * kLargePage);  // eight pieces
  EXPECT_TRUE(contents_are_right());
}

TEST_F(WeightPagesTest, SmallWeightsStay) {
  WeightPages::Options options = this->options();
  options.least_bytes = kWeightBytes + 1;
  WeightPages pages(options);
  pages.start();
  EXPECT_EQ(pages.wait().moved, 0U);
  EXPECT_EQ(bytes_in_large_pages(weights_.data(), kWeightBytes), 0U);
}

TEST_F(WeightPagesTest, EndsWhileItMoves) {
  for (int i = 0; i < 20; ++i) {
    WeightPages pages(options());
    pages.start();
    std::this_thread::sleep_for(std::chrono::microseconds(200 * i));
  }
  EXPECT_TRUE(contents_are_right());
}

// The guard tells that what was read is wrong; the process lives.
TEST_F(WeightPagesTest, ATruncatedFileIsTold) {
  skip_without_large_pages();
  if (IsSkipped()) return;
  ASSERT_EQ(::ftruncate(file_.get(), 4096), 0);
  WeightPages pages(options());
  pages.start();
  pages.wait();
  EXPECT_TRUE(guard_.faulted());
}

}  // namespace
}  // namespace sluice
