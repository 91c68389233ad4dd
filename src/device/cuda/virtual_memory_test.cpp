#include "device/cuda/virtual_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/check.h"
#include "tests/support/cuda/fake_driver.h"

namespace sluice::cuda {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr std::size_t kChunk = VirtualMemory::kChunkBytes;

class VirtualMemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    auto gpu = Gpu::open(FakeDriver::api(), 0);
    ASSERT_TRUE(gpu) << gpu.error().message;
    gpu_ = std::move(*gpu);
  }
  void TearDown() override { EXPECT_THAT(fake_.broken_rules, testing::IsEmpty()); }

  VirtualMemory make() {
    auto memory = VirtualMemory::create(*gpu_);
    CHECK(memory.has_value());
    return std::move(*memory);
  }
  std::size_t used() const { return (std::size_t{1} << 30) - fake_.free_memory; }

  FakeDriver fake_;
  std::unique_ptr<Gpu> gpu_;
};

CUdeviceptr at(AddressRange range, std::size_t offset = 0) {
  return reinterpret_cast<CUdeviceptr>(range.base) + offset;
}

TEST_F(VirtualMemoryTest, AChunkIsAMultipleOfWhatTheDriverMaps) {
  EXPECT_EQ(make().chunk_bytes(), kChunk);
  fake_.granularity = std::size_t{48} << 20;
  EXPECT_EQ(make().chunk_bytes(), std::size_t{96} << 20);
}

TEST_F(VirtualMemoryTest, RangesLieAtTheBasesOfTheSeries) {
  VirtualMemory memory = make();
  const auto first = memory.reserve(1);
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_EQ(at(*first), VirtualMemory::kAreas[0]);
  EXPECT_EQ(first->bytes, kChunk);
  const auto second = memory.reserve(kChunk + 1);
  ASSERT_TRUE(second);
  EXPECT_EQ(at(*second), VirtualMemory::kAreas[0] + VirtualMemory::kSlotBytes);
  EXPECT_EQ(second->bytes, 2 * kChunk);
  memory.release(*first);
  const auto again = memory.reserve(kChunk);
  ASSERT_TRUE(again);
  EXPECT_EQ(at(*again), VirtualMemory::kAreas[0]);
  memory.release(*again);
  memory.release(*second);
  EXPECT_THAT(fake_.reserved, testing::IsEmpty());
}

TEST_F(VirtualMemoryTest, AGivenBaseIsReservedIfTheDriverGivesIt) {
  VirtualMemory memory = make();
  auto* const base = reinterpret_cast<std::byte*>(VirtualMemory::kAreas[1]);
  const auto range = memory.reserve_at(base, kChunk + 1);
  ASSERT_TRUE(range) << range.error().message;
  EXPECT_EQ(range->base, base);
  EXPECT_EQ(range->bytes, 2 * kChunk);
  memory.release(*range);
  fake_.taken.push_back(VirtualMemory::kAreas[1]);
  EXPECT_EQ(memory.reserve_at(base, kChunk).error().code, ErrorCode::kUnavailable);
  EXPECT_FALSE(memory.reserve_at(base + 1, kChunk));
  EXPECT_THAT(fake_.reserved, testing::IsEmpty()) << "what the driver offered elsewhere is freed";
}

TEST_F(VirtualMemoryTest, WhenAnAreaIsTakenTheNextOneServes) {
  for (std::size_t i = 0; i < VirtualMemory::kSlotsOfArea; ++i) {
    fake_.taken.push_back(VirtualMemory::kAreas[0] + i * VirtualMemory::kSlotBytes);
  }
  VirtualMemory memory = make();
  const auto range = memory.reserve(kChunk);
  ASSERT_TRUE(range) << range.error().message;
  EXPECT_EQ(at(*range), VirtualMemory::kAreas[1]);
  memory.release(*range);
  EXPECT_THAT(fake_.reserved, testing::IsEmpty()) << "what the driver offered elsewhere is freed";
}

TEST_F(VirtualMemoryTest, WhenNoSlotIsGrantedTheDriverChooses) {
  for (const std::size_t area : VirtualMemory::kAreas) {
    for (std::size_t i = 0; i < VirtualMemory::kSlotsOfArea; ++i) {
      fake_.taken.push_back(area + i * VirtualMemory::kSlotBytes);
    }
  }
  VirtualMemory memory = make();
  const auto range = memory.reserve(kChunk);
  ASSERT_TRUE(range) << range.error().message;
  EXPECT_EQ(fake_.reserved.size(), 1U) << "what the driver offered for hints is freed";
  EXPECT_TRUE(memory.back(*range, 0, kChunk, Backing::memory()));
  memory.unback(*range, 0, kChunk);
  memory.release(*range);
  EXPECT_THAT(fake_.reserved, testing::IsEmpty());
}

