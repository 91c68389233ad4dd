// The disk tier on a disk that fails: full, with errors, slow, gone, damaged, and under a clock
// that jumps. Blocks are lost, and nothing else: no load gives other bytes than those that were
// saved.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "base/rng.h"
#include "offload/disk_tier.h"
#include "offload/page_format.h"
#include "offload/read_queue.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/tier_moves.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr std::uint64_t kFaultBlock = 3000;
constexpr std::uint32_t kSegmentPages = 8;
constexpr SegmentShape kFaultShape{kFaultBlock, kSegmentPages};

// Fails writes or reads from some call on, in the middle of the bytes, or holds them up.
class FaultyIo final : public FileIo {
 public:
  bool write(int fd, std::span<const std::byte> bytes, std::uint64_t offset) const override {
    wait_while_held();
    ++num_writes;
    if (writes_before_error == 0) {
      static_cast<void>(write_at(fd, bytes.first(bytes.size() / 2), offset));
      errno = error;
      return false;
    }
    if (writes_before_error > 0) --writes_before_error;
    return write_at(fd, bytes, offset);
  }
  bool admit_read(int /*fd*/, std::uint64_t /*offset*/) const override {
    wait_while_held();
    if (reads_fail) errno = error;
    return !reads_fail;
  }

  void hold() {
    const std::lock_guard lock(mutex_);
    held_ = true;
  }
  void release() {
    const std::lock_guard lock(mutex_);
    held_ = false;
    changed_.notify_all();
  }
  void await_waiting(int calls) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ == calls; });
  }

  mutable std::atomic<int> writes_before_error = -1;  // -1: no error
  mutable std::atomic<int> num_writes = 0;
  std::atomic<bool> reads_fail = false;
  std::atomic<int> error = EIO;

 private:
  void wait_while_held() const {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !held_; });
    --waiting_;
  }

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable int waiting_ = 0;
  bool held_ = false;
};

class DiskFaultFixture : public testing::Test {
 protected:
  DiskTier::Options options() {
    DiskTier::Options made;
    made.folder = folder_.file("kv");
    made.max_bytes = 2 * kSegmentPages * (kFaultShape.page_bytes() + kRecordBytes);
    made.block_bytes = kFaultBlock;
    made.identity = "model";
    made.segment_bytes = kSegmentPages * (kFaultShape.page_bytes() + kRecordBytes);
    made.free_bytes = 0;
    made.threads = 1;
    made.direct = false;  // a file that is cut within a sector is no error of the test's own writes
    made.io = io_;
    made.uring = uring_;
    made.unix_time = [this] { return now_.load(); };
    return made;
  }
  std::unique_ptr<DiskTier> open(const DiskTier::Options& given) {
    auto tier = DiskTier::open(given, clock_);
    EXPECT_TRUE(tier) << tier.error().message;
    return tier ? *std::move(tier) : nullptr;
  }
  std::unique_ptr<DiskTier> open() { return open(options()); }

  static std::vector<std::byte> block(std::uint64_t name) {
    return test::random_block(kFaultBlock, name);
  }
  static TierPage page(std::int32_t number, std::uint64_t name) {
    return {number, 0, {name, 7}, {}};
  }
  static Status save(KvTier& tier, std::int32_t number, std::uint64_t name) {
    return test::save_block(tier, page(number, name), block(name));
  }
  // Whether the page gives the block of this name.
  static Status load(KvTier& tier, std::int32_t number, std::uint64_t name) {
    return test::load_exactly(tier, page(number, name), block(name));
  }
  std::string segment(int number = 0) const {
    for (const auto& entry : fs::directory_iterator(folder_.file("kv"))) {
      const std::string path = entry.path();
      if (path.ends_with("00" + std::to_string(number) + ".segment")) return path;
    }
    return "";
  }

  TempDirectory folder_;
  ManualClock clock_;
  std::shared_ptr<FaultyIo> io_ = std::make_shared<FaultyIo>();
  std::atomic<std::int64_t> now_ = 1'800'000'000;
  bool uring_ = true;
};

