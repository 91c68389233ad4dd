// Compares logits of a model with weights in blocks with those of the same elements in BF16.
// Threads: one.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/decoder_harness.h"

namespace sluice::test {

// Inputs of weights in blocks are in 8 bits: logits differ, by a relative error below `near`.
inline void expect_elements_kept(const std::vector<std::vector<float>>& logits,
                                 const std::vector<std::vector<float>>& expected, double near) {
  EXPECT_NE(logits[0], logits[1]);
  const double error = relative_error(logits, expected);
  EXPECT_GT(error, 0) << "inputs are not in 8 bits";
  EXPECT_LT(error, near);
}

}  // namespace sluice::test
