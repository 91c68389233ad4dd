#include "gateway/usage_store.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <limits>
#include <string>

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
