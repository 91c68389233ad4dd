#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/cuda_device.h"

namespace sluice {
namespace {

// Built only where there is no CUDA: all functions say what to do.
TEST(CudaAbsent, SaysWhatToDo) {
  const auto device = make_cuda_device(3);
  ASSERT_FALSE(device);
  EXPECT_EQ(device.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(device.error().message,
              testing::AllOf(testing::StartsWith("cuda:3: "), testing::HasSubstr("--device cpu")));
  const auto chunks = make_cuda_chunks(3, 1 << 30);
  ASSERT_FALSE(chunks);
  EXPECT_EQ(chunks.error().message, device.error().message);
  const auto machine = inspect_cuda();
  ASSERT_FALSE(machine);
  EXPECT_EQ(machine.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(machine.error().message, testing::HasSubstr("nvcc"));
}

}  // namespace
}  // namespace sluice