class DiskFaultTest : public DiskFaultFixture, public testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    uring_ = GetParam();
    if (!uring_) return;
    if (const auto queue = make_uring_queue(*io_, 1); !queue) {
      GTEST_SKIP() << "no io_uring: " << queue.error().message;
    }
  }
};

// The writes of a save into a new segment: its header, the page, the record.
TEST_P(DiskFaultTest, AnErrorInTheMiddleOfAnyWriteLosesThatBlockAlone) {
  for (const int error : {ENOSPC, EIO}) {
    for (const int before : {0, 1, 2}) {
      const auto tier = open();
      ASSERT_TRUE(save(*tier, 0, 10));
      io_->error = error;
      io_->writes_before_error = before;
      testing::internal::CaptureStderr();
      const Status status = save(*tier, kSegmentPages, 11);
      const std::string log = testing::internal::GetCapturedStderr();
      ASSERT_FALSE(status);
      EXPECT_THAT(status.error().message, HasSubstr("001.segment: cannot be written"));
      EXPECT_THAT(log, HasSubstr(std::strerror(error)));
      EXPECT_THAT(log, HasSubstr("no block is saved for 30 s"));
      EXPECT_FALSE(tier->accepts_saves());
      EXPECT_TRUE(load(*tier, 0, 10));
      EXPECT_FALSE(load(*tier, kSegmentPages, 11));
      io_->writes_before_error = -1;
      clock_.advance(std::chrono::seconds(31));
      EXPECT_TRUE(tier->accepts_saves());
      EXPECT_TRUE(save(*tier, kSegmentPages, 11));
      EXPECT_TRUE(load(*tier, kSegmentPages, 11));
      fs::remove(segment(1));
    }
  }
}

// Saves of a tier whose thread is held up by the first one, so that it finds the others at once.
class DiskBatchTest : public DiskFaultFixture {
 protected:
  std::vector<TierMove> save_all(DiskTier& tier, const std::vector<std::int32_t>& pages) {
    std::vector<std::vector<std::byte>> blocks;
    for (const std::int32_t number : pages) blocks.push_back(block(name_of(number)));
    io_->hold();
    for (std::size_t i = 0; i < pages.size(); ++i) {
      tier.save(i, page(pages[i], name_of(pages[i])), blocks[i]);
      if (i == 0) io_->await_waiting(1);
    }
    io_->num_writes = 0;
    io_->release();
    std::vector<TierMove> ended;
    while (ended.size() < pages.size()) {
      tier.wait(std::chrono::milliseconds(10));
      tier.poll(ended);
    }
    return ended;
  }
  static std::uint64_t name_of(std::int32_t number) {
    return 100 + static_cast<std::uint64_t>(number);
  }
};

TEST_F(DiskBatchTest, OneWriteTakesThePagesThatFollowEachOther) {
  const std::vector<std::int32_t> pages{0, 2, 3, 4, 6, 7, 8, 9};
  {
    const auto tier = open();
    for (const TierMove& move : save_all(*tier, pages)) EXPECT_TRUE(move.status);
    // Two headers; pages and records of 0, 2 to 4, 6 and 7, and in the next segment 8 and 9.
    EXPECT_EQ(io_->num_writes, 2 + 2 * 4);
    for (const std::int32_t number : pages) EXPECT_TRUE(load(*tier, number, name_of(number)));
  }
  const auto tier = open();
  EXPECT_EQ(tier->take_stored().size(), pages.size());
  for (const std::int32_t number : pages) EXPECT_TRUE(load(*tier, number, name_of(number)));
}

TEST_F(DiskBatchTest, AnErrorLosesTheBlocksOfThatWriteAndNoOthers) {
  const auto tier = open();
  ASSERT_TRUE(save(*tier, 1, 50));
  io_->writes_before_error = 3;  // the first page with its record, and the pages of the others
  const std::vector<TierMove> ended = save_all(*tier, {0, 2, 3});
  EXPECT_TRUE(ended[0].status);
  EXPECT_FALSE(ended[1].status);
  EXPECT_FALSE(ended[2].status);
  EXPECT_TRUE(load(*tier, 0, name_of(0)));
  EXPECT_TRUE(load(*tier, 1, 50));
  for (const std::int32_t number : {2, 3}) EXPECT_FALSE(load(*tier, number, name_of(number)));
}

