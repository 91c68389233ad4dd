#include "base/hmac.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

namespace sluice {
namespace {

std::string hex(const HmacTag& tag) {
  std::string text;
  for (const std::byte byte : tag) {
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", static_cast<unsigned>(byte));
    text += digits;
  }
  return text;
}

// RFC 4231, test case 1, whose key of 20 bytes HMAC extends with zeros.
TEST(Hmac, VectorOfRfc4231AndAnotherMessageWithTheSameKey) {
  HmacKey key{};
  for (std::size_t i = 0; i < 20; ++i) key[i] = std::byte{0x0b};
  Hmac hmac(key);
  for (int i = 0; i < 2; ++i) {
    const std::string text = "Hi There";
    hmac.update(std::as_bytes(std::span(text)).first(3));
    hmac.update(std::as_bytes(std::span(text)).subspan(3));
    EXPECT_EQ(hex(hmac.finish()),
              "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  }
}

TEST(Hmac, BytesAreEqualIfNoneDiffers) {
  const HmacTag tag = derive_key(HmacKey{}, "a");
  EXPECT_TRUE(equal_in_constant_time(tag, HmacTag(tag)));
  for (const std::size_t place : {std::size_t{0}, tag.size() - 1}) {
    HmacTag other = tag;
    other[place] ^= std::byte{0x80};
    EXPECT_FALSE(equal_in_constant_time(tag, other));
  }
}

TEST(Hmac, KeysOfDifferentPurposesDiffer) {
  const HmacKey secret{};
  EXPECT_NE(derive_key(secret, "a"), derive_key(secret, "b"));
  EXPECT_EQ(derive_key(secret, "a"), derive_key(secret, "a"));
  Hmac of_secret(secret);
  for (const char* label : {"a", "b", "a"}) {
    EXPECT_EQ(derive_key(of_secret, label), derive_key(secret, label));
  }
}

}  // namespace
}  // namespace sluice
