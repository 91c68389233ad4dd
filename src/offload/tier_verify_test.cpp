// A folder as a whole: what each model has there, and the files that cannot be checked.
#include "offload/tier_verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "offload/disk_tier.h"
#include "offload/tier_folder.h"
#include "tests/support/checkpoint_files.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class TierVerifyTest : public testing::Test {
 protected:
  DiskTier::Options options(const std::string& identity, int secret) const {
    DiskTier::Options made;
    made.folder = folder_.file("kv");
    made.max_bytes = 1 << 20;
    made.block_bytes = 5000;
    made.identity = identity;
    made.secret = secret_of(secret);
    made.segment_bytes = 4 * (8192 + kRecordBytes);
    made.free_bytes = 0;
    return made;
  }
  static HmacKey secret_of(int number) { return {static_cast<std::byte>(number)}; }
  void fill(const DiskTier::Options& options, std::int32_t blocks) const {
    auto tier = DiskTier::open(options, clock_);
    ASSERT_TRUE(tier) << tier.error().message;
    const std::vector<std::byte> block(options.block_bytes, std::byte{1});
    for (std::int32_t i = 0; i < blocks; ++i) {
      (*tier)->save(1, {i, 0, {static_cast<std::uint64_t>(i) + 1, 1}, {}}, block);
    }
    ASSERT_TRUE((*tier)->flush(std::chrono::seconds(10)));
  }

  std::vector<VerifiedContents> verify(int secret) const {
    auto all = verify_tier_folder(folder_.file("kv"), secret_of(secret));
    EXPECT_TRUE(all) << all.error().message;
    return all ? *std::move(all) : std::vector<VerifiedContents>();
  }

  TempDirectory folder_;
  ManualClock clock_;
};

TEST_F(TierVerifyTest, CountsTheBlocksOfEachModel) {
  fill(options("a", 1), 6);
  fill(options("b", 1), 2);
  const std::vector<VerifiedContents> all = verify(1);
  ASSERT_EQ(all.size(), 2U);
  std::int64_t good = 0;
  std::int32_t segments = 0;
  for (const VerifiedContents& one : all) {
    good += one.pages.good;
    segments += one.segments;
    EXPECT_EQ(one.pages.bad + one.pages.torn, 0);
    EXPECT_TRUE(one.unreadable.empty());
  }
  EXPECT_EQ(good, 8);
  EXPECT_EQ(segments, 3);
}

TEST_F(TierVerifyTest, DamageAndOtherSecretsAreTold) {
  fill(options("a", 1), 2);
  fill(options("a", 2), 1);
  std::ofstream(folder_.file("kv/other.segment")) << "not a segment";
  std::string own;
  for (const VerifiedContents& one : verify(1)) {
    if (one.pages.good == 2) {
      own = one.identity;
      continue;
    }
    ASSERT_EQ(one.unreadable.size(), 1U);
    EXPECT_THAT(one.unreadable[0], HasSubstr("another secret"));
  }
  const SegmentShape shape{5000, 4};
  std::fstream file(folder_.file("kv/" + own + "-000000.segment"),
                    std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(shape.page_offset(1)));
  file.put('x');
  file.close();
  for (const VerifiedContents& one : verify(1)) {
    if (one.identity != own) continue;
    EXPECT_EQ(one.pages.good, 1);
    EXPECT_EQ(one.pages.bad, 1);
  }
}

TEST_F(TierVerifyTest, ASegmentWithADamagedBeginningIsToldAndRemoved) {
  fill(options("a", 1), 2);
  const auto before = verify(1);
  ASSERT_EQ(before.size(), 1U);
  const std::string path = folder_.file("kv/" + before[0].identity + "-000000.segment");
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary) << "garbage garbage";
  std::ofstream(folder_.file("kv/notes-1.segment")) << "not a segment";
  const auto after = verify(1);
  ASSERT_EQ(after.size(), 1U);
  ASSERT_EQ(after[0].unreadable.size(), 1U);
  EXPECT_THAT(after[0].unreadable[0], HasSubstr("000000.segment: "));
  EXPECT_TRUE(clear_tier_folder(folder_.file("kv")));
  EXPECT_FALSE(fs::exists(path));
  EXPECT_TRUE(fs::exists(folder_.file("kv/notes-1.segment")));
}

TEST_F(TierVerifyTest, TheFolderMustExistAndBeFree) {
  EXPECT_FALSE(verify_tier_folder(folder_.file("none"), secret_of(1)));
  const auto tier = DiskTier::open(options("a", 1), clock_);
  ASSERT_TRUE(tier);
  const auto busy = verify_tier_folder(folder_.file("kv"), secret_of(1));
  ASSERT_FALSE(busy);
  EXPECT_THAT(busy.error().message, HasSubstr("another process has it"));
}

}  // namespace
}  // namespace sluice