TEST_P(DiskFaultTest, AHalfWrittenBlockIsNotTakenByTheNextStart) {
  {
    const auto tier = open();
    ASSERT_TRUE(save(*tier, 0, 10));
    ASSERT_TRUE(save(*tier, 1, 11));
    io_->writes_before_error = 0;
    ASSERT_FALSE(save(*tier, 1, 12));
  }
  io_->writes_before_error = -1;
  const auto tier = open();
  EXPECT_TRUE(load(*tier, 0, 10));
  EXPECT_FALSE(load(*tier, 1, 11)) << "its page is overwritten";
  EXPECT_FALSE(load(*tier, 1, 12));
}

TEST_P(DiskFaultTest, AReadErrorIsAnErrorOfItsLoad) {
  const auto tier = open();
  ASSERT_TRUE(save(*tier, 0, 10));
  io_->reads_fail = true;
  const Status status = load(*tier, 0, 10);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("000.segment: cannot be read: Input/output error"));
  EXPECT_EQ(status.error().code, ErrorCode::kUnavailable) << "a later load may succeed";
  EXPECT_TRUE(tier->accepts_saves());
  EXPECT_TRUE(save(*tier, 1, 11));
  io_->reads_fail = false;
  EXPECT_TRUE(load(*tier, 0, 10));
  EXPECT_TRUE(load(*tier, 1, 11));
}

TEST_P(DiskFaultTest, AStartThatCannotReadASegmentFailsAndKeepsIt) {
  {
    const auto tier = open();
    ASSERT_TRUE(save(*tier, 0, 10));
  }
  io_->reads_fail = true;
  const auto failed = DiskTier::open(options(), clock_);
  ASSERT_FALSE(failed);
  EXPECT_THAT(failed.error().message, HasSubstr("000.segment: cannot be read"));
  io_->reads_fail = false;
  EXPECT_EQ(open()->take_stored().size(), 1U);
}

TEST_P(DiskFaultTest, AFileSizeLimitOfTheProcessIsAnErrorOfTheDisk) {
  const auto tier = open();
  ASSERT_TRUE(save(*tier, 0, 10));
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = kFaultShape.page_offset(1) + 100;
  auto* const action = std::signal(SIGXFSZ, SIG_IGN);  // as the program does
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status within = save(*tier, 1, 11);
  const Status second = save(*tier, kSegmentPages, 12);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, action);
  ASSERT_FALSE(within);
  EXPECT_THAT(within.error().message, HasSubstr("000.segment: cannot be written: File too large"));
  ASSERT_FALSE(second);
  EXPECT_THAT(second.error().message, HasSubstr("001.segment: cannot be written: File too large"));
  EXPECT_EQ(segment(1), "") << "no half of a segment stays";
  EXPECT_TRUE(load(*tier, 0, 10));
  EXPECT_TRUE(save(*tier, 1, 11));
}

TEST_P(DiskFaultTest, AFullFilesystemPausesSaves) {
  const std::string mounted = folder_.file("kv");
  fs::create_directory(mounted);
  if (::mount("tmpfs", mounted.c_str(), "tmpfs", 0, "size=64k,mode=0700") != 0) {
    GTEST_SKIP() << "mounting a tmpfs is not permitted here: " << std::strerror(errno);
  }
  struct Unmount {
    std::string path;
    ~Unmount() { EXPECT_EQ(::umount2(path.c_str(), MNT_DETACH), 0); }
  } const unmount{mounted};
  {
    const auto tier = open();
    EXPECT_TRUE(save(*tier, 0, 10));
    const Status status = save(*tier, kSegmentPages, 11);
    ASSERT_FALSE(status);
    EXPECT_THAT(status.error().message, HasSubstr("free")) << "the floor says it before the file";
    std::ofstream(mounted + "/other") << std::string(64 << 10, 'x');
    EXPECT_FALSE(save(*tier, kSegmentPages, 11));
    EXPECT_TRUE(save(*tier, 1, 12)) << "a segment's room is reserved";
    EXPECT_TRUE(load(*tier, 0, 10));
    EXPECT_TRUE(load(*tier, 1, 12));
  }
}

