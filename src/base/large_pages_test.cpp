#include "base/large_pages.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <vector>

#include "base/file.h"
#include "base/shared_memory.h"
#include "tests/support/aligned_mapping.h"

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

TEST(LargePages, ASharedFileGetsThemAndKeepsItsContents) {
  constexpr std::int64_t kLarge = kLargePageBytes;
  FileDescriptor file = *create_shared_memory("test", 4 * kLarge);
  // A page before the range, one within it, and the small ones that it ends with.
  ASSERT_EQ(::pwrite(file.get(), "a", 1, kLarge - 1), 1);
  ASSERT_EQ(::pwrite(file.get(), "b", 1, kLarge + 12'345), 1);
  if (!take_large_pages(file.get(), kLarge - 4096, 2 * kLarge + 8192)) {
    GTEST_SKIP() << "shmem_enabled is " << shared_large_page_rule();
  }
  struct stat facts{};
  ASSERT_EQ(::fstat(file.get(), &facts), 0);
  EXPECT_EQ(facts.st_blocks * 512, 2 * kLarge + 4096);  // the two that fit, and the first page
  const std::byte* const map = test::map_aligned(file, 4 * kLarge);
  ASSERT_NE(map, MAP_FAILED);
  EXPECT_EQ(map[kLarge - 1], std::byte{'a'});
  EXPECT_EQ(map[kLarge + 12'345], std::byte{'b'});
  EXPECT_EQ(map[kLarge + 12'346], std::byte{0});
  EXPECT_EQ(map[2 * kLarge], std::byte{0});
  EXPECT_EQ(bytes_in_large_pages(map, 4 * kLarge), std::size_t{2} * kLarge);
  EXPECT_TRUE(take_large_pages(file.get(), 4096, kLarge));  // none fits: nothing to do
}

// The system reuses the addresses of copies that have moved; they are another one's then.
TEST(LargePages, AMoverLeavesTheMemoryOfOthers) {
  const std::string rule = own_large_page_rule();
  if (rule.empty() || rule == "never") GTEST_SKIP() << "large pages: '" << rule << "'";
  constexpr auto kLarge = static_cast<std::size_t>(kLargePageBytes);
  constexpr std::size_t kPages = 8;
  FileDescriptor file = *create_shared_memory("test", kPages * kLargePageBytes);
  ASSERT_EQ(::pwrite(file.get(), "a", 1, 3 * kLargePageBytes), 1);
  std::byte* const map = test::map_aligned(file, kPages * kLarge);
  ASSERT_NE(map, MAP_FAILED);
  ASSERT_NE(::mmap(map, kPages * kLarge, PROT_READ, MAP_PRIVATE | MAP_FIXED, file.get(), 0),
            MAP_FAILED);
  std::vector<std::byte*> others;
  {
    LargePageMover mover({map, kPages * kLarge});
    EXPECT_EQ(mover.bytes(), kPages * kLarge);
    ThreadPool pool(1);
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(mover.move_next(pool));
    EXPECT_EQ(mover.moved(), 4 * kLarge);
    for (int i = 0; i < 32; ++i) {
      void* const other =
          ::mmap(nullptr, kLarge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      ASSERT_NE(other, MAP_FAILED);
      others.push_back(static_cast<std::byte*>(other));
      *others.back() = std::byte{7};
    }
  }
  for (std::byte* const other : others) {
    EXPECT_EQ(*other, std::byte{7});
    ::munmap(other, kLarge);
  }
  EXPECT_EQ(map[3 * kLarge], std::byte{'a'});
  EXPECT_EQ(bytes_in_large_pages(map, kPages * kLarge), 4 * kLarge);
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
