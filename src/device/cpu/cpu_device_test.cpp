#include "device/cpu/cpu_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "device/arena.h"
#include "device/host_buffer.h"

namespace sluice {
namespace {

std::unique_ptr<Device> device_with(const CpuDeviceOptions& options) {
  auto device = make_cpu_device(options);
  EXPECT_TRUE(device) << device.error().message;
  return device ? std::move(*device) : nullptr;
}

TEST(CpuDevice, DescribesItself) {
  for (const CpuIsa isa : available_cpu_isas()) {
    const auto device = device_with({.threads = 2, .isa = isa});
    ASSERT_NE(device, nullptr);
    EXPECT_EQ(device->traits().name, "cpu");
    EXPECT_THAT(device->traits().description, testing::HasSubstr(std::string(cpu_isa_name(isa))));
    EXPECT_THAT(device->traits().description, testing::HasSubstr("2 threads"));
    EXPECT_TRUE(device->traits().host_accessible);
    EXPECT_EQ(device->traits().matmul_input_dtype(DType::kBF16), DType::kBF16);
    EXPECT_EQ(device->traits().matmul_input_dtype(DType::kF16), DType::kF32);
    EXPECT_EQ(parse_cpu_isa(cpu_isa_name(isa)), isa);
  }
}

TEST(CpuDevice, RefusesWrongOptions) {
  const auto device = make_cpu_device({.threads = -1});
  ASSERT_FALSE(device);
  EXPECT_EQ(device.error().code, ErrorCode::kInvalidArgument);
  const auto isa = parse_cpu_isa("sse9");
  ASSERT_FALSE(isa);
  EXPECT_THAT(isa.error().message, testing::HasSubstr("avx512_bf16"));
  if (available_cpu_isas().back() != CpuIsa::kAvx512Bf16) {
    const auto missing = make_cpu_device({.isa = CpuIsa::kAvx512Bf16});
    ASSERT_FALSE(missing);
    EXPECT_EQ(missing.error().code, ErrorCode::kUnsupported);
  }
}

TEST(CpuDevice, SharesAPoolThatIsGiven) {
  ThreadPool pool(3);
  const auto device = device_with({.pool = &pool, .threads = 1});
  ASSERT_NE(device, nullptr);
  EXPECT_THAT(device->traits().description, testing::HasSubstr("3 threads"));
}

TEST(CpuDevice, RefusesMemoryThatIsNotThere) {
  const auto device = device_with({.threads = 1});
  ASSERT_NE(device, nullptr);
  constexpr std::size_t kTooMuch = std::size_t{512} << 30;  // two slots
  if (device->memory_info()->free_bytes >= static_cast<std::int64_t>(kTooMuch)) {
    GTEST_SKIP() << "this machine has 512 GiB of free memory";
  }
  const auto range = device->reserve(kTooMuch);
  ASSERT_TRUE(range) << range.error().message;
  const auto status = device->back(*range, 0, range->bytes);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(status.error().message, testing::HasSubstr("are free"));
  device->release(*range);
}

TEST(CpuDevice, CarriesAnArena) {
  const auto device = device_with({.threads = 1});
  ASSERT_NE(device, nullptr);
  ArenaPlan plan;
  plan.add(RegionKind::kInputs, "m/tokens", 4096);
  plan.reserve(RegionKind::kKv, std::size_t{1} << 36);
  plan.finish(device->traits().granularity);
  auto arena = Arena::create(*device, plan);
  ASSERT_TRUE(arena) << arena.error().message;
  ASSERT_TRUE(arena->grow(RegionKind::kInputs, 4096));
  ASSERT_TRUE(arena->grow(RegionKind::kKv, 1));
  std::array<int, 4> source = {1, 2, 3, 4};
  std::array<int, 4> target{};
  std::byte* tokens = arena->address(RegionKind::kInputs, "m/tokens");
  ASSERT_TRUE(device->copy_to_device(tokens, source.data(), sizeof(source)));
  ASSERT_TRUE(device->copy_to_host(target.data(), tokens, sizeof(target)));
  ASSERT_TRUE(device->synchronize());
  EXPECT_EQ(source, target);
  std::memset(arena->region_base(RegionKind::kKv), 1, 1000);
  arena->shrink(RegionKind::kKv, 0);
  ASSERT_TRUE(arena->grow(RegionKind::kKv, 4 << 20));
  EXPECT_EQ(arena->region_base(RegionKind::kKv)[999], std::byte{0});
}

TEST(CpuDevice, HostBuffersAreAlignedAndMove) {
  const auto device = device_with({.threads = 1});
  ASSERT_NE(device, nullptr);
  EXPECT_FALSE(device->traits().asynchronous);
  auto first = HostBuffer::create(*device, 100);
  auto second = HostBuffer::create(*device, 100);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first->data()) % 64, 0U);
  std::memset(first->data(), 3, 100);
  std::byte* const place = first->data();
  HostBuffer moved(*std::move(first));
  EXPECT_EQ(moved.data(), place);
  moved = *std::move(second);
  EXPECT_NE(moved.data(), place);
  HostBuffer empty;
  EXPECT_EQ(empty.data(), nullptr);
  ASSERT_TRUE(device->mark(0));
  ASSERT_TRUE(device->wait(0));
}

}  // namespace
}  // namespace sluice
