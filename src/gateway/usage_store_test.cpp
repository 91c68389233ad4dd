#include "gateway/usage_store.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace sluice {
namespace {

class UsageStoreTest : public testing::Test {
 protected:
  UsageStoreTest()
      : path_(testing::TempDir() + "/usage_store_test_" + std::to_string(getpid()) + ".db") {
    remove_files();
  }
  ~UsageStoreTest() override { remove_files(); }
  void remove_files() const {
    for (const char* tail : {"", "-wal", "-shm", "-journal"}) {
      std::remove((path_ + tail).c_str());
    }
  }

  const std::string path_;
};

UsageRow row_of(const std::string& day, const std::string& function, std::int64_t requests) {
  UsageRow row{day, "t", function, {}, 5, 6};
  row.usage.requests = requests;
  row.usage.core_ns = Amount(std::numeric_limits<std::int64_t>::max()) * 1000 + 7;
  row.usage.memory[0] = {1, Amount(1) << 100};
  row.usage.memory[2].idle = 9;
  return row;
}

TEST_F(UsageStoreTest, AFileKeepsItsIdAndAnotherOneHasAnother) {
  auto store = UsageStore::open(path_);
  ASSERT_TRUE(store) << store.error().message;
  const auto id = (*store)->id();
  ASSERT_TRUE(id) << id.error().message;
  EXPECT_EQ(id->size(), 16U);
  EXPECT_EQ((*store)->id().value(), *id);
  ASSERT_TRUE((*store)->write(std::vector{row_of("2026-11-22", "b", 1)}));
  store->reset();
  store = UsageStore::open(path_);
  ASSERT_TRUE(store) << store.error().message;
  EXPECT_EQ((*store)->id().value(), *id);
  EXPECT_EQ((*store)->read("2026-11-22", "2026-11-22")->size(), 1U);
  store->reset();
  remove_files();
  store = UsageStore::open(path_);
  ASSERT_TRUE(store) << store.error().message;
  EXPECT_NE((*store)->id().value(), *id);
}

TEST_F(UsageStoreTest, RowsComeBackAndReplaceEarlierOnes) {
  auto store = UsageStore::open(path_);
  ASSERT_TRUE(store) << store.error().message;
  ASSERT_TRUE((*store)->write(std::vector{
      row_of("2026-11-22", "b", 1), row_of("2026-11-23", "a", 2), row_of("2026-11-24", "a", 3)}));
  ASSERT_TRUE((*store)->write(std::vector{row_of("2026-11-23", "a", 20)}));
  store->reset();
  store = UsageStore::open(path_);
  ASSERT_TRUE(store) << store.error().message;
  const auto rows = (*store)->read("2026-11-22", "2026-11-23");
  ASSERT_TRUE(rows) << rows.error().message;
  ASSERT_EQ(rows->size(), 2U);
  EXPECT_EQ((*rows)[0].function, "b");
  const UsageRow& row = (*rows)[1];
  EXPECT_EQ(row.usage.requests, 20);
  EXPECT_EQ(row.prompt_tokens, 5);
  EXPECT_EQ(row.output_tokens, 6);
  EXPECT_TRUE(row.usage.core_ns == row_of("", "", 0).usage.core_ns);
  EXPECT_TRUE(row.usage.memory[0].idle == Amount(1) << 100);
  EXPECT_TRUE(row.usage.memory[2].idle == 9);
}

// Another process, because locks of files are a process's.
TEST_F(UsageStoreTest, OneProcessAtATimeHasTheFile) {
  const auto store = UsageStore::open(path_);
  ASSERT_TRUE(store);
  const pid_t child = fork();
  if (child == 0) {
    const auto second = UsageStore::open(path_);
    const bool refused =
        !second && second.error().message.find("another process") != std::string::npos;
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE((*store)->write(std::vector{row_of("2026-11-22", "b", 1)}));
}

// Lets files of this process grow to `bytes`, as a disk that is full does.
void limit_files(rlim_t bytes) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  limit.rlim_cur = std::min(bytes, limit.rlim_max);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

std::vector<UsageRow> many_rows(std::int64_t requests) {
  std::vector<UsageRow> rows;
  for (int i = 0; i < 2000; ++i) {
    rows.push_back(row_of("2026-11-23", "f" + std::to_string(i), requests));
  }
  return rows;
}

void expect_rows(UsageStore& store, std::int64_t requests) {
  const auto rows = store.read("2026-11-23", "2026-11-23");
  ASSERT_TRUE(rows) << rows.error().message;
  ASSERT_EQ(rows->size(), 2000U);
  for (const UsageRow& row : *rows) ASSERT_EQ(row.usage.requests, requests);
}

// Runs `check` in a process of its own, whose limit of files no other test sees.
void in_child(const std::function<void()>& check) {
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);  // then writes fail with an error
    check();
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(UsageStoreTest, AWriteThatFindsNoRoomChangesNothingAndALaterOneHasAll) {
  in_child([this] {
    auto store = UsageStore::open(path_);
    ASSERT_TRUE(store);
    ASSERT_TRUE((*store)->write(many_rows(1)));
    limit_files(4096);
    for (int i = 0; i < 3; ++i) {
      const Status full = (*store)->write(many_rows(2));
      ASSERT_FALSE(full);
      EXPECT_NE(full.error().message.find(path_), std::string::npos);
    }
    expect_rows(**store, 1);
    limit_files(RLIM_INFINITY);
    ASSERT_TRUE((*store)->write(many_rows(3)));
    expect_rows(**store, 3);
  });
}

TEST_F(UsageStoreTest, AFileThatIsThereOpensOnAFullDisk) {
  in_child([this] {
    {
      auto store = UsageStore::open(path_);
      ASSERT_TRUE(store);
      ASSERT_TRUE((*store)->write(many_rows(1)));
    }
    limit_files(0);
    auto store = UsageStore::open(path_);
    ASSERT_TRUE(store) << store.error().message;
    expect_rows(**store, 1);
    EXPECT_FALSE((*store)->write(many_rows(2)));
    limit_files(RLIM_INFINITY);
    EXPECT_TRUE((*store)->write(many_rows(2)));
  });
}

TEST_F(UsageStoreTest, OtherUsersMayNotReadTheFile) {
  ASSERT_TRUE(UsageStore::open(path_));
  struct stat status{};
  ASSERT_EQ(stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
}

TEST_F(UsageStoreTest, OtherFilesAndMissingFoldersAreErrors) {
  std::ofstream(path_) << "this is no database, and it is long enough to have a header";
  const auto other = UsageStore::open(path_);
  ASSERT_FALSE(other);
  EXPECT_NE(other.error().message.find(path_), std::string::npos);
  EXPECT_FALSE(UsageStore::open("/no/such/folder/usage.db"));
}

TEST(AmountTextTest, GoesThereAndBack) {
  for (const Amount amount : {Amount(0), Amount(9), Amount(10), Amount(1) << 126}) {
    const auto back = parse_amount(amount_text(amount));
    ASSERT_TRUE(back);
    EXPECT_TRUE(*back == amount);
  }
  for (const char* wrong : {"", "-1", "1.5", "x", "999999999999999999999999999999999999999"}) {
    EXPECT_FALSE(parse_amount(wrong)) << wrong;
  }
}

}  // namespace
}  // namespace sluice
