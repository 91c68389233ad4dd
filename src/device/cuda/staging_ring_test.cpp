#include "device/cuda/staging_ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/cuda/fake_driver.h"

namespace sluice::cuda {
namespace {

class StagingRingTest : public testing::Test {
 protected:
  void SetUp() override {
    auto gpu = Gpu::open(FakeDriver::api(), 0);
    ASSERT_TRUE(gpu);
    gpu_ = std::move(*gpu);
  }
  std::unique_ptr<StagingRing> make(int buffers) {
    auto ring = StagingRing::create(*gpu_, 100, buffers);
    EXPECT_TRUE(ring);
    return ring ? std::move(*ring) : nullptr;
  }
  std::size_t take(StagingRing& ring, std::size_t bytes) {
    const auto piece = ring.take(bytes);
    EXPECT_TRUE(piece);
    return piece ? piece->size() : 0;
  }

  FakeDriver fake_;
  std::unique_ptr<Gpu> gpu_;
};

TEST_F(StagingRingTest, PiecesFillABufferBeforeTheNext) {
  const auto ring = make(2);
  const auto first = ring->take(30);
  const auto second = ring->take(30);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->data() + 30, second->data());
  EXPECT_EQ(take(*ring, 50), 40U) << "what the buffer has left";
  EXPECT_EQ(fake_.calls["cuEventRecord"], 0);
  EXPECT_EQ(take(*ring, 500), 100U) << "a whole buffer";
  EXPECT_EQ(fake_.calls["cuEventRecord"], 1);
  EXPECT_EQ(fake_.calls["cuEventSynchronize"], 0) << "the second was never used";
}

TEST_F(StagingRingTest, ABufferIsUsedAgainWhenItsCopiesAreDone) {
  const auto ring = make(3);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(take(*ring, 100), 100U);
  EXPECT_EQ(fake_.calls["cuEventSynchronize"], 0);
  EXPECT_EQ(take(*ring, 1), 1U);
  EXPECT_EQ(fake_.calls["cuEventRecord"], 3);
  EXPECT_EQ(fake_.calls["cuEventSynchronize"], 1) << "for the first buffer";
}

TEST_F(StagingRingTest, OneBufferWaitsForItself) {
  const auto ring = make(1);
  EXPECT_EQ(take(*ring, 100), 100U);
  EXPECT_EQ(take(*ring, 100), 100U);
  EXPECT_EQ(fake_.calls["cuEventSynchronize"], 1);
}

TEST_F(StagingRingTest, AnIdleStreamFreesAll) {
  const auto ring = make(2);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(take(*ring, 100), 100U);
  ring->drained();
  for (int i = 0; i < 2; ++i) EXPECT_EQ(take(*ring, 100), 100U);
  EXPECT_EQ(fake_.calls["cuEventSynchronize"], 0);
}

TEST_F(StagingRingTest, FaultsAreTold) {
  const auto ring = make(1);
  EXPECT_EQ(take(*ring, 100), 100U);
  fake_.fails["cuEventSynchronize"] = CUDA_ERROR_ILLEGAL_ADDRESS;
  EXPECT_FALSE(ring->take(1));
  EXPECT_FALSE(gpu_->health());
}

TEST_F(StagingRingTest, GivesEverythingBackAlsoWhenItCannotBeMade) {
  const int events = fake_.events;  // the GPU's own
  make(4).reset();
  EXPECT_EQ(fake_.pinned, 0);
  EXPECT_EQ(fake_.events, events);
  fake_.fails["cuMemHostAlloc"] = CUDA_ERROR_OUT_OF_MEMORY;
  fake_.works["cuMemHostAlloc"] = 2;
  const auto ring = StagingRing::create(*gpu_, 100, 4);
  ASSERT_FALSE(ring);
  EXPECT_EQ(ring.error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(fake_.pinned, 0);
  EXPECT_EQ(fake_.events, events);
}

}  // namespace
}  // namespace sluice::cuda
