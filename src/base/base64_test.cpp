#include "base/base64.h"

#include <gtest/gtest.h>

#include <string_view>

namespace sluice {
namespace {

std::string encode(std::string_view text) { return to_base64(std::as_bytes(std::span(text))); }

TEST(Base64, VectorsOfRfc4648) {
  EXPECT_EQ(encode(""), "");
  EXPECT_EQ(encode("f"), "Zg==");
  EXPECT_EQ(encode("fo"), "Zm8=");
  EXPECT_EQ(encode("foo"), "Zm9v");
  EXPECT_EQ(encode("foob"), "Zm9vYg==");
  EXPECT_EQ(encode("fooba"), "Zm9vYmE=");
  EXPECT_EQ(encode("foobar"), "Zm9vYmFy");
  EXPECT_EQ(encode("\xFB\xFF"), "+/8=");
}

TEST(Base64, ReadsWhatItWrites) {
  for (const std::string_view text : {"", "f", "fo", "foo", "foob", "\xFB\xFF", "a\0b"}) {
    EXPECT_EQ(from_base64(encode(text)), text);
  }
  EXPECT_EQ(from_base64("AAA="), std::string(2, '\0'));
}

TEST(Base64, RefusesOtherTexts) {
  for (const std::string_view text : {"A", "AA", "AAA", "A===", "====", "AB==", "AAB=", "AA=A",
                                      "AA==AAAA", "AA\n=", "AA-_", " AAA"}) {
    EXPECT_FALSE(from_base64(text)) << text;
  }
}

}  // namespace
}  // namespace sluice
