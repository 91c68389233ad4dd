#include "device/cpu/cpu_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "device/arena.h"
#include "device/cpu/transfer_queue.h"
#include "device/host_buffer.h"
#include "tests/support/ticking_clock.h"

namespace sluice {
namespace {

std::unique_ptr<Device> device_with(const CpuDeviceOptions& options) {
  auto device = make_cpu_device(options);
  EXPECT_TRUE(device) << device.error().message;
  return device ? std::move(*device) : nullptr;
}

TEST(SpacedStride, IsAnOddNumberOfSpaces) {
  EXPECT_EQ(spaced_stride(2048, DType::kF32, 64), 2064);
  EXPECT_EQ(spaced_stride(2064, DType::kF32, 64), 2064);
  EXPECT_EQ(spaced_stride(2065, DType::kF32, 64), 2096);
  EXPECT_EQ(spaced_stride(1, DType::kF32, 64), 16);
  EXPECT_EQ(spaced_stride(1000, DType::kBF16, 64), 1056);
  EXPECT_EQ(spaced_stride(1000, DType::kF32, 0), 1000);
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
    EXPECT_EQ(device->traits().row_spacing, 64);
    EXPECT_EQ(parse_cpu_isa(cpu_isa_name(isa)), isa);
  }
}

TEST(CpuDevice, HasAvxVnniWhereTheSystemSaysSo) {
  std::ifstream file("/proc/cpuinfo");
  std::stringstream text;
  text << file.rdbuf();
  const auto isas = available_cpu_isas();
  const auto found = std::find(isas.begin(), isas.end(), CpuIsa::kAvx2Vnni);
  EXPECT_EQ(found != isas.end(), text.str().find(" avx_vnni") != std::string::npos);
  // AVX-512 is preferred.
  const auto wide = std::find(isas.begin(), isas.end(), CpuIsa::kAvx512);
  if (found != isas.end() && wide != isas.end()) {
    EXPECT_LT(found, wide);
  }
}

// Saved KV carries the numerics: KV of one set's products must not meet KV of another's.
TEST(CpuDevice, EachInstructionSetHasNumericsOfItsOwn) {
  std::set<std::string> numerics;
  for (const CpuIsa isa : available_cpu_isas()) {
    const auto device = device_with({.threads = 1, .isa = isa});
    ASSERT_NE(device, nullptr);
    EXPECT_TRUE(numerics.insert(device->traits().numerics).second) << device->traits().numerics;
    EXPECT_EQ(device->traits().fast_bf16, isa == CpuIsa::kAmx || isa == CpuIsa::kAvx512Bf16)
        << cpu_isa_name(isa);
  }
}

TEST(CpuDevice, RefusesWrongOptions) {
  const auto device = make_cpu_device({.threads = -1});
  ASSERT_FALSE(device);
  EXPECT_EQ(device.error().code, ErrorCode::kInvalidArgument);
  const auto isa = parse_cpu_isa("sse9");
  ASSERT_FALSE(isa);
  EXPECT_THAT(isa.error().message, testing::HasSubstr("avx512_bf16"));
  if (available_cpu_isas().back() != CpuIsa::kAmx) {
    const auto missing = make_cpu_device({.isa = CpuIsa::kAmx});
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
  const auto status = device->back(*range, 0, range->bytes, Backing::memory());
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
  ASSERT_TRUE(device->mark(Queue::kCompute, 0));
  ASSERT_TRUE(device->wait(Queue::kCompute, 0));
}

// Transfers of 10 MiB each, which fill their targets with their number.
class CpuTransfers : public testing::Test {
 protected:
  static constexpr std::size_t kBytes = std::size_t{10} << 20;

  void SetUp() override {
    auto made = make_cpu_device({.threads = 2});
    ASSERT_TRUE(made);
    device_ = std::move(*made);
    source_.assign(3 * kBytes, std::byte{0});
    target_.assign(3 * kBytes, std::byte{0});
    for (std::size_t i = 0; i < 3; ++i) {
      std::fill_n(source_.begin() + static_cast<std::ptrdiff_t>(i * kBytes), kBytes,
                  static_cast<std::byte>(i + 1));
    }
  }
  void submit(std::size_t i) {
    ASSERT_TRUE(device_->copy(Queue::kTransfer, CopyKind::kHostToDevice,
                              target_.data() + i * kBytes, source_.data() + i * kBytes, kBytes));
    ASSERT_TRUE(device_->mark(Queue::kTransfer, i));
  }
  bool reached(std::size_t i) {
    const auto reached = device_->reached(Queue::kTransfer, i);
    EXPECT_TRUE(reached);
    return reached.value_or(false);
  }
  // How much of a target is there: first to last.
  std::size_t moved() const {
    return static_cast<std::size_t>(std::find(target_.begin(), target_.end(), std::byte{0}) -
                                    target_.begin());
  }

  std::unique_ptr<Device> device_;
  std::vector<std::byte> source_;
  std::vector<std::byte> target_;
};

TEST_F(CpuTransfers, PollsMoveAllInOrder) {
  submit(0);
  submit(1);
  EXPECT_EQ(moved(), 0U) << "submitting moves nothing";
  int polls = 1;
  while (!reached(1)) ++polls;
  EXPECT_LE(polls, 5) << "five slices of 4 MiB are 20 MiB, and each poll moves one at least";
  EXPECT_TRUE(reached(0)) << "in order";
  EXPECT_EQ(std::vector(target_.begin(), target_.begin() + 2 * kBytes),
            std::vector(source_.begin(), source_.begin() + 2 * kBytes));
}

TEST_F(CpuTransfers, AWaitRunsToItsMarkAndNoFurther) {
  submit(0);
  submit(1);
  submit(2);
  ASSERT_TRUE(device_->wait(Queue::kTransfer, 0));
  EXPECT_GE(moved(), kBytes);
  EXPECT_LT(moved(), 2 * kBytes);
  ASSERT_TRUE(device_->synchronize());
  EXPECT_EQ(target_, source_);
}

TEST_F(CpuTransfers, ComputeRunsBesideThemUnlessItWaitsForAMark) {
  submit(0);
  submit(1);
  const std::byte word{42};
  ASSERT_TRUE(device_->copy_to_device(target_.data() + 2 * kBytes, &word, 1));
  ASSERT_TRUE(device_->mark(Queue::kCompute, 0));
  EXPECT_TRUE(device_->reached(Queue::kCompute, 0).value_or(false));
  ASSERT_TRUE(device_->synchronize(Queue::kCompute));
  ASSERT_TRUE(device_->wait_in(Queue::kTransfer, Queue::kCompute, 0));
  EXPECT_EQ(moved(), 0U);
  ASSERT_TRUE(device_->wait_in(Queue::kCompute, Queue::kTransfer, 0));
  EXPECT_GE(moved(), kBytes);
  EXPECT_LT(moved(), 2 * kBytes);
}

// A transfer of ten slices.
class TransferSlices : public testing::Test {
 protected:
  static constexpr std::size_t kSlices = 10;

  void SetUp() override {
    queue_.add(target_.data(), source_.data(), source_.size());
    queue_.mark(0);
  }
  std::size_t slices_after(Duration step) {
    const std::size_t before = moved();
    clock_.run_step(step);
    queue_.advance();
    return (moved() - before) / TransferQueue::kSliceBytes;
  }
  std::size_t moved() const {
    return static_cast<std::size_t>(std::find(target_.begin(), target_.end(), std::byte{0}) -
                                    target_.begin());
  }

  ThreadPool pool_{1};
  // Each slice takes a millisecond, because advance() reads the clock once after each.
  test::TickingClock clock_{std::chrono::milliseconds(1)};
  TransferQueue queue_{pool_, clock_};
  std::vector<std::byte> source_ =
      std::vector<std::byte>(kSlices * TransferQueue::kSliceBytes, std::byte{7});
  std::vector<std::byte> target_ = std::vector<std::byte>(source_.size(), std::byte{0});
};

TEST_F(TransferSlices, AShortStepLetsOneSlicePass) {
  for (std::size_t i = 0; i < kSlices; ++i) {
    EXPECT_FALSE(queue_.reached(0));
    EXPECT_EQ(slices_after(std::chrono::milliseconds(1)), 1U);
  }
  EXPECT_TRUE(queue_.reached(0));
  queue_.add(target_.data(), source_.data(), source_.size());
  queue_.mark(0);
  EXPECT_FALSE(queue_.reached(0)) << "a mark that is made again is a new one";
}

TEST_F(TransferSlices, ALongStepLetsSlicesPassForASixteenthOfItsTime) {
  EXPECT_EQ(slices_after(std::chrono::milliseconds(79)), 5U);
  EXPECT_EQ(slices_after(std::chrono::milliseconds(47)), 3U);
}

TEST_F(TransferSlices, NoPauseIsLongerThanItsLimit) {
  EXPECT_EQ(slices_after(std::chrono::hours(1)), 8U);
}

TEST_F(TransferSlices, TimeBeforeATransferDoesNotCount) {
  queue_.finish();
  clock_.run_step(std::chrono::hours(1));
  std::fill(target_.begin(), target_.end(), std::byte{0});
  queue_.add(target_.data(), source_.data(), source_.size());
  EXPECT_EQ(slices_after(std::chrono::milliseconds(1)), 1U);
}

}  // namespace
}  // namespace sluice
