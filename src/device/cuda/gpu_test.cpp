#include "device/cuda/gpu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/cuda/fake_driver.h"

namespace sluice::cuda {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(InspectGpu, DescribesTheGpuWithoutAContext) {
  FakeDriver fake;
  const auto info = inspect_gpu(FakeDriver::api(), 0);
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_EQ(describe(*info), "Fake GPU, capability 9.0, 132 multiprocessors, 8.0 GiB");
  EXPECT_EQ(fake.contexts, 0);
}

TEST(OpenGpu, AnIndexBeyondTheLastSaysHowManyThereAre) {
  FakeDriver fake;
  auto gpu = Gpu::open(FakeDriver::api(), 9);
  ASSERT_FALSE(gpu);
  EXPECT_EQ(gpu.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(gpu.error().message, "cuda:9: no such device; this machine has 1: cuda:0");
  fake.devices = 4;
  gpu = Gpu::open(FakeDriver::api(), 4);
  ASSERT_FALSE(gpu);
  EXPECT_THAT(gpu.error().message, HasSubstr("this machine has 4: cuda:0 to cuda:3"));
}

TEST(OpenGpu, RefusesGpusWithoutVirtualMemory) {
  FakeDriver fake;
  fake.virtual_memory = 0;
  const auto gpu = Gpu::open(FakeDriver::api(), 0);
  ASSERT_FALSE(gpu);
  EXPECT_EQ(gpu.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(gpu.error().message, AllOf(HasSubstr("Fake GPU"), HasSubstr("--device cpu")));
}

TEST(OpenGpu, GivesBackWhatItTookWhenItFails) {
  FakeDriver fake;
  fake.fails["cuStreamCreate"] = CUDA_ERROR_OUT_OF_MEMORY;
  const auto gpu = Gpu::open(FakeDriver::api(), 0);
  ASSERT_FALSE(gpu);
  EXPECT_EQ(gpu.error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(fake.contexts, 0);
  EXPECT_EQ(fake.streams, 0);
}

TEST(GpuErrors, ErrorsThatLeaveTheContextWholeAreNotKept) {
  FakeDriver fake;
  const auto gpu = Gpu::open(FakeDriver::api(), 0);
  ASSERT_TRUE(gpu);
  EXPECT_FALSE((*gpu)->check(CUDA_ERROR_OUT_OF_MEMORY, "taking memory"));
  EXPECT_TRUE((*gpu)->health());
  EXPECT_TRUE((*gpu)->synchronize());
}

TEST(GpuErrors, TheFirstFaultIsReturnedForEver) {
  FakeDriver fake;
  const auto gpu = Gpu::open(FakeDriver::api(), 0);
  ASSERT_TRUE(gpu);
  (*gpu)->submitted(CUDA_SUCCESS, "rms_norm");
  fake.fault = CUDA_ERROR_ILLEGAL_ADDRESS;
  const auto status = (*gpu)->synchronize();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kUnavailable);
  (*gpu)->submitted(CUDA_ERROR_LAUNCH_FAILED, "matmul");
  EXPECT_EQ((*gpu)->health().error().message, status.error().message);
}

TEST(GpuErrors, AnErrorOfAKernelNamesTheLastSubmission) {
  FakeDriver fake;
  const auto gpu = Gpu::open(FakeDriver::api(), 0);
  ASSERT_TRUE(gpu);
  (*gpu)->submitted(CUDA_SUCCESS, "attention");
  fake.fails["cuStreamSynchronize"] = CUDA_ERROR_ILLEGAL_ADDRESS;
  const auto status = (*gpu)->synchronize();
  ASSERT_FALSE(status);
  EXPECT_THAT(
      status.error().message,
      AllOf(HasSubstr("cuda:0"), HasSubstr("attention"), HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"),
            HasSubstr("CUDA_LAUNCH_BLOCKING=1 and --enforce-eager")));
}

TEST(GpuErrors, ASubmissionThatTheDriverRefusesIsReturnedOnce) {
  FakeDriver fake;
  const auto gpu = Gpu::open(FakeDriver::api(), 0);
  ASSERT_TRUE(gpu);
  (*gpu)->submitted(CUDA_ERROR_INVALID_VALUE, "matmul");
  const auto status = (*gpu)->synchronize();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message, "cuda:0: matmul: CUDA_ERROR_INVALID_VALUE");
  EXPECT_TRUE((*gpu)->ready());
  EXPECT_TRUE((*gpu)->synchronize());
}

TEST(GpuErrors, DrainingLeavesAnErrorToTheNextCall) {
  FakeDriver fake;
  const auto gpu = Gpu::open(FakeDriver::api(), 0);
  ASSERT_TRUE(gpu);
  (*gpu)->submitted(CUDA_ERROR_OUT_OF_MEMORY, "matmul");
  (*gpu)->drain();
  EXPECT_FALSE((*gpu)->ready());
  EXPECT_EQ((*gpu)->mark(Queue::kCompute, 0).error().code, ErrorCode::kResourceExhausted);
}

TEST(Gpu, GivesEverythingBack) {
  FakeDriver fake;
  {
    const auto gpu = Gpu::open(FakeDriver::api(), 0);
    ASSERT_TRUE(gpu);
    EXPECT_EQ(fake.contexts, 1);
    const auto memory = (*gpu)->memory_info();
    ASSERT_TRUE(memory);
    EXPECT_EQ(memory->free_bytes, std::int64_t{1} << 30);
  }
  EXPECT_EQ(fake.contexts, 0);
  EXPECT_EQ(fake.streams, 0);
}

}  // namespace
}  // namespace sluice::cuda
