#include "offload/write_budget.h"

#include <gtest/gtest.h>

#include "tests/support/checkpoint_files.h"

namespace sluice {
namespace {

constexpr std::int64_t kDay = 24 * 3600;
constexpr std::int64_t kNoon = 20'000 * kDay + kDay / 2;

TEST(WriteBudget, EachDayHasItsBytes) {
  const TempDirectory folder;
  WriteBudget budget(1000);
  budget.open(folder.file("written"), kNoon);
  EXPECT_TRUE(budget.allows(1000, kNoon));
  EXPECT_FALSE(budget.allows(1001, kNoon));
  budget.note_written(900, kNoon);
  EXPECT_TRUE(budget.allows(100, kNoon));
  EXPECT_FALSE(budget.allows(101, kNoon));
  budget.note_written(300, kNoon);  // moves that were under way
  EXPECT_FALSE(budget.allows(1, kNoon));
  EXPECT_TRUE(budget.allows(1000, kNoon + kDay));
  budget.note_written(400, kNoon + kDay);
  EXPECT_TRUE(budget.allows(600, kNoon + kDay));
  EXPECT_FALSE(budget.allows(601, kNoon + kDay));
}

TEST(WriteBudget, ARestartGoesOnWithTheDay) {
  const TempDirectory folder;
  const std::string path = folder.file("written");
  {
    WriteBudget budget(1000);
    budget.open(path, kNoon);
    budget.note_written(700, kNoon);
    budget.write_file(budget.noted());
  }
  WriteBudget same(1000);
  same.open(path, kNoon + 60);
  EXPECT_FALSE(same.allows(301, kNoon + 60));
  WriteBudget next(1000);
  next.open(path, kNoon + kDay);
  EXPECT_TRUE(next.allows(1000, kNoon + kDay));
  folder.write("written", "short");
  WriteBudget damaged(1000);
  damaged.open(path, kNoon);
  EXPECT_TRUE(damaged.allows(1000, kNoon));
}

TEST(WriteBudget, AKillForgetsLittle) {
  const TempDirectory folder;
  const std::uint64_t block = WriteBudget::kUnnoted / 4;
  WriteBudget budget(100 * block);
  budget.open(folder.file("written"), kNoon);
  for (int i = 0; i < 10; ++i) {
    if (budget.note_written(block, kNoon)) budget.write_file(budget.noted());
  }
  WriteBudget after(100 * block);
  after.open(folder.file("written"), kNoon);
  EXPECT_FALSE(after.allows(93 * block, kNoon));
  EXPECT_TRUE(after.allows(90 * block, kNoon));
}

TEST(WriteBudget, AClockThatGoesBackGivesNoBytesAgain) {
  const TempDirectory folder;
  WriteBudget budget(1000);
  budget.open(folder.file("written"), kNoon);
  budget.note_written(1000, kNoon);
  EXPECT_FALSE(budget.allows(1, kNoon - kDay));
  EXPECT_FALSE(budget.allows(1, kNoon - 9000 * kDay));
  budget.note_written(1, kNoon - 9000 * kDay);
  EXPECT_TRUE(budget.allows(1000, kNoon)) << "a later day than the last is a new one";
  budget.note_written(1000, kNoon + 9000 * kDay);
  EXPECT_FALSE(budget.allows(1, kNoon));
  EXPECT_TRUE(budget.allows(1000, kNoon + kDay)) << "the wrong year is forgotten";
}

TEST(WriteBudget, AFileOfTheFutureCountsOneDay) {
  const TempDirectory folder;
  WriteBudget wrong(1000);
  wrong.open(folder.file("written"), kNoon + 9000 * kDay);
  wrong.note_written(1000, kNoon + 9000 * kDay);
  wrong.write_file(wrong.noted());
  WriteBudget today(1000);
  today.open(folder.file("written"), kNoon);
  EXPECT_FALSE(today.allows(1, kNoon));
  // As after a kill: the object above wrote nothing since.
  WriteBudget tomorrow(1000);
  tomorrow.open(folder.file("written"), kNoon + kDay);
  EXPECT_TRUE(tomorrow.allows(1000, kNoon + kDay));
}

TEST(WriteBudget, WithoutALimitThereIsNoFile) {
  const TempDirectory folder;
  WriteBudget budget(0);
  budget.open(folder.file("written"), kNoon);
  EXPECT_FALSE(budget.note_written(WriteBudget::kUnnoted, kNoon));
  budget.write_file(budget.noted());
  EXPECT_TRUE(budget.allows(~std::uint64_t{0}, kNoon));
  WriteBudget limited(10);
  limited.open(folder.file("written"), kNoon);
  EXPECT_TRUE(limited.allows(10, kNoon));
}

}  // namespace
}  // namespace sluice
