// AES-256-GCM against published answers, and that every changed bit is found.
#include "base/aes_gcm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {
namespace {

using Bytes = std::vector<std::byte>;

Bytes bytes_of(std::string_view hex) {
  Bytes bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}
template <class T>
T array_of(std::string_view hex) {
  T out{};
  const Bytes bytes = bytes_of(hex);
  EXPECT_EQ(bytes.size(), out.size());
  std::copy(bytes.begin(), bytes.end(), out.begin());
  return out;
}

struct Case {
  std::string_view key, nonce, beside, plain, sealed, tag;
};
// Test cases 14 and 16 of "The Galois/Counter Mode of Operation" (McGrew and Viega).
constexpr Case kCases[] = {
    {"0000000000000000000000000000000000000000000000000000000000000000", "000000000000000000000000",
     "", "00000000000000000000000000000000", "cea7403d4d606b6e074ec5d3baf39d18",
     "d0d1c8a799996bf0265b98b5d48ab919"},
    {"feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308", "cafebabefacedbaddecaf888",
     "feedfacedeadbeeffeedfacedeadbeefabaddad2",
     "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
     "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39",
     "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa"
     "8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662",
     "76fc6ece0f4e1768cddf8853bb2d551b"},
};

TEST(AesGcm, KnownAnswers) {
  AesGcm cipher;
  for (const Case& one : kCases) {
    const auto key = array_of<AesKey>(one.key);
    const auto nonce = array_of<AesNonce>(one.nonce);
    const Bytes plain = bytes_of(one.plain);
    Bytes sealed(plain.size());
    EXPECT_EQ(cipher.seal(key, nonce, bytes_of(one.beside), plain, sealed),
              array_of<AesTag>(one.tag));
    EXPECT_EQ(sealed, bytes_of(one.sealed));
    Bytes back(plain.size());
    EXPECT_TRUE(
        cipher.open(key, nonce, bytes_of(one.beside), sealed, array_of<AesTag>(one.tag), back));
    EXPECT_EQ(back, plain);
  }
}

// GMAC is the tag of no plain text with all bytes beside it. Lengths around those of a piece.
TEST(AesGcm, ATagWithoutEncryptionIsThatOfBytesBesideNothing) {
  AesGcm cipher;
  const AesKey key{std::byte{1}};
  const AesNonce nonce{std::byte{2}};
  for (const std::size_t size : {0, 1, 15, 16, 17, 16383, 16384, 16385, 40000}) {
    for (const std::size_t before : {0, 1, 16, 40}) {
      Bytes all(before + size);
      for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::byte>(i * 7 + i / 256);
      const auto beside = std::span<const std::byte>(all).first(before);
      const auto from = std::span<const std::byte>(all).subspan(before);
      Bytes to(size);
      const AesTag tag = cipher.copy_with_tag(key, nonce, beside, from, to);
      EXPECT_EQ(tag, cipher.seal(key, nonce, all, {}, {})) << before << " and " << size;
      EXPECT_TRUE(std::ranges::equal(from, to));
      if (size == 0) continue;
      all.back() ^= std::byte{1};
      EXPECT_NE(tag, cipher.copy_with_tag(key, nonce, beside, from, to));
    }
  }
}

TEST(AesGcm, EveryChangeIsFoundAndGivesNoBytes) {
  AesGcm cipher;
  AesKey key{std::byte{1}};
  AesNonce nonce = random_nonce();
  Bytes beside(5, std::byte{2});
  Bytes sealed(33, std::byte{3});
  AesTag tag = cipher.seal(key, nonce, beside, sealed, sealed);
  const auto opens = [&] {
    Bytes plain(sealed.size(), std::byte{9});
    const bool opened = cipher.open(key, nonce, beside, sealed, tag, plain);
    EXPECT_EQ(plain, Bytes(sealed.size(), opened ? std::byte{3} : std::byte{0}));
    return opened;
  };
  ASSERT_TRUE(opens());
  for (const std::span<std::byte> part :
       {std::span<std::byte>(key), std::span<std::byte>(nonce), std::span(beside),
        std::span(sealed), std::span<std::byte>(tag)}) {
    for (std::size_t bit = 0; bit < 8 * part.size(); ++bit) {
      part[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
      EXPECT_FALSE(opens()) << bit;
      part[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
    }
  }
  EXPECT_TRUE(opens());
}

TEST(AesGcm, NoncesDiffer) { EXPECT_NE(random_nonce(), random_nonce()); }

}  // namespace
}  // namespace sluice
