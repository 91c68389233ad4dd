#include "base/memory_size.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(MemorySizeTest, ReadsUnits) {
  EXPECT_EQ(*parse_memory_size("x", "1000000"), 1000000);
  EXPECT_EQ(*parse_memory_size("x", "512MiB"), std::int64_t{512} << 20);
  EXPECT_EQ(*parse_memory_size("x", "2GB"), 2000000000);
  EXPECT_EQ(*parse_memory_size("x", "1.5GiB"), (std::int64_t{3} << 30) / 2);
  for (const char* bad :
       {"", "GiB", "-1GiB", "0", "4gib", "4 GiB", "1e3", "nan", "inf", "4GiBx", "99999999999TiB"}) {
    EXPECT_FALSE(parse_memory_size("x", bad)) << bad;
  }
}

TEST(MemorySizeTest, SaysWhatIsWrong) {
  const auto error = [](const char* text) {
    return parse_memory_size("--budget", text).error().message;
  };
  EXPECT_EQ(error("four"), "--budget must be a size such as 4GiB, 512MiB or 2GB, got 'four'");
  EXPECT_EQ(error("infGiB"), "--budget must be a size such as 4GiB, 512MiB or 2GB, got 'infGiB'");
  EXPECT_EQ(error("9999999TiB"),
            "--budget is too large: it must be below 4194304TiB, got '9999999TiB'");
  EXPECT_EQ(error("0GiB"), "--budget must be at least 1 byte, got '0GiB'");
}

}  // namespace
}  // namespace sluice