TEST_P(DiskFaultTest, AFilesystemThatBecomesReadOnlyIsToldOnceAndItsBlocksAreRead) {
  const auto tier = open();
  ASSERT_TRUE(save(*tier, 0, 10));
  io_->error = EROFS;
  io_->writes_before_error = 0;
  testing::internal::CaptureStderr();
  for (int pause = 0; pause < 3; ++pause) {
    ASSERT_TRUE(tier->accepts_saves());
    const Status status = save(*tier, 1 + pause, 11);
    ASSERT_FALSE(status);
    EXPECT_THAT(status.error().message, HasSubstr("cannot be written: Read-only file system"));
    EXPECT_FALSE(tier->accepts_saves());
    EXPECT_TRUE(load(*tier, 0, 10));
    clock_.advance(options().pause);
  }
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::ranges::count(said, '\n'), 1) << said;
  EXPECT_THAT(said, HasSubstr("Read-only file system; no block is saved for 30 s"));
  io_->writes_before_error = -1;
  EXPECT_TRUE(save(*tier, 1, 11));
  EXPECT_TRUE(load(*tier, 1, 11));
}

TEST_P(DiskFaultTest, ARemovedFolderEndsSavesWithAReason) {
  const auto tier = open();
  ASSERT_TRUE(save(*tier, 0, 10));
  fs::remove_all(options().folder);
  static_cast<void>(load(*tier, 0, 10));  // either way
  const Status status = save(*tier, 1, 11);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("removed while in use; restart the server"));
  EXPECT_FALSE(fs::exists(options().folder));
  EXPECT_FALSE(tier->accepts_saves());
  EXPECT_TRUE(tier->flush(std::chrono::seconds(60)));
  // The folder is free for another process.
  const auto other = open();
  ASSERT_TRUE(save(*other, 0, 12));
  EXPECT_FALSE(save(*tier, 0, 10)) << "two writers in one folder";
  EXPECT_TRUE(load(*other, 0, 12));
}

TEST_P(DiskFaultTest, AMovedFolderServesAgainOnceItIsBack) {
  const auto tier = open();
  ASSERT_TRUE(save(*tier, 0, 10));
  fs::rename(options().folder, folder_.file("moved"));
  EXPECT_TRUE(load(*tier, 0, 10));
  const Status status = save(*tier, kSegmentPages, 11);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("No such file"));
  fs::rename(folder_.file("moved"), options().folder);
  EXPECT_TRUE(save(*tier, kSegmentPages, 11));
  EXPECT_TRUE(load(*tier, kSegmentPages, 11));
}

TEST_P(DiskFaultTest, ARemovedSegmentIsMadeAgain) {
  {
    const auto tier = open();
    ASSERT_TRUE(save(*tier, 0, 10));
    ASSERT_TRUE(save(*tier, 1, 11));
    fs::remove(segment());
    testing::internal::CaptureStderr();
    ASSERT_TRUE(save(*tier, 1, 12));
    EXPECT_THAT(testing::internal::GetCapturedStderr(),
                HasSubstr("000.segment: was removed while in use; its blocks are lost"));
    EXPECT_FALSE(load(*tier, 0, 10));
    EXPECT_TRUE(load(*tier, 1, 12));
  }
  EXPECT_EQ(open()->take_stored().size(), 1U) << "it is on the disk, not in a file without a name";
}

