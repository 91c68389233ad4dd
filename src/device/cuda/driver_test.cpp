#include "device/cuda/driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/cuda/fake_driver.h"

namespace sluice::cuda {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Error load_error() {
  const auto api = load_driver(FakeDriver::lookup, nullptr);
  EXPECT_FALSE(api);
  return api ? Error{} : api.error();
}

TEST(LoadDriver, FindsEveryFunctionByTheNameOfItsVersion) {
  FakeDriver fake;
  const auto api = load_driver(FakeDriver::lookup, nullptr);
  ASSERT_TRUE(api) << api.error().message;
#define EXPECT_FOUND(name) EXPECT_NE(api->name, nullptr) << #name;
  SLUICE_CUDA_FUNCTIONS(EXPECT_FOUND)
#undef EXPECT_FOUND
  EXPECT_EQ(api->cuMemGetInfo, FakeDriver::api().cuMemGetInfo);
  EXPECT_EQ(fake.calls["cuInit"], 1);
}

TEST(LoadDriver, AnOldDriverIsToldByItsVersionBeforeWhatItLacks) {
  FakeDriver fake;
  fake.driver_version = 12040;
  fake.missing = "cuFuncGetParamInfo";
  const Error error = load_error();
  EXPECT_EQ(error.code, ErrorCode::kUnsupported);
  EXPECT_THAT(error.message, AllOf(HasSubstr("too old"), HasSubstr("12.4"), HasSubstr("13.0"),
                                   HasSubstr("580"), HasSubstr("--device cpu")));
  EXPECT_EQ(fake.calls["cuInit"], 0);
}

TEST(LoadDriver, AMissingFunctionIsNamed) {
  FakeDriver fake;
  fake.missing = "cuStreamBeginCapture_v2";
  EXPECT_THAT(load_error().message, AllOf(HasSubstr("cuStreamBeginCapture_v2"), HasSubstr("580")));
  fake.missing = "cuInit";
  EXPECT_THAT(load_error().message, AllOf(HasSubstr("cuInit"), HasSubstr("not NVIDIA's driver")));
}

TEST(LoadDriver, NoGpu) {
  FakeDriver fake;
  fake.fails["cuInit"] = CUDA_ERROR_NO_DEVICE;
  Error error = load_error();
  EXPECT_EQ(error.code, ErrorCode::kUnsupported);
  EXPECT_THAT(error.message,
              AllOf(HasSubstr("CUDA_ERROR_NO_DEVICE"), HasSubstr("CUDA_VISIBLE_DEVICES")));
  fake.fails.clear();
  fake.devices = 0;
  EXPECT_THAT(load_error().message, HasSubstr("CUDA_ERROR_NO_DEVICE"));
}

// Whatever this machine has: a table, or what to do.
TEST(OpenDriver, WorksOrSaysWhatToDo) {
  const auto api = open_driver();
  if (api) {
    EXPECT_NE(api->cuLaunchKernel, nullptr);
    return;
  }
  EXPECT_EQ(api.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(api.error().message, HasSubstr("--device cpu"));
}

TEST(DriverErrors, CarryTheDriversNames) {
  FakeDriver fake;
  const DriverApi api = FakeDriver::api();
  EXPECT_EQ(error_text(api, CUDA_ERROR_OUT_OF_MEMORY), "CUDA_ERROR_OUT_OF_MEMORY (out of memory)");
  EXPECT_EQ(error_text(api, CUDA_ERROR_LAUNCH_FAILED), "CUDA_ERROR_LAUNCH_FAILED");
  EXPECT_EQ(error_text(api, CUDA_ERROR_FILE_NOT_FOUND), "driver error 301");
  EXPECT_EQ(driver_error(api, CUDA_ERROR_OUT_OF_MEMORY, "cuda:1: taking memory").message,
            "cuda:1: taking memory: CUDA_ERROR_OUT_OF_MEMORY (out of memory)");
  EXPECT_TRUE(check(api, CUDA_SUCCESS, "x"));
  EXPECT_FALSE(check(api, CUDA_ERROR_INVALID_VALUE, "x"));
}

TEST(DriverErrors, HaveTheCodeThatFits) {
  FakeDriver fake;
  const DriverApi api = FakeDriver::api();
  const auto code = [&](CUresult result) { return driver_error(api, result, "x").code; };
  for (const CUresult fault :
       {CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_LAUNCH_FAILED, CUDA_ERROR_ILLEGAL_INSTRUCTION,
        CUDA_ERROR_MISALIGNED_ADDRESS, CUDA_ERROR_ECC_UNCORRECTABLE, CUDA_ERROR_LAUNCH_TIMEOUT,
        CUDA_ERROR_CONTEXT_IS_DESTROYED, CUDA_ERROR_UNKNOWN}) {
    EXPECT_TRUE(is_sticky(fault)) << fault;
    EXPECT_EQ(code(fault), ErrorCode::kUnavailable) << fault;
  }
  for (const CUresult whole :
       {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NO_BINARY_FOR_GPU,
        CUDA_ERROR_STREAM_CAPTURE_INVALIDATED}) {
    EXPECT_FALSE(is_sticky(whole)) << whole;
  }
  EXPECT_EQ(code(CUDA_ERROR_OUT_OF_MEMORY), ErrorCode::kResourceExhausted);
  EXPECT_EQ(code(CUDA_ERROR_INVALID_DEVICE), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(CUDA_ERROR_NOT_SUPPORTED), ErrorCode::kUnsupported);
  EXPECT_EQ(code(CUDA_ERROR_NO_BINARY_FOR_GPU), ErrorCode::kUnsupported);
  EXPECT_EQ(code(CUDA_ERROR_DEVICE_UNAVAILABLE), ErrorCode::kUnavailable);
  EXPECT_EQ(code(CUDA_ERROR_INVALID_VALUE), ErrorCode::kInternal);
}

TEST(CudaVersion, AsPeopleWriteIt) {
  EXPECT_EQ(cuda_version_text(13000), "13.0");
  EXPECT_EQ(cuda_version_text(12040), "12.4");
}

}  // namespace
}  // namespace sluice::cuda
