#include "base/ed25519.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/base64.h"

namespace sluice {
namespace {

// Made by `openssl genpkey -algorithm ed25519` and `openssl pkeyutl -sign -rawin` (OpenSSL 3.0.19).
constexpr std::string_view kPrivate =
    "-----BEGIN PRIVATE KEY-----\n"
    "MC4CAQAwBQYDK2VwBCIEIOF8aNwAYibJEpn9VE2hpCK5K2HkgkiZRoME41JDgVTM\n"
    "-----END PRIVATE KEY-----\n";
constexpr std::string_view kPublic = "MCowBQYDK2VwAyEALYD9rcfKYTgqbWt57sAM4ZWYOAi9V90aQ0yoLH7+KXM=";
constexpr std::string_view kMessage =
    "sluice adapter sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
constexpr std::string_view kSignature =
    "RuDFz9EWYzsiCKRYM0eaQPKo+m8cAdUkOqTPvJFDnWiJN37bZykoGI/"
    "GbiUXww+L8qQkTAL9D0XvJRWMnXf+BA==";
// A key of X25519, which has the same length.
constexpr std::string_view kOtherKind =
    "MCowBQYDK2VuAyEAthZRyxIgtC6sVOjt2mTLp+TtdUbZQfkZsQY81xPjHVo=";

Ed25519Signature signature_of(std::string_view base64) {
  const std::string bytes = from_base64(base64).value();
  Ed25519Signature signature{};
  std::ranges::copy(bytes, reinterpret_cast<char*>(signature.data()));
  return signature;
}

TEST(Ed25519, VerifiesASignatureOfOpenssl) {
  const auto key = parse_ed25519_public_key(kPublic);
  ASSERT_TRUE(key);
  EXPECT_EQ(ed25519_public_key_text(*key), kPublic);
  EXPECT_TRUE(verify_ed25519(*key, kMessage, signature_of(kSignature)));
}

TEST(Ed25519, SignsAsOpensslDoes) {
  const auto made = sign_ed25519(kPrivate, kMessage);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(ed25519_public_key_text(made->key), kPublic);
  EXPECT_EQ(made->signature, signature_of(kSignature));  // Ed25519 has no random part
}

TEST(Ed25519, AChangedBitOfAnyPartFails) {
  const Ed25519PublicKey key = parse_ed25519_public_key(kPublic).value();
  const Ed25519Signature signature = signature_of(kSignature);
  for (std::size_t i = 0; i < 8 * signature.size(); ++i) {
    Ed25519Signature changed = signature;
    changed[i / 8] ^= static_cast<std::uint8_t>(1U << (i % 8));
    EXPECT_FALSE(verify_ed25519(key, kMessage, changed)) << i;
  }
  for (std::size_t i = 0; i < 8 * key.size(); ++i) {
    Ed25519PublicKey changed = key;
    changed[i / 8] ^= static_cast<std::uint8_t>(1U << (i % 8));
    EXPECT_FALSE(verify_ed25519(changed, kMessage, signature)) << i;
  }
  EXPECT_FALSE(verify_ed25519(key, std::string(kMessage) + " ", signature));
  EXPECT_FALSE(verify_ed25519(key, "", signature));
}

TEST(Ed25519, OtherTextsAreNoKeys) {
  for (const std::string_view text : {std::string_view(), kPublic.substr(4),
                                      std::string_view("no base64"), kOtherKind, kSignature}) {
    EXPECT_FALSE(parse_ed25519_public_key(text)) << text;
  }
  for (const std::string_view text : {std::string_view(), kPublic, kPrivate.substr(0, 60)}) {
    EXPECT_FALSE(sign_ed25519(text, kMessage)) << text;
  }
}

}  // namespace
}  // namespace sluice
