#include "base/sha256.h"

#include <gtest/gtest.h>

#include <utility>

namespace sluice {
namespace {

// FIPS 180-4 examples.
TEST(Sha256, MatchesKnownAnswers) {
  EXPECT_EQ(to_hex(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(to_hex(sha256("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(to_hex(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(to_hex(sha256(std::string(1000000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PiecesEqualTheWhole) {
  const std::string text(1000, 'x');
  for (const std::size_t split : {0U, 1U, 63U, 64U, 65U, 999U}) {
    Sha256 hash;
    hash.update(std::string_view(text).substr(0, split));
    hash.update(std::string_view(text).substr(split));
    EXPECT_EQ(hash.finish(), sha256(text)) << split;
  }
}

TEST(Sha256, IsResetByFinishAndSurvivesMoves) {
  Sha256 hash;
  hash.update("old");
  EXPECT_EQ(hash.finish(), sha256("old"));
  hash.update("a");
  Sha256 moved = std::move(hash);
  moved.update("bc");
  EXPECT_EQ(moved.finish(), sha256("abc"));
  EXPECT_EQ(moved.finish(), sha256(""));
}

}  // namespace
}  // namespace sluice
