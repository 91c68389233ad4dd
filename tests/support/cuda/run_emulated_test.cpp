#include "tests/support/cuda/run_emulated.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "tests/support/cuda/emulated_gpu.h"

namespace sluice::cuda {
namespace {

// The emulation itself: each thread runs once, barriers work, and missing barriers are detected.

TEST(RunEmulated, EveryThreadOfEveryBlockRunsOnce) {
  std::array<int, 6 * 64> runs = {};
  ASSERT_TRUE(emulation::run_grid({3, 2, 64, 0}, [&] {
    ++runs[(blockIdx.y * 3 + blockIdx.x) * 64 + threadIdx.x];
    EXPECT_EQ(blockDim.x, 64U);
  }));
  EXPECT_THAT(runs, testing::Each(1));
}

// Whether all threads of a block read what their mirror image wrote.
bool mirror(bool with_barrier) {
  std::array<unsigned, 64> shared = {};
  int wrong = 0;
  EXPECT_TRUE(emulation::run_grid({1, 1, 64, 0}, [&] {
    shared[threadIdx.x] = threadIdx.x + 1;
    if (with_barrier) __syncthreads();
    if (shared[63 - threadIdx.x] != 64 - threadIdx.x) ++wrong;
  }));
  return wrong == 0;
}

TEST(RunEmulated, AMissingBarrierShows) {
  for (int i = 0; i < 2; ++i) {  // forwards and backwards
    EXPECT_TRUE(mirror(true));
    EXPECT_FALSE(mirror(false));
  }
}

TEST(RunEmulated, LanesExchangeAcrossRepeats) {
  std::array<float, 64> sums = {};
  ASSERT_TRUE(emulation::run_grid({1, 1, 64, 0}, [&] {
    float value = static_cast<float>(threadIdx.x);
    for (int distance = 16; distance > 0; distance /= 2) {
      value += __shfl_xor_sync(0xFFFFFFFFU, value, distance);
    }
    sums[threadIdx.x] = value;
  }));
  for (std::size_t t = 0; t < 64; ++t) EXPECT_EQ(sums[t], t < 32 ? 496.0F : 1520.0F) << t;
}

TEST(RunEmulated, ATrapEndsTheKernelAndTheNextOneRuns) {
  for (int i = 0; i < 2; ++i) {
    int after = 0;
    EXPECT_FALSE(emulation::run_grid({2, 1, 32, 0}, [&] {
      __syncwarp();
      if (threadIdx.x == 7) __trap();
      __syncthreads();
      ++after;
    }));
    EXPECT_EQ(after, 0);
    EXPECT_TRUE(mirror(true));
  }
}

TEST(RunEmulatedDeathTest, ABarrierThatSomeNeverReachIsOurBug) {
  EXPECT_DEATH(static_cast<void>(emulation::run_grid({1, 1, 64, 0},
                                                     [] {
                                                       if (threadIdx.x < 40) {
                                                         __syncthreads();
                                                       } else if (threadIdx.x < 50) {
                                                         __syncwarp();
                                                       }
                                                     })),
               "CHECK failed");
}

}  // namespace
}  // namespace sluice::cuda
