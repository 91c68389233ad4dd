#include "server/resume_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <span>
#include <string>
#include <vector>

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
    return {folder_.path(), some_secret(secret), limits_, [this] { return now_.load(); }};
  }
  static Status save(const ResumeStore& store, const ResumeStore::Key& key,
                     const ResumeStore::Answer& answer) {
    const ResumeStore::Entry entry{key, answer};
    return store.save(std::span(&entry, 1)).front();
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
  ResumeStore::Limits limits_{.max_age_s = 3600};
  const ResumeStore::Answer answer_{~std::uint64_t{7}, {5, 0, 1 << 20}};
};

TEST_F(ResumeStoreTest, TheSameCallFindsTheAnswerUntilItIsRemoved) {
  ASSERT_TRUE(save(open(), key(open()), answer_));
  struct stat facts{};
  ASSERT_EQ(::stat(only_file().c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777U, 0600U);
  const ResumeStore later = open();
  const auto found = later.find(key(later));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->seed, answer_.seed);
  EXPECT_EQ(found->tokens, answer_.tokens);
  ResumeStore::Answer longer = answer_;
  longer.tokens.push_back(9);
  ASSERT_TRUE(save(later, key(later), longer));  // a second stop
  EXPECT_EQ(later.find(key(later))->tokens, longer.tokens);
  later.remove(key(later));
  EXPECT_FALSE(later.find(key(later)));
  EXPECT_EQ(only_file(), "");
}

TEST_F(ResumeStoreTest, NoOtherCallFindsIt) {
  const ResumeStore store = open();
  const ResumeStore::Key right = key(store);
  ASSERT_TRUE(save(store, right, answer_));
  ResumeStore::Key other = right;
  other.tenant = "tenan";
  EXPECT_FALSE(store.find(other));
  other.request_id = "tid";  // the same letters in all
  EXPECT_FALSE(store.find(other));
  other = right;
  other.request_id = "id2";
  EXPECT_FALSE(store.find(other));
  other = right;
  other.root.low ^= 1;
  EXPECT_FALSE(store.find(other));
  EXPECT_FALSE(store.find(key(store, "{ }")));
  other = right;
  other.body = store.digest_body("/v1/chat/completions", "{}");
  EXPECT_FALSE(store.find(other));
  EXPECT_FALSE(open(2).find(key(open(2))));
  EXPECT_TRUE(store.find(right));
}

TEST_F(ResumeStoreTest, AnyDamageIsAMiss) {
  const ResumeStore store = open();
  ASSERT_TRUE(save(store, key(store), answer_));
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
    EXPECT_FALSE(store.find(key(store))) << at;
    EXPECT_FALSE(fs::exists(path)) << at;
  }
  std::ofstream(path, std::ios::binary) << bytes + "more";
  EXPECT_FALSE(store.find(key(store)));
  ResumeStore::Key other = key(store);
  other.request_id = "id2";
  ASSERT_TRUE(save(store, other, answer_));
  fs::rename(only_file(), path);
  EXPECT_FALSE(store.find(key(store))) << "another call's answer";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_FALSE(store.find(key(store)));
  fs::remove(path);
  std::ofstream(path, std::ios::binary) << bytes;
  EXPECT_TRUE(store.find(key(store)));
}

TEST_F(ResumeStoreTest, AnOldAnswerIsNotTakenAndRemovedByTheNextStart) {
  const ResumeStore store = open();
  ASSERT_TRUE(save(store, key(store), answer_));
  now_ += 3601;
  EXPECT_FALSE(store.find(key(store)));
  now_ -= 3601;
  ASSERT_TRUE(save(store, key(store), answer_));
  now_ += 3700;
  static_cast<void>(open());
  EXPECT_EQ(only_file(), "");
}

TEST_F(ResumeStoreTest, TheOldestMakeRoomForTheAnswersOfAStop) {
  limits_.max_bytes = 3 * 4096;
  const ResumeStore store = open();
  std::vector<ResumeStore::Entry> entries;
  for (int i = 0; i < 5; ++i) {
    entries.push_back({key(store, std::to_string(i)), answer_});
    entries.back().answer.seed = static_cast<std::uint64_t>(i);
  }
  std::set<fs::path> known;
  const auto age = [&](std::size_t i, int old) {
    ASSERT_TRUE(save(store, entries[i].key, entries[i].answer));
    for (const auto& entry : fs::directory_iterator(folder_.path())) {
      if (!known.insert(entry.path()).second) continue;
      fs::last_write_time(entry.path(), entry.last_write_time() - std::chrono::seconds(old));
    }
  };
  age(0, 1000);
  age(1, 3000);
  age(2, 2000);
  ASSERT_TRUE(save(store, entries[3].key, entries[3].answer));
  EXPECT_TRUE(store.find(entries[0].key));
  EXPECT_FALSE(store.find(entries[1].key));
  EXPECT_TRUE(store.find(entries[2].key));
  // Together they have no room for more than three, and none of them is removed for another.
  entries.push_back(entries[0]);
  entries.back().answer.seed = 50;
  const std::vector<Status> saved = store.save(entries);
  ASSERT_EQ(saved.size(), 6U);
  for (std::size_t i = 0; i < saved.size(); ++i) {
    EXPECT_EQ(saved[i].has_value(), i < 3) << i;
  }
  for (std::size_t i = 1; i < 5; ++i) {
    EXPECT_EQ(store.find(entries[i].key).has_value(), i < 3) << i;
  }
  EXPECT_THAT(saved[4].error().message, testing::HasSubstr("12 KiB at most"));
}

TEST_F(ResumeStoreTest, NothingIsSavedBelowTheFloorOfFreeSpace) {
  limits_.free_bytes = ~std::uint64_t{0} / 2;
  const Status status = save(open(), key(open()), answer_);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, testing::HasSubstr("MiB free"));
  EXPECT_EQ(only_file(), "");
}

TEST_F(ResumeStoreTest, AHalfWrittenFileIsRemovedByTheNextStart) {
  std::ofstream(folder_.file("0123.resume.part")) << "half";
  static_cast<void>(open());
  EXPECT_EQ(only_file(), "");
}

TEST_F(ResumeStoreTest, AnErrorNamesTheFile) {
  const ResumeStore store(folder_.file("gone"), some_secret(1), limits_);
  const Status status = save(store, key(store), answer_);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, testing::HasSubstr("gone/"));
}

}  // namespace
}  // namespace sluice
