#include "offload/read_queue.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/rng.h"
#include "tests/support/checkpoint_files.h"

namespace sluice {
namespace {

class CountingIo final : public FileIo {
 public:
  bool admit_read(int /*fd*/, std::uint64_t offset) const override {
    ++reads;
    errno = ENODEV;
    return offset != refused;
  }
  mutable std::atomic<int> reads = 0;
  std::uint64_t refused = ~std::uint64_t{0};
};

class ReadQueueTest : public testing::TestWithParam<bool> {  // with io_uring
 protected:
  void SetUp() override {
    SplitMix64 random(1);
    bytes_.resize(100'000);
    for (std::byte& byte : bytes_) byte = static_cast<std::byte>(random.below(256));
    std::ofstream(folder_.file("data"), std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes_.data()),
               static_cast<std::streamsize>(bytes_.size()));
    file_ = FileDescriptor(::open(folder_.file("data").c_str(), O_RDONLY | O_CLOEXEC));
    ASSERT_TRUE(file_.valid());
    if (!GetParam()) {
      queue_ = make_plain_queue(io_);
      return;
    }
    auto queue = make_uring_queue(io_, 8);
    if (!queue) GTEST_SKIP() << "no io_uring: " << queue.error().message;
    queue_ = *std::move(queue);
  }

  TempDirectory folder_;
  std::vector<std::byte> bytes_;
  FileDescriptor file_;
  CountingIo io_;
  std::unique_ptr<ReadQueue> queue_;
};

TEST_P(ReadQueueTest, EveryReadEndsOnceWithItsBytes) {
  const int depth = queue_->depth();
  EXPECT_EQ(depth, GetParam() ? 8 : 1);
  struct Read {
    std::uint64_t offset = 0;
    std::vector<std::byte> memory;
    bool under_way = false;
  };
  std::vector<Read> reads(static_cast<std::size_t>(depth));
  SplitMix64 random(2);
  int begun = 0;
  int under_way = 0;
  while (begun < 1000 || under_way > 0) {
    const auto tag = static_cast<int>(random.below(static_cast<std::uint64_t>(depth)));
    Read& read = reads[static_cast<std::size_t>(tag)];
    if (begun < 1000 && !read.under_way) {
      read.offset = random.below(90'000);
      read.memory.assign(1 + random.below(10'000), std::byte{0});
      read.under_way = true;
      queue_->begin(tag, file_.get(), read.memory, read.offset);
      ++begun;
      ++under_way;
      continue;
    }
    if (under_way == 0) continue;
    const ReadQueue::End end = queue_->wait();
    Read& ended = reads.at(static_cast<std::size_t>(end.tag));
    ASSERT_TRUE(ended.under_way);
    ASSERT_EQ(end.error, 0);
    ASSERT_TRUE(std::ranges::equal(ended.memory,
                                   std::span(bytes_).subspan(ended.offset, ended.memory.size())));
    ended.under_way = false;
    --under_way;
  }
  EXPECT_EQ(io_.reads, 1000);
}

TEST_P(ReadQueueTest, AFailedReadHasItsCause) {
  std::array<std::byte, 100> memory{};
  queue_->begin(0, file_.get(), memory, bytes_.size() - 50);
  EXPECT_EQ(queue_->wait().error, EIO) << "the file is too short";
  queue_->begin(0, -1, memory, 0);
  EXPECT_EQ(queue_->wait().error, EBADF);
  io_.refused = 7;
  queue_->begin(0, file_.get(), memory, 7);
  EXPECT_EQ(queue_->wait().error, ENODEV);
  queue_->begin(0, file_.get(), memory, 8);
  EXPECT_EQ(queue_->wait().error, 0);
}

TEST_P(ReadQueueTest, ItEndsWithReadsUnderWay) {
  std::vector<std::byte> memory(10'000);
  queue_->begin(0, file_.get(), memory, 0);
  queue_.reset();
  SUCCEED() << "its memory may go now";
}

std::string name_of(const testing::TestParamInfo<bool>& info) {
  return info.param ? "Uring" : "Plain";
}
INSTANTIATE_TEST_SUITE_P(Kinds, ReadQueueTest, testing::Bool(), name_of);

TEST(ReadQueue, TheLogSaysWhyThereIsNoUring) {
  const FileIo io;
  const auto none = make_uring_queue(io, 100'000);  // more than any kernel takes
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message, testing::HasSubstr("io_uring_setup: "));
  EXPECT_EQ(make_read_queue(io, /*uring=*/false, 4096, "kv")->depth(), 1);
  if (make_uring_queue(io, 8)) {
    EXPECT_EQ(make_read_queue(io, /*uring=*/true, 4096, "kv")->depth(), 8);
    EXPECT_EQ(make_read_queue(io, /*uring=*/true, std::uint64_t{5} << 20, "kv")->depth(), 3);
  }
}

}  // namespace
}  // namespace sluice
