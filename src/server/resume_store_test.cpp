#include "server/resume_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/support/checkpoint_files.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

HmacKey some_secret(int number) {
  HmacKey key{};
  key.fill(static_cast<std::byte>(number));
  return key;
}

class ResumeStoreTest : public testing::Test {
 protected:
  ResumeStore open(int secret = 1) const {
    return {folder_.path(), some_secret(secret), 3600, [this] { return now_.load(); }};
  }
  static ResumeStore::Key key(const ResumeStore& store, std::string_view body = "{}") {
    return {"tenant", "id", {1, 2}, store.digest_body("/v1/completions", body)};
  }
  std::string only_file() const {
    std::string found;
    for (const auto& entry : fs::directory_iterator(folder_.path())) {
      EXPECT_TRUE(found.empty()) << entry.path();
      found = entry.path();
    }
    return found;
  }

  TempDirectory folder_;
  std::atomic<std::int64_t> now_ = unix_seconds();
  const ResumeStore::Answer answer_{~std::uint64_t{7}, {5, 0, 1 << 20}};
};

TEST_F(ResumeStoreTest, TheSameCallTakesTheAnswerOnce) {
  ASSERT_TRUE(open().save(key(open()), answer_));
  struct stat facts{};
  ASSERT_EQ(::stat(only_file().c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777U, 0600U);
  const ResumeStore later = open();
  const auto found = later.take(key(later));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->seed, answer_.seed);
  EXPECT_EQ(found->tokens, answer_.tokens);
  EXPECT_FALSE(later.take(key(later)));
  EXPECT_EQ(only_file(), "");
}

TEST_F(ResumeStoreTest, NoOtherCallFindsIt) {
  const ResumeStore store = open();
  const ResumeStore::Key right = key(store);
  ASSERT_TRUE(store.save(right, answer_));
  ResumeStore::Key other = right;
  other.tenant = "tenan";
  EXPECT_FALSE(store.take(other));
  other.request_id = "tid";  // the same letters in all
  EXPECT_FALSE(store.take(other));
  other = right;
  other.request_id = "id2";
  EXPECT_FALSE(store.take(other));
  other = right;
  other.root.low ^= 1;
  EXPECT_FALSE(store.take(other));
  EXPECT_FALSE(store.take(key(store, "{ }")));
  other = right;
  other.body = store.digest_body("/v1/chat/completions", "{}");
  EXPECT_FALSE(store.take(other));
  EXPECT_FALSE(open(2).take(key(open(2))));
  EXPECT_TRUE(store.take(right));
}

TEST_F(ResumeStoreTest, AnyDamageIsAMiss) {
  const ResumeStore store = open();
  ASSERT_TRUE(store.save(key(store), answer_));
  const std::string path = only_file();
  std::ifstream in(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), {});
  for (std::size_t at = 0; at <= bytes.size(); ++at) {
    std::string damaged = bytes;
    if (at < bytes.size()) {
      damaged[at] = static_cast<char>(damaged[at] ^ 1);
    } else {
      damaged.resize(bytes.size() / 2);
    }
    std::ofstream(path, std::ios::binary) << damaged;
    EXPECT_FALSE(store.take(key(store))) << at;
  }
  std::ofstream(path, std::ios::binary) << bytes;
  EXPECT_TRUE(store.take(key(store)));
}

TEST_F(ResumeStoreTest, AnOldAnswerIsNotTakenAndRemovedByTheNextStart) {
  const ResumeStore store = open();
  ASSERT_TRUE(store.save(key(store), answer_));
  now_ += 3601;
  EXPECT_FALSE(store.take(key(store)));
  now_ -= 3601;
  ASSERT_TRUE(store.save(key(store), answer_));
  now_ += 3700;
  static_cast<void>(open());
  EXPECT_EQ(only_file(), "");
}

TEST_F(ResumeStoreTest, AnErrorNamesTheFile) {
  const ResumeStore store(folder_.file("gone"), some_secret(1), 3600);
  const Status status = store.save(key(store), answer_);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, testing::HasSubstr("gone/"));
}

}  // namespace
}  // namespace sluice
