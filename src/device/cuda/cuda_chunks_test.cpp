// Chunks that cross between a lender and a borrower, each with streams and addresses of its own.
#include "device/cuda/cuda_chunks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "device/cuda/virtual_memory.h"
#include "tests/support/cuda/fake_driver.h"

namespace sluice::cuda {
namespace {

using testing::HasSubstr;

constexpr auto kChunk = static_cast<std::int64_t>(VirtualMemory::kChunkBytes);

std::vector<std::byte> pattern(std::size_t bytes, int seed) {
  std::vector<std::byte> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) {
    data[i] = static_cast<std::byte>((i * 7 + static_cast<std::size_t>(seed)) & 0xFF);
  }
  return data;
}

class CudaChunksTest : public testing::Test {
 protected:
  void TearDown() override {
    EXPECT_THAT(fake_.broken_rules, testing::IsEmpty());
    EXPECT_EQ(used(), 0) << "all memory went back";
    EXPECT_THAT(fake_.reserved, testing::IsEmpty());
    EXPECT_EQ(fake_.streams, 0);
  }
  std::unique_ptr<DeviceChunks> open(std::int64_t bytes) {
    auto chunks = make_chunks(FakeDriver::api(), 0, bytes);
    EXPECT_TRUE(chunks) << chunks.error().message;
    return std::move(*chunks);
  }
  std::int64_t used() const {
    return (std::int64_t{1} << 30) - static_cast<std::int64_t>(fake_.free_memory);
  }

  FakeDriver fake_;
};

TEST_F(CudaChunksTest, ABorrowerReadsAndWritesWhatALenderMade) {
  auto lender = open(2 * kChunk + 5);
  EXPECT_EQ(lender->chunk_bytes(), kChunk);
  EXPECT_EQ(lender->chunks(), 2);
  EXPECT_EQ(*lender->free_bytes(), std::int64_t{1} << 30);
  const auto first = lender->make(0);
  const auto second = lender->make(1);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(fake_.last_properties.requestedHandleTypes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  EXPECT_EQ(used(), 2 * kChunk);
  {
    auto borrower = open(4 * kChunk);
    // In another order, so that a block crosses from one chunk into the other.
    ASSERT_TRUE(borrower->import(0, second->get()));
    ASSERT_TRUE(borrower->import(1, first->get()));
    EXPECT_EQ(used(), 2 * kChunk) << "it is the same memory";
    fake_.runs_late = true;  // a copy has ended when the call returns
    const auto block = pattern(3000, 1);
    const auto at = static_cast<std::uint64_t>(kChunk - 1000);
    ASSERT_TRUE(borrower->write(at, block));
    std::vector<std::byte> got(block.size());
    ASSERT_TRUE(borrower->read(at, got));
    EXPECT_EQ(got, block);
    std::vector<std::byte> seen(1000);
    ASSERT_TRUE(lender->read(static_cast<std::uint64_t>(2 * kChunk - 1000), seen));
    EXPECT_TRUE(std::equal(seen.begin(), seen.end(), block.begin()));
    fake_.runs_late = false;
    // The lender's drop frees nothing as long as the borrower maps the chunk.
    lender->drop(1);
    EXPECT_EQ(used(), 2 * kChunk);
    borrower->drop(0);
    EXPECT_EQ(used(), kChunk);
  }
  EXPECT_EQ(used(), kChunk) << "the lender has its own";
}

TEST_F(CudaChunksTest, ZerosAreThereBeforeTheDescriptorIs) {
  auto lender = open(kChunk);
  fake_.runs_late = true;
  ASSERT_TRUE(lender->make(0));
  EXPECT_EQ(fake_.calls["cuMemsetD8Async"], 1);
  EXPECT_GT(fake_.calls["cuStreamSynchronize"], 0);
  EXPECT_EQ(fake_.outstanding(), 0U);
}

TEST_F(CudaChunksTest, AFailureLeavesNothingBehind) {
  auto lender = open(2 * kChunk);
  fake_.fails["cuMemExportToShareableHandle"] = CUDA_ERROR_NOT_SUPPORTED;
  EXPECT_EQ(lender->make(0).error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(used(), 0);
  fake_.fails.clear();
  // Another process's memory that this GPU cannot reach (no peer access).
  const auto made = lender->make(0);
  ASSERT_TRUE(made);
  auto borrower = open(kChunk);
  fake_.fails["cuMemSetAccess"] = CUDA_ERROR_INVALID_DEVICE;
  EXPECT_FALSE(borrower->import(0, made->get()));
  fake_.fails.clear();
  EXPECT_TRUE(borrower->import(0, made->get()));
  // A copy that the driver refuses is this call's error, and not the next one's.
  const auto block = pattern(100, 2);
  fake_.fails["cuMemcpyHtoDAsync"] = CUDA_ERROR_INVALID_VALUE;
  EXPECT_FALSE(borrower->write(0, block));
  fake_.fails.clear();
  EXPECT_TRUE(borrower->write(0, block));
}

TEST_F(CudaChunksTest, MemoryThatLacksIsAnError) {
  auto lender = open(kChunk);
  fake_.free_memory = 0;
  EXPECT_EQ(lender->make(0).error().code, ErrorCode::kResourceExhausted);
  fake_.free_memory = std::size_t{1} << 30;
  EXPECT_TRUE(lender->make(0));
}

TEST_F(CudaChunksTest, RefusesLessThanAChunk) {
  const auto chunks = make_chunks(FakeDriver::api(), 0, kChunk - 1);
  ASSERT_FALSE(chunks);
  EXPECT_EQ(chunks.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(chunks.error().message, HasSubstr("less than a chunk"));
}

// The arena of the engine takes the fixed bases, which graphs of a snapshot name.
TEST_F(CudaChunksTest, LeavesTheFixedBasesFree) {
  auto chunks = open(kChunk);
  auto gpu = Gpu::open(FakeDriver::api(), 0);
  ASSERT_TRUE(gpu);
  auto memory = VirtualMemory::create(**gpu);
  ASSERT_TRUE(memory);
  const auto range = memory->reserve(1);
  ASSERT_TRUE(range);
  EXPECT_EQ(reinterpret_cast<std::size_t>(range->base), VirtualMemory::kAreas[0]);
  memory->release(*range);
}

}  // namespace
}  // namespace sluice::cuda
