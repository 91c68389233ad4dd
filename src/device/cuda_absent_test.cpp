#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/cuda_device.h"

namespace sluice {
namespace {

// Built only where there is no CUDA: both functions say what to do.
TEST(CudaAbsent, SaysWhatToDo) {
  const auto device = make_cuda_device(3);
  ASSERT_FALSE(device);
  EXPECT_EQ(device.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(device.error().message,
              testing::AllOf(testing::StartsWith("cuda:3: "), testing::HasSubstr("--device cpu")));
  const auto machine = inspect_cuda();
  ASSERT_FALSE(machine);
  EXPECT_EQ(machine.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(machine.error().message, testing::HasSubstr("nvcc"));
}

}  // namespace
}  // namespace sluice
