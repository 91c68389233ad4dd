// The disk tier: what is saved comes back, also in a later process; everything else is an error of
// that load or save, and nothing more.
#include "offload/disk_tier.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "offload/page_format.h"
#include "offload/save_pace.h"
#include "offload/tier_folder.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/cpu_time.h"
#include "tests/support/tier_moves.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr std::uint64_t kBlock = 5000;  // no multiple of a page of the disk

class DiskTierTest : public testing::Test {
 protected:
  DiskTier::Options options(std::uint64_t pages = 8) const {
    DiskTier::Options made;
    made.folder = folder_.file("kv");
    made.max_bytes = pages * (8192 + kRecordBytes);
    made.block_bytes = kBlock;
    made.identity = "model";
    made.segment_bytes = 16 * (8192 + kRecordBytes);
    made.free_bytes = 0;
    return made;
  }
  std::unique_ptr<DiskTier> open(const DiskTier::Options& given) {
    auto tier = DiskTier::open(given, clock_);
    EXPECT_TRUE(tier) << tier.error().message;
    return tier ? *std::move(tier) : nullptr;
  }
  std::unique_ptr<DiskTier> open() { return open(options()); }
  std::string open_error(const DiskTier::Options& given) {
    const auto tier = DiskTier::open(given, clock_);
    return tier ? "opens" : tier.error().message;
  }

  static std::vector<std::byte> block(std::uint64_t name) {
    return test::random_block(kBlock, name);
  }
  static TierPage page(std::int32_t number, std::uint64_t name) {
    return {number, 1, {name, 7}, {}};
  }

  static Status save(KvTier& tier, std::int32_t number, std::uint64_t name) {
    return test::save_block(tier, page(number, name), block(name));
  }
  // Whether the page gives the block of this name.
  static Status load(KvTier& tier, std::int32_t number, std::uint64_t name) {
    return test::load_exactly(tier, page(number, name), block(name));
  }
  std::string segment() const {
    for (const auto& entry : fs::directory_iterator(folder_.file("kv"))) {
      if (entry.path().extension() == ".segment") return entry.path();
    }
    return "";
  }
  static void flip(const std::string& path, std::uint64_t at) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    const char byte = static_cast<char>(file.get() ^ 1);
    file.seekp(static_cast<std::streamoff>(at));
    file.put(byte);
  }

  TempDirectory folder_;
  ManualClock clock_;
};

// With rests longer than the test, a second save begins only without steps beside it or when a
// flush waits.
class DiskTierPaceTest : public DiskTierTest {
 protected:
  // Each write takes a whole turn of CPU time, so a rest follows.
  struct BusyIo : FileIo {
    bool write(int fd, std::span<const std::byte> bytes, std::uint64_t offset) const override {
      test::take_cpu_time(SavePace::kTurn);
      return FileIo::write(fd, bytes, offset);
    }
  };

  DiskTierPaceTest() {
    DiskTier::Options made = options();
    made.save_rests = 1 << 24;
    made.io = std::make_shared<BusyIo>();
    tier_ = open(made);
    for (std::uint64_t i = 0; i < 3; ++i) blocks_.push_back(block(100 + i));
  }
  // No page follows another, because one write may take those that do.
  void begin_save(std::int32_t number, SaveHaste haste) {
    TierPage to = page(2 * number, 100 + static_cast<std::uint64_t>(number));
    to.haste = haste;
    tier_->save(static_cast<std::uint64_t>(number), to, blocks_[static_cast<std::size_t>(number)]);
  }
  std::size_t num_ended(std::size_t at_least, int tries) {
    for (int i = 0; i < tries && ended_.size() < at_least; ++i) {
      tier_->wait(std::chrono::milliseconds(10));
      tier_->poll(ended_);
    }
    return ended_.size();
  }

  std::unique_ptr<DiskTier> tier_;
  std::vector<std::vector<std::byte>> blocks_;
  std::vector<TierMove> ended_;
};