TEST_F(VirtualMemoryTest, AReservationThatFailsSaysWhy) {
  VirtualMemory memory = make();
  fake_.fails["cuMemAddressReserve"] = CUDA_ERROR_INVALID_VALUE;
  const auto range = memory.reserve(kChunk);
  ASSERT_FALSE(range);
  EXPECT_EQ(range.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(range.error().message,
              AllOf(HasSubstr("18 slots"), HasSubstr("CUDA_ERROR_INVALID_VALUE")));
  EXPECT_EQ(memory.reserve(0).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(VirtualMemoryTest, BacksWithExportableChunksAndGivesThemBackWhole) {
  VirtualMemory memory = make();
  const auto range = memory.reserve(8 * kChunk);
  ASSERT_TRUE(range);
  ASSERT_TRUE(memory.back(*range, kChunk, 3 * kChunk, Backing::memory()));
  EXPECT_EQ(fake_.mapped.size(), 3U);
  EXPECT_EQ(used(), 3 * kChunk);
  EXPECT_EQ(fake_.last_properties.requestedHandleTypes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  EXPECT_EQ(fake_.last_properties.location.id, gpu_->device());
  for (const auto& [address, mapping] : fake_.mapped) {
    EXPECT_EQ(mapping.access, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  }
  EXPECT_EQ(fake_.calls["cuMemsetD8Async"], 1) << "memory starts as zeros";
  // A part in the middle, as a region that shrinks gives back.
  memory.unback(*range, 2 * kChunk, kChunk);
  EXPECT_EQ(used(), 2 * kChunk);
  EXPECT_TRUE(fake_.mapped.contains(at(*range, kChunk)));
  EXPECT_FALSE(fake_.mapped.contains(at(*range, 2 * kChunk)));
  ASSERT_TRUE(memory.back(*range, 2 * kChunk, kChunk, Backing::memory()));
  memory.unback(*range, kChunk, 3 * kChunk);
  memory.release(*range);
  EXPECT_EQ(used(), 0U);
  EXPECT_THAT(fake_.allocations, testing::IsEmpty());
}

TEST_F(VirtualMemoryTest, UnbackWaitsForWhatRuns) {
  VirtualMemory memory = make();
  const auto range = memory.reserve(kChunk);
  ASSERT_TRUE(range && memory.back(*range, 0, kChunk, Backing::memory()));
  // Also after an error that was kept: the stream may still be busy.
  gpu_->refuse(unsupported("attention: head_dim 512"));
  const int before = fake_.calls["cuStreamSynchronize"];
  memory.unback(*range, 0, kChunk);
  EXPECT_EQ(fake_.calls["cuStreamSynchronize"], before + 2) << "both streams";
  EXPECT_EQ(used(), 0U);
  memory.release(*range);
}

TEST_F(VirtualMemoryTest, TooLittleMemorySaysHowMuchIsMissingAndWhichFlagHelps) {
  VirtualMemory memory = make();
  const auto range = memory.reserve(32 * kChunk);
  ASSERT_TRUE(range);
  ASSERT_TRUE(memory.back(*range, 0, 4 * kChunk, Backing::memory()));
  const auto status =
      memory.back(*range, 4 * kChunk, 20 * kChunk, Backing::memory());  // 12 chunks are left
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(status.error().message,
              AllOf(HasSubstr("1.25 GiB of device memory requested"), HasSubstr("0.75 GiB free"),
                    HasSubstr("0.50 GiB are missing"), HasSubstr("--kv-cache-memory")));
  EXPECT_EQ(used(), 4 * kChunk) << "what was backed before stays, the rest is given back";
  EXPECT_TRUE(gpu_->health());
  ASSERT_TRUE(memory.back(*range, 4 * kChunk, 12 * kChunk, Backing::memory()));
  memory.unback(*range, 0, 16 * kChunk);
  memory.release(*range);
}

TEST_F(VirtualMemoryTest, AStepThatFailsUndoesTheOnesBefore) {
  VirtualMemory memory = make();
  const auto range = memory.reserve(4 * kChunk);
  ASSERT_TRUE(range);
  for (const char* function : {"cuMemMap", "cuMemSetAccess", "cuMemsetD8Async"}) {
    fake_.fails[function] = CUDA_ERROR_NOT_SUPPORTED;
    fake_.works[function] = std::string_view(function) == "cuMemMap" ? 2 : 0;
    const auto status = memory.back(*range, 0, 4 * kChunk, Backing::memory());
    ASSERT_FALSE(status) << function;
    EXPECT_EQ(status.error().code, ErrorCode::kUnsupported) << function;
    EXPECT_EQ(used(), 0U) << function;
    EXPECT_THAT(fake_.mapped, testing::IsEmpty()) << function;
    fake_.fails.clear();
  }
  memory.release(*range);
}

TEST_F(VirtualMemoryTest, ProtectsWhereTheDriverCan) {
  VirtualMemory memory = make();
  const auto range = memory.reserve(2 * kChunk);
  ASSERT_TRUE(range && memory.back(*range, 0, 2 * kChunk, Backing::memory()));
  ASSERT_TRUE(memory.protect(*range, 0, kChunk, Protection::kReadOnly));
  EXPECT_EQ(fake_.mapped.at(at(*range)).access, CU_MEM_ACCESS_FLAGS_PROT_READ);
  EXPECT_EQ(fake_.mapped.at(at(*range, kChunk)).access, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  ASSERT_TRUE(memory.protect(*range, 0, kChunk, Protection::kReadWrite));
  EXPECT_EQ(fake_.mapped.at(at(*range)).access, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  // A guard only: a driver that has no such thing changes no result.
  fake_.fails["cuMemSetAccess"] = CUDA_ERROR_NOT_SUPPORTED;
  EXPECT_TRUE(memory.protect(*range, 0, kChunk, Protection::kReadOnly));
  EXPECT_FALSE(memory.protect(*range, 0, kChunk, Protection::kReadWrite));
  fake_.fails["cuMemSetAccess"] = CUDA_ERROR_ILLEGAL_ADDRESS;
  EXPECT_FALSE(memory.protect(*range, 0, kChunk, Protection::kReadOnly));
  fake_.fails.clear();
  memory.unback(*range, 0, 2 * kChunk);
  memory.release(*range);
}

TEST_F(VirtualMemoryTest, WithoutExportMemoryIsPrivate) {
  fake_.exportable = 0;
  VirtualMemory memory = make();
  const auto range = memory.reserve(kChunk);
  ASSERT_TRUE(range && memory.back(*range, 0, kChunk, Backing::memory()));
  EXPECT_EQ(fake_.last_properties.requestedHandleTypes, CU_MEM_HANDLE_TYPE_NONE);
  memory.unback(*range, 0, kChunk);
  memory.release(*range);
}

TEST_F(VirtualMemoryTest, AChunkCanBeExportedAndImported) {
  VirtualMemory memory = make();
  const auto range = memory.reserve(4 * kChunk);
  ASSERT_TRUE(range && memory.back(*range, 0, 2 * kChunk, Backing::memory()));
  const auto fd = memory.export_memory(*range, kChunk);
  ASSERT_TRUE(fd) << fd.error().message;
  EXPECT_TRUE(fd->valid());
  ASSERT_TRUE(
      memory.back(*range, 2 * kChunk, kChunk, Backing::imported(fd->get(), Protection::kReadOnly)));
  EXPECT_EQ(fake_.mapped.at(at(*range, 2 * kChunk)).access, CU_MEM_ACCESS_FLAGS_PROT_READ);
  EXPECT_EQ(fake_.calls["cuMemsetD8Async"], 1) << "what others wrote stays";
  memory.unback(*range, 2 * kChunk, kChunk);
  ASSERT_TRUE(memory.back(*range, 2 * kChunk, kChunk,
                          Backing::imported(fd->get(), Protection::kReadWrite)));
  EXPECT_EQ(fake_.mapped.at(at(*range, 2 * kChunk)).access, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  memory.unback(*range, 0, 3 * kChunk);
  const auto closed = memory.back(*range, 0, kChunk, Backing::imported(-1, Protection::kReadOnly));
  ASSERT_FALSE(closed);
  EXPECT_THAT(closed.error().message, HasSubstr("importing another process's memory"));
  memory.release(*range);
  EXPECT_THAT(fake_.allocations, testing::IsEmpty());
}

TEST_F(VirtualMemoryTest, RefusesBackingsThatItCannotMap) {
  VirtualMemory memory = make();
  const auto range = memory.reserve(2 * kChunk);
  ASSERT_TRUE(range);
  for (const Backing& backing : {Backing::file(0), Backing::shared(0, Protection::kReadOnly)}) {
    EXPECT_EQ(memory.back(*range, 0, kChunk, backing).error().code, ErrorCode::kUnsupported);
  }
  const Backing imported = Backing::imported(0, Protection::kReadOnly);
  EXPECT_DEATH(static_cast<void>(memory.back(*range, 0, 2 * kChunk, imported)), "CHECK failed");
  fake_.exportable = 0;
  VirtualMemory unshared = make();
  const auto other = unshared.reserve(kChunk);
  ASSERT_TRUE(other && unshared.back(*other, 0, kChunk, Backing::memory()));
  EXPECT_EQ(unshared.export_memory(*other, 0).error().code, ErrorCode::kUnsupported);
  unshared.unback(*other, 0, kChunk);
  unshared.release(*other);
  memory.release(*range);
}

TEST_F(VirtualMemoryTest, WrongPlacesAreOurBugs) {
  VirtualMemory memory = make();
  const auto range = memory.reserve(2 * kChunk);
  ASSERT_TRUE(range);
  EXPECT_DEATH(static_cast<void>(memory.back(*range, 1, kChunk, Backing::memory())),
               "CHECK failed");
  EXPECT_DEATH(static_cast<void>(memory.back(*range, kChunk, 2 * kChunk, Backing::memory())),
               "CHECK failed");
  EXPECT_DEATH(memory.unback(*range, 0, kChunk), "CHECK failed");
  memory.release(*range);
}

}  // namespace
}  // namespace sluice::cuda
