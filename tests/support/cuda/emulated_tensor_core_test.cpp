// The instructions of kernels/tensor_core.cuh, as the emulation has them, against matrices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "base/rng.h"
#include "tests/support/cuda/emulated_gpu.h"
#include "tests/support/cuda/run_emulated.h"
// Included after the definitions of the language's keywords.
#include "device/cuda/kernels/tensor_core.cuh"

namespace sluice::cuda {
namespace {

using emulation::run_grid;

// Small whole numbers: sums of their products are exact.
std::vector<float> small_numbers(std::uint64_t seed, std::size_t count) {
  SplitMix64 rng(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(rng.below(15)) - 7.0F;
  return values;
}

template <DType kType>
void to_halves(const std::vector<float>& values, std::uint16_t* to) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    to[i] = static_cast<std::uint16_t>(pack<kType>(values[i], 0.0F));
  }
}

// Row-major a (16 x 16) times b, stored by columns (8 of 16) or by rows (16 of 8).
template <DType kType>
std::vector<float> product(const std::vector<float>& a, const std::vector<float>& b,
                           bool b_by_columns) {
  alignas(16) static std::uint16_t a_halves[256];
  alignas(16) static std::uint16_t b_halves[256];  // load_matrices takes 32 rows of 8
  std::vector<float> c(16 * 8);
  EXPECT_TRUE(run_grid({1, 1, 32, 0}, [&] {
    const unsigned lane = threadIdx.x;
    if (lane == 0) {
      to_halves<kType>(a, a_halves);
      to_halves<kType>(b, b_halves);
    }
    __syncwarp();
    unsigned a_part[4];
    load_matrices(a_part, a_halves + lane % 16 * 16 + lane / 16 * 8);
    unsigned b_part[4];
    if (b_by_columns) {
      load_matrices(b_part, b_halves + lane % 8 * 16 + lane / 8 % 2 * 8);
    } else {
      load_matrices_transposed(b_part, b_halves + lane % 16 * 8);
    }
    float sums[4] = {1.0F, 2.0F, 3.0F, 4.0F};
    multiply_add<kType>(sums, a_part, b_part[0], b_part[1]);
    for (unsigned i = 0; i < 4; ++i) {
      c[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = sums[i] - static_cast<float>(i + 1);
    }
  }));
  return c;
}

TEST(EmulatedTensorCore, LoadsAndProductsFitTogether) {
  const auto a = small_numbers(1, 16 * 16);
  const auto b = small_numbers(2, 16 * 8);
  std::vector<float> by_columns(16 * 8);
  std::vector<float> want(16 * 8);
  for (std::size_t n = 0; n < 8; ++n) {
    for (std::size_t k = 0; k < 16; ++k) by_columns[n * 16 + k] = b[k * 8 + n];
  }
  for (std::size_t m = 0; m < 16; ++m) {
    for (std::size_t n = 0; n < 8; ++n) {
      for (std::size_t k = 0; k < 16; ++k) want[m * 8 + n] += a[m * 16 + k] * b[k * 8 + n];
    }
  }
  EXPECT_EQ(product<DType::kBF16>(a, by_columns, true), want);
  EXPECT_EQ(product<DType::kF16>(a, by_columns, true), want);
  EXPECT_EQ(product<DType::kBF16>(a, b, false), want);
  EXPECT_EQ(product<DType::kF16>(a, b, false), want);
}

// Four examples of the document's figures: one element each of a, b and c.
TEST(EmulatedTensorCore, ElementsLieInTheLanesOfTheDocument) {
  std::array<float, 32 * 4> sums = {};
  ASSERT_TRUE(run_grid({1, 1, 32, 0}, [&] {
    const unsigned lane = threadIdx.x;
    unsigned a[4] = {};
    unsigned b0 = 0;
    unsigned b1 = 0;
    if (lane == 5) a[3] = pack_f16(0.0F, 2.0F);  // a_7 of group 1, thread 1: row 9, column 11
    if (lane == 13) b1 = pack_f16(0.0F, 3.0F);   // b_3 of group 3, thread 1: row 11, column 3
    float c[4] = {};
    multiply_add_f16(c, a, b0, b1);
    for (unsigned i = 0; i < 4; ++i) sums[lane * 4 + i] = c[i];
  }));
  for (std::size_t i = 0; i < sums.size(); ++i) {
    // Row 9, column 3: c_3 of group 1, thread 1.
    EXPECT_EQ(sums[i], i == 5 * 4 + 3 ? 6.0F : 0.0F) << i;
  }
}

TEST(EmulatedTensorCore, PackingRoundsToNearestEven) {
  EXPECT_EQ(pack_bf16(1.0F, -2.0F), 0xC0003F80U);
  EXPECT_EQ(pack_bf16(0x1.01p0F, 0x1.03p0F), 0x3F823F80U);
  EXPECT_EQ(pack_f16(1.0F, -2.0F), 0xC0003C00U);
  EXPECT_EQ(pack_f16(0x1.002p0F, 1e6F), 0x7C003C00U);
  EXPECT_EQ(pack_bf16(std::nanf(""), INFINITY), 0x7F807FFFU);
}

TEST(EmulatedTensorCore, CodesAreWidenedInOrderAndNanIsRefused) {
  unsigned wide[2];
  widen_e4m3_bf16(wide, 0xFE01B840U);  // 2, -1, 2^-9, -448
  EXPECT_EQ(wide[0], 0xBF804000U);
  EXPECT_EQ(wide[1], 0xC3E03B00U);
  widen_e4m3_f16(wide, 0xFE01B840U);
  EXPECT_EQ(wide[0], 0xBC004000U);
  EXPECT_EQ(wide[1], 0xDF001800U);
  EXPECT_FALSE(run_grid({1, 1, 32, 0}, [] {
    unsigned to[2];
    widen_e4m3_bf16(to, 0x7F000000U);
  }));
}

TEST(EmulatedTensorCore, PowersOfTwoEndWhereAGpusDo) {
  EXPECT_EQ(power_of_two(0.0F), 1.0F);
  EXPECT_EQ(power_of_two(-3.0F), 0.125F);
  EXPECT_EQ(power_of_two(-126.0F), 0x1p-126F);
  EXPECT_EQ(power_of_two(-126.5F), 0.0F) << "and no subnormal number";
  EXPECT_EQ(power_of_two(-INFINITY), 0.0F);
  EXPECT_TRUE(std::isnan(power_of_two(std::nanf(""))));
}

TEST(EmulatedTensorCore, CopiesAreThereOnlyWhenWaitedFor) {
  alignas(16) std::array<int, 8> source = {1, 2, 3, 4, 5, 6, 7, 8};
  std::array<int, 3> seen = {};
  ASSERT_TRUE(run_grid({1, 1, 32, 64}, [&] {
    int* const target = reinterpret_cast<int*>(dynamic_shared());
    if (threadIdx.x != 0) return;
    copy_async(target, source.data(), true);
    commit_copies();
    copy_async(target + 4, source.data() + 4, true);
    copy_async(target + 8, source.data(), false);
    commit_copies();
    seen[0] = target[1];
    wait_for_copies(1);
    seen[1] = target[1] + target[5];
    wait_for_copies(0);
    seen[2] = target[1] + target[5] + target[8];
  }));
  EXPECT_THAT(seen, testing::ElementsAre(-1, 2 + -1, 2 + 6 + 0));
}

TEST(EmulatedTensorCore, AddressesThatAGpuRefusesTrap) {
  alignas(16) static std::uint16_t words[264];
  EXPECT_FALSE(run_grid({1, 1, 32, 64}, [] { copy_async(dynamic_shared(), words + 1, true); }));
  EXPECT_FALSE(run_grid({1, 1, 32, 64}, [] { copy_async(dynamic_shared() + 8, words, true); }));
  EXPECT_FALSE(run_grid({1, 1, 32, 0}, [] {
    unsigned to[4];
    load_matrices(to, words + threadIdx.x * 8 + (threadIdx.x == 9 ? 4 : 0));
  }));
  EXPECT_FALSE(run_grid({1, 1, 32, 0}, [] {
    unsigned to[4];
    load_once(to, words + 4);
  }));
}

TEST(EmulatedTensorCore, AllLanesTakePart) {
  EXPECT_FALSE(run_grid({1, 1, 32, 0}, [] {
    float c[4] = {};
    const unsigned a[4] = {};
    if (threadIdx.x == 3) return;
    multiply_add_f16(c, a, 0, 0);
  }));
  EXPECT_FALSE(run_grid({1, 1, 32, 0}, [] {
    float c[4] = {};
    const unsigned a[4] = {};
    if (threadIdx.x == 3) {
      multiply_add_bf16(c, a, 0, 0);
    } else {
      multiply_add_f16(c, a, 0, 0);
    }
  }));
}

TEST(EmulatedTensorCoreDeathTest, ForbiddenAccessesAbort) {
  EXPECT_DEATH(static_cast<void>(run_grid({1, 1, 32, 64}, [] { dynamic_shared()[64] = 1; })),
               "CHECK failed");
  alignas(16) static int source[4];
  EXPECT_DEATH(static_cast<void>(
                   run_grid({1, 1, 32, 64}, [] { copy_async(dynamic_shared(), source, true); })),
               "CHECK failed");
}

}  // namespace
}  // namespace sluice::cuda