TEST_F(DiskTierPaceTest, SavesRestBetweenEachOtherAndLoadsDoNot) {
  begin_save(0, SaveHaste::kEasy);
  begin_save(1, SaveHaste::kEasy);
  ASSERT_EQ(num_ended(1, 1000), 1U);
  EXPECT_EQ(num_ended(2, 5), 1U);
  std::vector<std::byte> bytes(kBlock);
  tier_->load(9, page(0, 100), bytes);
  ASSERT_EQ(num_ended(2, 1000), 2U);
  EXPECT_EQ(ended_.back().id, 9U);
  EXPECT_TRUE(ended_.back().status);
}

TEST_F(DiskTierPaceTest, AnUrgentSaveEndsTheRestOfThoseBeforeIt) {
  begin_save(0, SaveHaste::kEasy);
  begin_save(1, SaveHaste::kEasy);
  ASSERT_EQ(num_ended(1, 1000), 1U);
  begin_save(2, SaveHaste::kIdle);
  EXPECT_EQ(num_ended(3, 1000), 3U);
}

TEST_F(DiskTierPaceTest, AFlushWaitsForNoRest) {
  begin_save(0, SaveHaste::kEasy);
  begin_save(1, SaveHaste::kEasy);
  EXPECT_TRUE(tier_->flush(std::chrono::seconds(10)));
  EXPECT_EQ(num_ended(2, 1), 2U);
}

