#include "base/content_hash.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace sluice {
namespace {

// XXH3's published values, so that a file of one build is read by the next.
TEST(ContentHashTest, IsXxh3WithoutASeed) {
  EXPECT_EQ(to_hex(content_hash(std::string_view())), "99aa06d3014798d86001c324468d497f");
}

TEST(ContentHashTest, PiecesGiveTheHashOfTheWhole) {
  std::string text(100'000, 'x');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 31 >> 3);
  for (const std::size_t piece : {1UL, 7UL, 255UL, 4096UL, 100'000UL}) {
    ContentHasher hasher;
    for (std::size_t at = 0; at < text.size(); at += piece) {
      hasher.update(std::as_bytes(std::span(text)).subspan(at, std::min(piece, text.size() - at)));
    }
    EXPECT_EQ(hasher.digest(), content_hash(text)) << piece;
  }
}

TEST(ContentHashTest, EveryBitCounts) {
  std::vector<std::byte> bytes(300, std::byte{0x5a});
  const Hash128 original = content_hash(bytes);
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] ^= std::byte(1U << (bit % 8));
    EXPECT_NE(content_hash(bytes), original) << bit;
    bytes[bit / 8] ^= std::byte(1U << (bit % 8));
  }
}

TEST(ContentHashTest, PartsDoNotRunTogether) {
  ContentHasher a;
  a.update_part("ab");
  a.update_part("c");
  ContentHasher b;
  b.update_part("a");
  b.update_part("bc");
  EXPECT_NE(a.digest(), b.digest());
}

}  // namespace
}  // namespace sluice