TEST_P(DiskFaultTest, ASlowDiskHoldsUpNoCallAndLoadsGoFirst) {
  std::vector<std::vector<std::byte>> blocks;
  for (std::uint64_t name = 0; name < 6; ++name) blocks.push_back(block(10 + name));
  auto tier = open();
  ASSERT_TRUE(save(*tier, 0, 10));
  // No page follows another, so each save is a write of its own.
  io_->hold();
  for (std::int32_t i = 1; i < 6; ++i) {
    tier->save(static_cast<std::uint64_t>(i), page(2 * i, 10 + static_cast<std::uint64_t>(i)),
               blocks[static_cast<std::size_t>(i)]);
  }
  io_->await_waiting(1);
  std::vector<std::byte> target(kFaultBlock);
  tier->load(100, page(0, 10), target);
  // None of these waits for the disk, else the test does not end.
  tier->touch(0);
  tier->erase(7);
  EXPECT_TRUE(tier->accepts_saves());
  std::vector<TierMove> ended;
  tier->poll(ended);
  EXPECT_TRUE(ended.empty());
  tier->wait(std::chrono::milliseconds(1));
  const Status flushed = tier->flush(std::chrono::milliseconds(1));
  ASSERT_FALSE(flushed);
  EXPECT_EQ(flushed.error().code, ErrorCode::kDeadlineExceeded);
  io_->release();
  while (ended.size() < 6) {
    tier->wait(std::chrono::seconds(1));
    tier->poll(ended);
  }
  EXPECT_EQ(ended[0].id, 1U) << "it had begun";
  EXPECT_EQ(ended[1].id, 100U);
  EXPECT_EQ(target, blocks[0]);

  // A stop drops the saves that have not begun.
  io_->hold();
  for (std::int32_t i = 1; i < 6; ++i) {
    tier->save(static_cast<std::uint64_t>(i), page(2 * i + 5, 10 + static_cast<std::uint64_t>(i)),
               blocks[static_cast<std::size_t>(i)]);
  }
  io_->await_waiting(1);
  std::thread stop([&] { tier.reset(); });
  io_->release();
  stop.join();
  const auto stored = open()->take_stored().size();
  EXPECT_GE(stored, 6U);
}

TEST_P(DiskFaultTest, AClockThatJumpsLosesAgesOnly) {
  constexpr std::int64_t kYear = 365 * 24 * 3600;
  const std::int64_t today = now_;
  {
    const auto tier = open();
    ASSERT_TRUE(save(*tier, 0, 10));
    now_ = today - 20 * kYear;
    EXPECT_TRUE(load(*tier, 0, 10));
    ASSERT_TRUE(save(*tier, 1, 11));
    tier->touch(0);
    now_ = today + 20 * kYear;
    EXPECT_FALSE(load(*tier, 0, 10)) << "older than the limit, as far as anybody knows";
    ASSERT_TRUE(save(*tier, 2, 12));
    EXPECT_TRUE(load(*tier, 2, 12));
    now_ = today;
    EXPECT_TRUE(load(*tier, 2, 12));
  }
  // The block of the future grows old from today on.
  now_ = today;
  const auto tier = open();
  const std::vector<TierPage> stored = tier->take_stored();
  ASSERT_EQ(stored.size(), 1U);
  EXPECT_EQ(stored[0].page, 2);
  EXPECT_TRUE(load(*tier, 2, 12));
  now_ = today + options().max_age_s + 1;
  EXPECT_FALSE(load(*tier, 2, 12));
}

TEST_P(DiskFaultTest, ACutSegmentKeepsTheBlocksBeforeItsEnd) {
  {
    const auto tier = open();
    for (std::int32_t i = 0; i < 8; ++i) {
      ASSERT_TRUE(save(*tier, i, 10 + static_cast<std::uint64_t>(i)));
    }
  }
  fs::resize_file(segment(), kFaultShape.page_offset(5) + 10);
  {
    testing::internal::CaptureStderr();
    const auto tier = open();
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("beyond its end are lost"));
    EXPECT_EQ(tier->take_stored().size(), 5U);
    for (std::int32_t i = 0; i < 8; ++i) {
      EXPECT_EQ(load(*tier, i, 10 + static_cast<std::uint64_t>(i)).has_value(), i < 5);
    }
    EXPECT_TRUE(save(*tier, 7, 20));
    EXPECT_TRUE(load(*tier, 7, 20));
  }
  EXPECT_EQ(open()->take_stored().size(), 6U);
}

TEST_P(DiskFaultTest, ABlockBeyondTheEndOfACutFileIsLost) {
  const auto tier = open();
  ASSERT_TRUE(save(*tier, 0, 10));
  ASSERT_TRUE(save(*tier, 5, 11));
  fs::resize_file(segment(), kFaultShape.page_offset(5) + 10);
  const Status status = load(*tier, 5, 11);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument) << "no later load may succeed";
  EXPECT_TRUE(load(*tier, 0, 10));
}