TEST_F(DiskTierTest, BlocksComeBackInThisProcessAndTheNext) {
  {
    const auto tier = open();
    EXPECT_EQ(tier->num_pages(), 8);
    EXPECT_TRUE(tier->take_stored().empty());
    for (std::int32_t i = 0; i < 8; ++i)
      ASSERT_TRUE(save(*tier, i, 100 + static_cast<std::uint64_t>(i)));
    for (std::int32_t i = 0; i < 8; ++i)
      EXPECT_TRUE(load(*tier, i, 100 + static_cast<std::uint64_t>(i)));
    ASSERT_TRUE(save(*tier, 3, 200));  // in place of another
    EXPECT_TRUE(load(*tier, 3, 200));
    EXPECT_FALSE(load(*tier, 3, 103));
    EXPECT_TRUE(tier->flush(std::chrono::seconds(5)));
  }
  const auto tier = open();
  const std::vector<TierPage> stored = tier->take_stored();
  ASSERT_EQ(stored.size(), 8U);
  for (const TierPage& one : stored) {
    const std::uint64_t name = one.page == 3 ? 200 : 100 + static_cast<std::uint64_t>(one.page);
    EXPECT_EQ(one.name.high, name);
    EXPECT_EQ(one.group, 1);
    EXPECT_TRUE(load(*tier, one.page, name));
  }
  struct stat facts{};
  ASSERT_EQ(stat(segment().c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777U, 0600U);
  ASSERT_EQ(stat(options().folder.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777U, 0700U);
}

TEST_F(DiskTierTest, AnotherModelTakesASmallFolderInParts) {
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
  DiskTier::Options given = options();
  given.block_bytes = kMiB;
  given.max_bytes = 32 * kMiB;
  given.segment_bytes = 0;
  const auto bytes = test::random_block(static_cast<std::size_t>(kMiB), 100);
  const auto save_one = [&](KvTier& tier, std::int32_t number) {
    return test::save_block(tier, page(number, 100), bytes);
  };
  std::int32_t pages = 0;
  {
    const auto tier = open(given);
    pages = tier->num_pages();
    for (std::int32_t i = 0; i < pages; ++i) ASSERT_TRUE(save_one(*tier, i));
  }
  DiskTier::Options other = given;
  other.identity = "another model";
  ASSERT_TRUE(save_one(*open(other), 0));
  EXPECT_EQ(open(other)->take_stored().size(), 1U);
  const auto left = static_cast<std::int32_t>(open(given)->take_stored().size());
  EXPECT_LT(left, pages);
  EXPECT_GE(left, pages * 3 / 4);
}

TEST_F(DiskTierTest, ManyMovesAtOnceOverSeveralSegments) {
  DiskTier::Options given = options(200);
  given.block_bytes = kBlock;
  given.threads = 3;
  const auto tier = open(given);
  std::map<std::uint64_t, std::vector<std::byte>> saved;
  std::vector<TierMove> ended;
  for (std::uint64_t i = 0; i < 200; ++i) {
    saved[i] = block(i);
    tier->save(i, page(static_cast<std::int32_t>(i), i), saved[i]);
  }
  while (ended.size() < 200) {
    tier->wait(std::chrono::seconds(5));
    tier->poll(ended);
  }
  for (const TierMove& move : ended) EXPECT_TRUE(move.status) << move.status.error().message;
  ended.clear();
  std::map<std::uint64_t, std::vector<std::byte>> loaded;
  for (std::uint64_t i = 0; i < 200; ++i) {
    loaded[i].resize(kBlock);
    tier->load(i, page(static_cast<std::int32_t>(i), i), loaded[i]);
  }
  while (ended.size() < 200) {
    tier->wait(std::chrono::seconds(5));
    tier->poll(ended);
  }
  EXPECT_EQ(loaded, saved);
}

TEST_F(DiskTierTest, ADamagedBlockIsAnErrorOfItsLoadAlone) {
  const auto tier = open();
  for (std::int32_t i = 0; i < 3; ++i)
    ASSERT_TRUE(save(*tier, i, 10 + static_cast<std::uint64_t>(i)));
  const SegmentShape shape{kBlock, 16};
  // Past the page cache, as a disk would do it.
  flip(segment(), shape.page_offset(1) + kBlock - 1);
  const Status damaged = load(*tier, 1, 11);
  ASSERT_FALSE(damaged);
  EXPECT_THAT(damaged.error().message, HasSubstr("damaged"));
  EXPECT_TRUE(load(*tier, 0, 10));
  EXPECT_TRUE(load(*tier, 2, 12));
  ASSERT_TRUE(save(*tier, 1, 11));
  EXPECT_TRUE(load(*tier, 1, 11));
}

TEST_F(DiskTierTest, DamagedRecordsAndSegmentsAreLeftOut) {
  {
    const auto tier = open();
    for (std::int32_t i = 0; i < 3; ++i)
      ASSERT_TRUE(save(*tier, i, 10 + static_cast<std::uint64_t>(i)));
  }
  flip(segment(), kDiskAlignment + kRecordBytes + 3);
  {
    const auto tier = open();
    EXPECT_EQ(tier->num_damaged(), 1);
    EXPECT_EQ(tier->take_stored().size(), 2U);
  }
  flip(segment(), 30);  // the header
  {
    const auto tier = open();
    EXPECT_TRUE(tier->take_stored().empty());
    EXPECT_TRUE(save(*tier, 0, 1));
  }
  fs::resize_file(segment(), 5000);
  const auto tier = open();
  EXPECT_TRUE(tier->take_stored().empty());
  EXPECT_TRUE(save(*tier, 0, 1));
  EXPECT_TRUE(load(*tier, 0, 1));
}

TEST_F(DiskTierTest, AFileThatIsCutWhileServingFailsItsLoads) {
  const auto tier = open();
  ASSERT_TRUE(save(*tier, 5, 10));
  fs::resize_file(segment(), 4096);
  EXPECT_FALSE(load(*tier, 5, 10));
  EXPECT_TRUE(save(*tier, 0, 11));
  EXPECT_TRUE(load(*tier, 0, 11));
}

TEST_F(DiskTierTest, AnotherModelOrSecretSeesNothingAndTakesTheRoomItNeeds) {
  {
    const auto tier = open();
    ASSERT_TRUE(save(*tier, 0, 10));
  }
  DiskTier::Options other = options();
  other.identity = "other";
  {
    const auto tier = open(other);
    EXPECT_TRUE(tier->take_stored().empty());
  }
  EXPECT_EQ(open()->take_stored().size(), 1U) << "the other one had no need of the room";
  {
    const auto tier = open(other);
    ASSERT_TRUE(save(*tier, 0, 10));
  }
  EXPECT_TRUE(open()->take_stored().empty()) << "its segment was in the way";
  DiskTier::Options secret = other;
  secret.secret[0] = std::byte{1};
  EXPECT_TRUE(open(secret)->take_stored().empty());
  EXPECT_EQ(open(other)->take_stored().size(), 1U);
}

TEST_F(DiskTierTest, UseDecidesTheOrderAndErasedPagesStayAway) {
  {
    const auto tier = open();
    for (std::int32_t i = 0; i < 3; ++i)
      ASSERT_TRUE(save(*tier, i, 10 + static_cast<std::uint64_t>(i)));
    tier->erase(1);
    tier->touch(1);  // nothing is there
    tier->touch(0);
    EXPECT_TRUE(tier->flush(std::chrono::seconds(5)));
  }
  const std::vector<TierPage> stored = open()->take_stored();
  ASSERT_EQ(stored.size(), 2U);
  EXPECT_NE(stored[0].page, 1);
  EXPECT_NE(stored[1].page, 1);
  DiskTier::Options young = options();
  young.max_age_s = -10;
  EXPECT_TRUE(open(young)->take_stored().empty());
}

TEST_F(DiskTierTest, AFullDiskPausesSavesAndKeepsTheRest) {
  const auto tier = open();
  ASSERT_TRUE(save(*tier, 0, 10));
  DiskTier::Options full = options();
  full.folder = folder_.file("full");
  full.free_bytes = std::uint64_t{1} << 60;
  const auto second = open(full);
  EXPECT_TRUE(second->accepts_saves());
  const Status status = save(*second, 0, 11);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message,
              HasSubstr("MiB that free=SIZE leaves; make room, or give --kv-disk a smaller SIZE"));
  EXPECT_FALSE(second->accepts_saves());
  clock_.advance(std::chrono::seconds(31));
  EXPECT_TRUE(second->accepts_saves());
  EXPECT_TRUE(load(*tier, 0, 10));
}

TEST_F(DiskTierTest, TheDaysBytesPauseSavesAlsoAfterARestart) {
  DiskTier::Options given = options();
  given.daily_bytes = 2 * 8192;
  {
    const auto tier = open(given);
    ASSERT_TRUE(save(*tier, 0, 10));
    EXPECT_TRUE(tier->accepts_saves());
    ASSERT_TRUE(save(*tier, 1, 11));
    EXPECT_FALSE(tier->accepts_saves());
    EXPECT_TRUE(load(*tier, 0, 10));
  }
  EXPECT_FALSE(open(given)->accepts_saves());
  given.daily_bytes = 3 * 8192;
  EXPECT_TRUE(open(given)->accepts_saves());
}

TEST_F(DiskTierTest, ABlockThatGetsTooOldIsNotLoaded) {
  DiskTier::Options given = options();
  given.max_age_s = 60;
  std::atomic<std::int64_t> now = 1'800'000'000;
  given.unix_time = [&now] { return now.load(); };
  const auto tier = open(given);
  ASSERT_TRUE(save(*tier, 0, 10));
  now += 60;
  EXPECT_TRUE(load(*tier, 0, 10));
  now += 1;
  tier->touch(0);
  const Status old = load(*tier, 0, 10);
  ASSERT_FALSE(old);
  EXPECT_THAT(old.error().message, HasSubstr("older"));
}

TEST_F(DiskTierTest, FoldersThatAreRefused) {
  const auto tier = open();
  EXPECT_THAT(open_error(options()), HasSubstr("another process has it"));
  DiskTier::Options given = options();
  given.folder = folder_.file("file");
  folder_.write("file", "x");
  EXPECT_THAT(open_error(given), HasSubstr("no folder"));
  given.folder = folder_.file("open");
  fs::create_directory(given.folder);
  fs::permissions(given.folder, fs::perms::all);
  EXPECT_THAT(open_error(given), HasSubstr("chmod 700"));
  given = options();
  given.folder = folder_.file("small");
  given.max_bytes = 4096;
  EXPECT_THAT(open_error(given), HasSubstr("no room"));
}

TEST_F(DiskTierTest, FilesOfOthersAreNeverRemoved) {
  const std::string mine = options().folder + "/mine.segment";
  {
    const auto tier = open();
    ASSERT_TRUE(save(*tier, 0, 10));
  }
  std::ofstream(mine) << std::string(100'000, 'x');
  DiskTier::Options other = options();
  other.identity = "other";
  {
    const auto tier = open(other);
    ASSERT_TRUE(save(*tier, 0, 10));
  }
  EXPECT_TRUE(clear_tier_folder(options().folder));
  EXPECT_EQ(fs::file_size(mine), 100'000U);
}

TEST_F(DiskTierTest, ASegmentThatCannotBeReadNowIsKept) {
  {
    const auto tier = open();
    ASSERT_TRUE(save(*tier, 0, 10));
  }
  const std::string path = segment();
  const std::string kept = folder_.file("kept");
  fs::rename(path, kept);
  fs::create_directory(path);  // opening it for writing fails, as it would without descriptors
  EXPECT_THAT(open_error(options()), HasSubstr("cannot be opened"));
  fs::remove(path);
  fs::rename(kept, path);
  EXPECT_EQ(open()->take_stored().size(), 1U);
}

TEST_F(DiskTierTest, ASmallerFolderLosesWhatIsBeyondIt) {
  DiskTier::Options large = options(40);
  {
    const auto tier = open(large);
    ASSERT_TRUE(save(*tier, 39, 10));
    ASSERT_TRUE(save(*tier, 0, 11));
  }
  EXPECT_EQ(list_tier_folder(large.folder)->front().segments, 2);
  EXPECT_EQ(open()->take_stored().size(), 1U);
  EXPECT_EQ(list_tier_folder(large.folder)->front().segments, 1);
}

TEST_F(DiskTierTest, TheFolderIsListedAndCleared) {
  EXPECT_FALSE(list_tier_folder(folder_.file("none")));
  EXPECT_FALSE(clear_tier_folder(folder_.file("none")));
  {
    const auto tier = open();
    ASSERT_TRUE(save(*tier, 0, 10));
    EXPECT_FALSE(clear_tier_folder(options().folder)) << "a server has it";
  }
  auto listed = list_tier_folder(options().folder);
  ASSERT_TRUE(listed);
  ASSERT_EQ(listed->size(), 1U);
  EXPECT_EQ(listed->front().segments, 1);
  EXPECT_EQ(listed->front().bytes, fs::file_size(segment()));
  std::ofstream(options().folder + "/0123.resume") << "answer";
  std::ofstream(options().folder + "/4567.resume.part") << "half";
  EXPECT_EQ(*clear_tier_folder(options().folder), listed->front().bytes + 6 + 4);
  EXPECT_FALSE(fs::exists(options().folder + "/0123.resume"));
  EXPECT_TRUE(list_tier_folder(options().folder)->empty());
  EXPECT_TRUE(open()->take_stored().empty());
}

TEST_F(DiskTierTest, WithoutDirectAccessTheSame) {
  DiskTier::Options given = options();
  given.direct = false;
  {
    const auto tier = open(given);
    ASSERT_TRUE(save(*tier, 2, 10));
    EXPECT_TRUE(load(*tier, 2, 10));
  }
  const auto tier = open();
  EXPECT_EQ(tier->take_stored().size(), 1U);
  EXPECT_TRUE(load(*tier, 2, 10));
}

}  // namespace
}  // namespace sluice
