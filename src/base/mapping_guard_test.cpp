#include "base/mapping_guard.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "base/thread_pool.h"

namespace sluice {
namespace {

constexpr std::size_t kPage = 4096;

// A mapped file of its own, whose bytes are all 1.
class MappedTestFile {
 public:
  explicit MappedTestFile(std::size_t pages) : bytes_(pages * kPage) {
    std::string pattern = testing::TempDir() + "mapping_guard_XXXXXX";
    fd_ = FileDescriptor(mkstemp(pattern.data()));
    unlink(pattern.c_str());
    const std::string text(bytes_, '\1');
    EXPECT_EQ(write(fd_.get(), text.data(), bytes_), static_cast<ssize_t>(bytes_));
    data_ = static_cast<const volatile char*>(
        mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, fd_.get(), 0));
  }
  ~MappedTestFile() { munmap(const_cast<char*>(data_), bytes_); }
  MappedTestFile(const MappedTestFile&) = delete;
  MappedTestFile& operator=(const MappedTestFile&) = delete;

  void truncate(std::size_t pages) {
    EXPECT_EQ(ftruncate(fd_.get(), static_cast<off_t>(pages * kPage)), 0);
  }
  int at(std::size_t page) const { return data_[page * kPage + 7]; }
  const std::byte* data() const {
    return reinterpret_cast<const std::byte*>(const_cast<const char*>(data_));
  }
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_;
  FileDescriptor fd_;
  const volatile char* data_ = nullptr;
};

TEST(MappingGuard, AMissingPageReadsAsZerosAndIsRemembered) {
  MappedTestFile file(8);
  const MappingGuard guard(file.data(), file.bytes());
  EXPECT_EQ(file.at(7), 1);
  EXPECT_FALSE(guard.faulted());
  file.truncate(3);
  EXPECT_EQ(file.at(2), 1);
  EXPECT_FALSE(guard.faulted()) << "what is still there may be used";
  EXPECT_EQ(file.at(5), 0);
  EXPECT_TRUE(guard.faulted());
  EXPECT_EQ(file.at(7), 0);
  EXPECT_EQ(file.at(2), 1);
}

TEST(MappingGuard, ManyThreadsMayFaultAtOnce) {
  MappedTestFile file(64);
  MappedTestFile other(1);
  const MappingGuard guard(file.data(), file.bytes());
  const MappingGuard untouched(other.data(), other.bytes());
  file.truncate(0);
  std::atomic<int> sum{0};
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t page = 0; page < 64; ++page) sum += file.at((page * 17 + t * 5) % 64);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sum, 0);
  EXPECT_TRUE(guard.faulted());
  EXPECT_FALSE(untouched.faulted());
}

TEST(MappingGuard, ThreadsOfAPoolMayFault) {
  MappedTestFile file(64);
  const MappingGuard guard(file.data(), file.bytes());
  file.truncate(0);
  ThreadPool pool(3);
  std::atomic<int> sum{0};
  std::atomic<int> met{0};
  // Each thread has a task of its own, since none ends before all have begun.
  pool.parallel_for(pool.size(), [&](int task) {
    ++met;
    while (met < pool.size()) std::this_thread::yield();
    sum += file.at(static_cast<std::size_t>(task) * 7);
  });
  EXPECT_EQ(sum, 0);
  EXPECT_TRUE(guard.faulted());
}

TEST(MappingGuard, MovesAndGivesItsPlaceBack) {
  MappedTestFile file(2);
  for (std::size_t i = 0; i < 2 * MappingGuard::kMaxRanges; ++i) {
    MappingGuard first(file.data(), file.bytes());
    MappingGuard second(std::move(first));
    first = std::move(second);
  }
  MappingGuard guard(file.data(), file.bytes());
  file.truncate(0);
  EXPECT_EQ(file.at(1), 0);
  MappingGuard moved(std::move(guard));
  EXPECT_TRUE(moved.faulted());
  EXPECT_FALSE(guard.faulted());  // NOLINT(bugprone-use-after-move): it is empty
}

TEST(MappingGuardDeathTest, OtherBusErrorsStillEndTheProcess) {
  MappedTestFile guarded(1);
  MappedTestFile file(2);
  const MappingGuard guard(guarded.data(), guarded.bytes());
  file.truncate(0);
  EXPECT_DEATH(static_cast<void>(file.at(1)), "");
}

}  // namespace
}  // namespace sluice
