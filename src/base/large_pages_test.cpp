#include "base/large_pages.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(LargePages, SumsTheMappingsOfARange) {
  constexpr std::string_view kSmaps =
      "7f0000000000-7f0000400000 r--s 00000000 00:01 5 /memfd:sluice-backbone (deleted)\n"
      "Size:               4096 kB\nRss:                4096 kB\nAnonHugePages:         0 kB\n"
      "ShmemPmdMapped:     2048 kB\nFilePmdMapped:         0 kB\nVmFlags: rd mr\n"
      "7f0000400000-7f0000800000 rw-s 00400000 00:01 5 /memfd:x (deleted)\n"
      "ShmemPmdMapped:     4096 kB\n"
      "7f0000800000-7f0000900000 rw-p 00000000 00:00 0\nAnonHugePages:      512 kB\n";
  constexpr std::uintptr_t kBegin = 0x7f0000000000;
  EXPECT_EQ(bytes_in_large_pages(kSmaps, kBegin, 4 << 20), std::size_t{2} << 20);
  EXPECT_EQ(bytes_in_large_pages(kSmaps, kBegin, 8 << 20), std::size_t{6} << 20);
  EXPECT_EQ(bytes_in_large_pages(kSmaps, kBegin, 16 << 20), (std::size_t{6} << 20) + (512U << 10));
  EXPECT_EQ(bytes_in_large_pages(kSmaps, 1, 4096), 0U);
  EXPECT_EQ(bytes_in_large_pages("ShmemPmdMapped:     4096 kB", 0, 1 << 30), 0U);
  EXPECT_EQ(bytes_in_large_pages("", 0, 1 << 30), 0U);
}

TEST(LargePages, TheRuleIsTheWordInBrackets) {
  EXPECT_EQ(chosen_rule("always within_size advise [never] deny force"), "never");
  EXPECT_EQ(chosen_rule("[advise]"), "advise");
  for (const char* none : {"", "never", "]never[", "[never"}) EXPECT_EQ(chosen_rule(none), "");
  EXPECT_TRUE(grants_large_pages("advise") && grants_large_pages("always"));
  EXPECT_FALSE(grants_large_pages("never") || grants_large_pages("deny") || grants_large_pages(""));
}

}  // namespace
}  // namespace sluice
