// Compares logits of a model with weights in blocks with those of the same elements in BF16.
// Threads: one.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "device/cpu/cpu_device.h"
#include "tests/support/decoder_harness.h"

namespace sluice::test {

// Both are of `isa`. They are equal where blocks are widened to BF16. Elsewhere inputs are in 8
// bits: they differ, by a relative error below `near`.
inline void expect_elements_kept(CpuIsa isa, const std::vector<std::vector<float>>& logits,
                                 const std::vector<std::vector<float>>& expected, double near) {
  const auto device = make_cpu_device({nullptr, 1, isa});
  ASSERT_TRUE(device) << device.error().message;
  EXPECT_NE(logits[0], logits[1]);
  if ((*device)->traits().blocks_as_bf16) {
    EXPECT_EQ(logits, expected);
    return;
  }
  const double error = relative_error(logits, expected);
  EXPECT_GT(error, 0) << "inputs are not in 8 bits";
  EXPECT_LT(error, near);
}

}  // namespace sluice::test