// ---------------------------------------------------------------- random damage

struct Damage {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  bool touches(std::uint64_t from, std::uint64_t bytes) const {
    return begin < from + bytes && from < end;
  }
};

// Changes some bytes: a cut, a flipped bit, zeros, noise, or a part of the file in another place.
Damage damage(std::string& file, std::uint64_t whole, SplitMix64& random) {
  if (file.empty()) return {};
  const std::uint64_t at = random.below(file.size());
  const std::uint64_t most = random.below(2) == 0 ? 64 : 10'000;
  const std::uint64_t length = std::min<std::uint64_t>(1 + random.below(most), file.size() - at);
  switch (random.below(5)) {
    case 0: file.resize(at); return {at, whole};
    case 1: file[at] = static_cast<char>(file[at] ^ (1 << random.below(8))); return {at, at + 1};
    case 2: std::fill_n(file.begin() + static_cast<std::ptrdiff_t>(at), length, '\0'); break;
    case 3:
      for (std::uint64_t i = 0; i < length; ++i) {
        file[at + i] = static_cast<char>(random.below(256));
      }
      break;
    default: {
      const std::string part = file.substr(random.below(file.size()), length);
      file.replace(at, part.size(), part);
    }
  }
  return {at, at + length};
}

// SLUICE_DISK_DAMAGES: how many, else as many as take about a second. SLUICE_DISK_SEED: the first.
std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

class RandomDamageTest : public DiskFaultFixture, public testing::WithParamInterface<Sealing> {};

TEST_P(RandomDamageTest, NeverGivesAWrongBlockAndLosesNoOther) {
  DiskTier::Options given = options();
  given.max_bytes /= 2;
  given.sealing = GetParam();
  {
    const auto tier = open(given);
    for (std::int32_t i = 0; i < 8; ++i) {
      ASSERT_TRUE(save(*tier, i, 10 + static_cast<std::uint64_t>(i)));
    }
  }
  const std::string path = segment();
  std::ifstream file(path, std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(file), {}};
  set_log_level(LogLevel::kError);  // thousands of lines
  const std::uint64_t first = number_from("SLUICE_DISK_SEED", 1);
  const std::uint64_t last = first + number_from("SLUICE_DISK_DAMAGES", 1500);
  for (std::uint64_t seed = first; seed < last && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    SplitMix64 random(seed);
    std::string bytes = whole;
    std::vector<Damage> damages;
    const std::uint64_t count = 1 + random.below(3);
    for (std::uint64_t i = 0; i < count; ++i) {
      damages.push_back(damage(bytes, whole.size(), random));
    }
    // In place: to empty the file first would make the filesystem write it out each time.
    // A file that the last round's start removed is made.
    const auto mode =
        std::ios::binary | (fs::exists(path) ? std::ios::in | std::ios::out : std::ios::out);
    std::ofstream(path, mode).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    fs::resize_file(path, bytes.size());
    const auto touched = [&](std::uint64_t from, std::uint64_t length) {
      return std::ranges::any_of(damages, [&](const Damage& d) { return d.touches(from, length); });
    };
    const auto tier = open(given);
    ASSERT_NE(tier, nullptr);
    for (std::uint32_t i = 0; i < kSegmentPages; ++i) {
      const bool loaded = load(*tier, static_cast<std::int32_t>(i), 10 + i).has_value();
      if (!touched(0, kDiskAlignment) &&
          !touched(kFaultShape.records_offset() + i * kRecordBytes, kRecordBytes) &&
          !touched(kFaultShape.page_offset(i), kFaultShape.page_bytes())) {
        EXPECT_TRUE(loaded) << "page " << i << " was not damaged";
      }
    }
  }
  set_log_level(LogLevel::kInfo);
}

INSTANTIATE_TEST_SUITE_P(Reads, DiskFaultTest, testing::Bool(),
                         [](const auto& kind) { return kind.param ? "Uring" : "Threads"; });
INSTANTIATE_TEST_SUITE_P(BothFormats, RandomDamageTest,
                         testing::Values(Sealing::kTags, Sealing::kAesGcm));

}  // namespace
}  // namespace sluice
