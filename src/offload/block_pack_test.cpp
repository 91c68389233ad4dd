// Packing: every block comes back bit for bit, sizes are as promised, and no bytes crash it.
#include "offload/block_pack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numbers>
#include <vector>

#include "base/rng.h"

namespace sluice {
namespace {

using PackBytes = std::vector<std::byte>;

PackBytes pack_all(const PackBytes& block) {
  PackBytes packed(packed_limit(block.size()));
  packed.resize(pack_block(block, packed));
  return packed;
}

PackBytes make_floats(std::size_t count, auto next) {
  PackBytes block(count * 2);
  for (std::size_t i = 0; i < count; ++i) {
    const auto bits = static_cast<std::uint16_t>(next(i));
    std::memcpy(&block[i * 2], &bits, 2);
  }
  return block;
}

std::uint16_t to_bf16(double value) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(value)) >> 16);
}

double normal_float(SplitMix64& random) {
  const double radius = std::sqrt(-2 * std::log(1 - random.uniform()));
  return radius * std::cos(2 * std::numbers::pi * random.uniform());
}

double expect_same(const PackBytes& block) {
  const PackBytes packed = pack_all(block);
  EXPECT_LE(packed.size(), packed_limit(block.size()));
  PackBytes again(block.size(), std::byte{0xA5});
  EXPECT_TRUE(unpack_block(packed, again));
  EXPECT_EQ(again, block);
  return static_cast<double>(block.size()) / static_cast<double>(packed.size());
}

TEST(BlockPack, WritesTheFormatOfItsHeader) {
  const PackBytes ones = make_floats(8, [](std::size_t) { return 0x3F80; });
  const auto bytes = [](std::initializer_list<int> list) {
    PackBytes out;
    for (const int value : list) out.push_back(static_cast<std::byte>(value));
    return out;
  };
  EXPECT_EQ(pack_all(ones), bytes({2, 0, 0, 127, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));

  // 32 floats with four exponents: the rarest is an escape.
  const PackBytes four = make_floats(32, [](std::size_t i) {
    if (i == 9) return 0xC0C1;  // exponent 129, negative, mantissa 0x41
    return i < 16 ? 0x3F80 : i < 24 ? 0x4000 : 0x3F00;
  });
  PackBytes expected = bytes({2, 1, 0, 127, 126, 128});
  for (int i = 0; i < 32; ++i) expected.push_back(std::byte{0});
  expected[6 + 9] = std::byte{0xC1};
  for (const int code : {0, 0, 0b1100, 0, 0b10101010, 0b10101010, 0b01010101, 0b01010101}) {
    expected.push_back(static_cast<std::byte>(code));
  }
  expected.push_back(std::byte{129});
  EXPECT_EQ(pack_all(four), expected);
  expect_same(four);
}

TEST(BlockPack, GainsOnNormalFloatsAndLosesAlmostNothingOnNoise) {
  SplitMix64 random(7);
  const PackBytes plain =
      make_floats(1 << 16, [&](std::size_t) { return to_bf16(normal_float(random)); });
  EXPECT_GT(expect_same(plain), 1.38);
  // Columns of different scales, as those of keys.
  const PackBytes columns = make_floats(1 << 16, [&](std::size_t i) {
    return to_bf16(normal_float(random) * std::exp2(static_cast<double>(i % 64) / 16));
  });
  EXPECT_GT(expect_same(columns), 1.3);
  const PackBytes noise = make_floats(1 << 16, [&](std::size_t) { return random.below(1 << 16); });
  EXPECT_GT(expect_same(noise), 0.999);
  const PackBytes zeros(1 << 16);
  EXPECT_EQ(pack_all(zeros).size(), zeros.size() / 2 / kSectionFloats);
  expect_same(zeros);
}

TEST(BlockPack, EverySizeAndEveryKindOfFloatComesBack) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SplitMix64 random(seed);
    const std::uint64_t kind = random.below(5);
    const std::size_t count = random.below(3 * kSectionFloats);
    const PackBytes block = make_floats(count, [&](std::size_t i) -> std::uint64_t {
      if (kind == 0) return random.below(1 << 16);
      if (kind == 1) return i / 100 % 2 == 0 ? 0 : random.below(1 << 16);
      if (kind == 2) return (random.below(2) << 15) | 0x7F80 | random.below(4);  // inf, NaN
      if (kind == 3) return random.below(40) == 0 ? random.below(1 << 16) : 0x3F80;
      return to_bf16(normal_float(random) * 1e-38);  // subnormal ones among them
    });
    SCOPED_TRACE(seed);
    expect_same(block);
  }
}

TEST(BlockPack, BytesThatAreNoPackedBlockAreRefusedOrGiveSomeBlock) {
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    SplitMix64 random(seed);
    PackBytes block = make_floats(1000 + random.below(2000) / 8 * 8,
                                  [&](std::size_t) { return to_bf16(normal_float(random)); });
    PackBytes packed = pack_all(block);
    const PackBytes good = packed;
    const std::uint64_t kind = random.below(3);
    if (kind == 0) packed.resize(random.below(packed.size()));
    if (kind == 1) packed.push_back(std::byte{0});
    for (std::uint64_t flips = kind == 2 ? 1 + random.below(8) : 0; flips > 0; --flips) {
      const std::size_t at = random.below(random.below(2) == 0 ? packed.size() : 20);
      packed[at] ^= static_cast<std::byte>(1 + random.below(255));
    }
    // A copy of exact size, so that a sanitizer sees reads beyond it.
    const PackBytes exact(packed.begin(), packed.end());
    const bool unpacked = unpack_block(exact, block);
    if (kind < 2) {
      EXPECT_FALSE(unpacked) << seed;
    }
  }
}

}  // namespace
}  // namespace sluice
