// Emulated tile registers do what a plain reading of the manual says. On a CPU with AMX the same
// tests run on its own.
#include "tests/support/tiles/tile_emulator.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstring>
#include <thread>

#include "base/rng.h"
#include "device/cpu/cpu_device.h"
#include "device/cpu/kernels/tile_registers.h"

namespace sluice::test {
namespace {

using kernels::clear_tile;
using kernels::load_tile;
using kernels::store_tile;
using kernels::TileSession;

// Registers: 0 is a sum, kWhole (4) the left factor, 1 the right one.
constexpr int kLeft = TileSession::kWhole;
constexpr std::int64_t kSide = kernels::kTileRows;

class TileEmulatorTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto isas = tested_cpu_isas();
    if (std::find(isas.begin(), isas.end(), CpuIsa::kAmx) == isas.end()) {
      GTEST_SKIP() << "AMX kernels also need AVX-512 with BF16 and VBMI";
    }
  }
};

float bf16(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float value = 0;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

TEST_F(TileEmulatorTest, AddsProductsOfBf16) {
  SplitMix64 rng(1);
  for (const int columns : {16, 5, 1}) {
    std::vector<std::uint16_t> left(16 * 32);
    std::vector<std::uint16_t> right(16 * 32);
    // Values from 2^-8 to 2^8 with a sign, and some denormals.
    for (auto* values : {&left, &right}) {
      for (std::uint16_t& v : *values) {
        v = static_cast<std::uint16_t>((119 + rng.below(16)) << 7 | rng.below(128) |
                                       rng.below(2) << 15);
        if (rng.below(16) == 0) v = static_cast<std::uint16_t>(v & 0x807F);
      }
    }
    std::vector<float> sums(16 * 16);
    for (float& v : sums) v = static_cast<float>(rng.below(1000));
    std::vector<float> want = sums;
    for (std::size_t m = 0; m < 16; ++m) {
      for (std::size_t n = 0; n < static_cast<std::size_t>(columns); ++n) {
        float halves[2] = {0, 0};
        for (std::size_t k = 0; k < 32; ++k) {
          const auto normal = [](float v) { return std::fpclassify(v) == FP_SUBNORMAL ? 0.0F : v; };
          const float x = normal(bf16(left[m * 32 + k]));
          const float w = normal(bf16(right[(k / 2) * 32 + 2 * n + k % 2]));
          halves[k % 2] = std::fma(x, w, halves[k % 2]);
        }
        want[m * 16 + n] += halves[0] + halves[1];
      }
    }
    {
      const TileSession session(columns);
      load_tile<0>(sums.data(), 4 * kSide);
      load_tile<kLeft>(left.data(), 4 * kSide);
      load_tile<1>(right.data(), 4 * kSide);
      kernels::Bf16Products::add<0, kLeft, 1>();
      store_tile<0>(sums.data(), 4 * kSide);
    }
    EXPECT_EQ(sums, want) << columns;
  }
}

TEST_F(TileEmulatorTest, AddsProductsOfInt8) {
  SplitMix64 rng(2);
  std::vector<std::int8_t> left(16 * 64);
  std::vector<std::int8_t> right(16 * 64);
  for (auto* values : {&left, &right}) {
    for (std::int8_t& v : *values) v = static_cast<std::int8_t>(rng.below(256));
  }
  std::vector<std::int32_t> sums(16 * 16);
  for (std::int32_t& v : sums) v = static_cast<std::int32_t>(rng.below(1U << 31));
  std::vector<std::int32_t> want = sums;
  for (std::size_t m = 0; m < 16; ++m) {
    for (std::size_t n = 0; n < 16; ++n) {
      auto sum = static_cast<std::uint32_t>(want[m * 16 + n]);
      for (std::size_t k = 0; k < 64; ++k) {
        sum += static_cast<std::uint32_t>(left[m * 64 + k] * right[(k / 4) * 64 + 4 * n + k % 4]);
      }
      want[m * 16 + n] = static_cast<std::int32_t>(sum);
    }
  }
  {
    const TileSession session;
    load_tile<0>(sums.data(), 4 * kSide);
    load_tile<kLeft>(left.data(), 4 * kSide);
    load_tile<1>(right.data(), 4 * kSide);
    kernels::Int8Products::add<0, kLeft, 1>();
    store_tile<0>(sums.data(), 4 * kSide);
  }
  EXPECT_EQ(sums, want);
}

TEST_F(TileEmulatorTest, RowsMayLieInEitherDirection) {
  std::vector<std::int32_t> rows(16 * 16);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::int32_t>(i);
  std::vector<std::int32_t> turned(16 * 20, -1);
  {
    const TileSession session(3);
    load_tile<0>(rows.data() + 15 * 16, -4 * kSide);
    store_tile<0>(turned.data(), 4 * 20);
  }
  for (std::size_t row = 0; row < 16; ++row) {
    for (std::size_t col = 0; col < 20; ++col) {
      const std::int32_t want = col < 3 ? static_cast<std::int32_t>((15 - row) * 16 + col) : -1;
      EXPECT_EQ(turned[row * 20 + col], want) << row << " " << col;
    }
  }
}

TEST_F(TileEmulatorTest, EachThreadHasItsOwn) {
  std::vector<std::int32_t> rows(16 * 16, 7);
  {
    const TileSession session;
    load_tile<2>(rows.data(), 4 * kSide);
    std::thread other([&] {
      std::vector<std::int32_t> other_rows(16 * 16, 9);
      const TileSession of_other(4);
      clear_tile<2>();
      store_tile<2>(other_rows.data(), 4 * kSide);
      EXPECT_EQ(other_rows[0], 0);
      EXPECT_EQ(other_rows[4], 9);
    });
    other.join();
    rows.assign(rows.size(), 0);
    store_tile<2>(rows.data(), 4 * kSide);
  }
  EXPECT_EQ(rows, std::vector<std::int32_t>(16 * 16, 7));
}

TEST_F(TileEmulatorTest, AnotherUndefinedInstructionStillEndsTheProcess) {
  EXPECT_EXIT(asm volatile("ud2"), testing::KilledBySignal(SIGILL), "");
}

TEST_F(TileEmulatorTest, TilesMustBeConfigured) { EXPECT_DEATH(clear_tile<0>(), ""); }

// A server or a test that asks for no instruction set must not get the slow one.
TEST_F(TileEmulatorTest, IsNeverTheDefault) {
  const auto device = make_cpu_device({.threads = 1});
  ASSERT_TRUE(device);
  const auto isas = tested_cpu_isas();
  const auto best = make_cpu_device({.threads = 1, .isa = isas.back()});
  ASSERT_TRUE(best);
  EXPECT_EQ((*device)->traits().description, (*best)->traits().description);
  EXPECT_EQ(isas.front(), CpuIsa::kReference);
}

}  // namespace
}  // namespace sluice::test
