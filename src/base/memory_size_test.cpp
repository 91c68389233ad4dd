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

}  // namespace
}  // namespace sluice
