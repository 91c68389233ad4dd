#include "engine/kv_memory.h"

#include <gtest/gtest.h>

#include <optional>

#include "device/cpu/cpu_device.h"
#include "tests/support/late_device.h"

namespace sluice {
namespace {

constexpr std::int64_t kBlock = std::int64_t{3} << 20;  // a chunk of 16 MiB holds five
constexpr std::int32_t kMost = 40;

// A device whose memory ends where the test says.
class ScarceDevice final : public test::LateDevice {
 public:
  using LateDevice::LateDevice;
  std::int64_t free_bytes = std::int64_t{1} << 40;
  Result<MemoryInfo> memory_info() const override { return MemoryInfo{free_bytes, free_bytes}; }
  Status back(AddressRange range, std::size_t offset, std::size_t bytes,
              const Backing& backing) override {
    if (refuses) return resource_exhausted("no memory");
    return LateDevice::back(range, offset, bytes, backing);
  }
  bool refuses = false;
};

class KvMemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    auto cpu = make_cpu_device({.threads = 1});
    ASSERT_TRUE(cpu);
    device_ = std::make_unique<ScarceDevice>(std::move(*cpu));
    ArenaPlan plan;
    plan.reserve(RegionKind::kKv, kMost * kBlock);
    plan.finish(device_->traits().granularity);
    auto arena = Arena::create(*device_, std::move(plan));
    ASSERT_TRUE(arena);
    arena_.emplace(std::move(*arena));
    kv_ = KvMemory(*arena_, *device_, kBlock, kMost);
  }
  std::size_t backed_bytes() const { return arena_->backed_bytes(RegionKind::kKv); }
  std::byte& byte_of(std::int32_t block) {
    return arena_->region_base(RegionKind::kKv)[block * kBlock + 100];
  }

  std::unique_ptr<ScarceDevice> device_;
  std::optional<Arena> arena_;
  KvMemory kv_;
};

TEST_F(KvMemoryTest, StartsWithTheBlocksOfOneChunk) {
  const DeviceTraits& traits = device_->traits();
  EXPECT_EQ(KvMemory::chunk_blocks(traits, kBlock), 5);
  EXPECT_EQ(KvMemory::chunk_blocks(traits, std::int64_t{40} << 20), 1);
  EXPECT_EQ(KvMemory::first_blocks(traits, kBlock, kMost), 5);
  EXPECT_EQ(KvMemory::first_blocks(traits, kBlock, 3), 3) << "less than a chunk";
  EXPECT_EQ(KvMemory::first_blocks(traits, std::int64_t{40} << 20, 9), 2) << "a block and block 0";
  ASSERT_TRUE(kv_.start(5));
  EXPECT_EQ(kv_.backed_blocks(), 5);
  EXPECT_EQ(backed_bytes(), KvMemory::kChunkBytes);
}

TEST_F(KvMemoryTest, GrowsByWholeChunksUpToItsRegion) {
  ASSERT_TRUE(kv_.start(5));
  byte_of(4) = std::byte{7};
  kv_.grow(6);
  EXPECT_EQ(kv_.backed_blocks(), 10);
  EXPECT_EQ(backed_bytes(), 2 * KvMemory::kChunkBytes);
  EXPECT_EQ(byte_of(4), std::byte{7});
  EXPECT_EQ(byte_of(9), std::byte{0});
  kv_.grow(kMost);
  EXPECT_EQ(kv_.backed_blocks(), kMost) << "not one more, whatever the last chunk has room for";
  EXPECT_EQ(backed_bytes(), kMost * kBlock);
  EXPECT_FALSE(kv_.growth_failed());
}

TEST_F(KvMemoryTest, BlocksBehindWhatIsBackedFault) {
  ASSERT_TRUE(kv_.start(5));
  EXPECT_DEATH(byte_of(6) = std::byte{1}, "");
  kv_.grow(10);
  byte_of(6) = std::byte{1};
  kv_.shrink(5);
  kv_.release();
  EXPECT_DEATH(byte_of(6) = std::byte{1}, "");
  kv_.grow(10);
  EXPECT_EQ(byte_of(6), std::byte{0}) << "it is other memory";
}

TEST_F(KvMemoryTest, ShrinkingCountsAtOnceAndReleasesLater) {
  ASSERT_TRUE(kv_.start(20));
  const std::size_t before = backed_bytes();
  byte_of(19) = std::byte{1};
  kv_.shrink(7);
  EXPECT_EQ(kv_.backed_blocks(), 7);
  EXPECT_TRUE(kv_.must_release());
  EXPECT_EQ(backed_bytes(), before);
  EXPECT_EQ(kv_.held_blocks(), 21) << "the system does not have it yet";
  EXPECT_EQ(byte_of(19), std::byte{1}) << "steps in flight may still use it";
  kv_.release();
  EXPECT_EQ(backed_bytes(), 2 * KvMemory::kChunkBytes);
  EXPECT_FALSE(kv_.must_release());
  EXPECT_EQ(kv_.backed_blocks(), 7);
  EXPECT_EQ(kv_.held_blocks(), 7);
  kv_.grow(8);
  EXPECT_EQ(kv_.backed_blocks(), 10) << "all of its chunks";
}

TEST_F(KvMemoryTest, GrowthBeforeTheReleaseKeepsTheMemory) {
  ASSERT_TRUE(kv_.start(20));
  byte_of(19) = std::byte{1};
  kv_.shrink(7);
  kv_.grow(20);
  EXPECT_FALSE(kv_.must_release());
  EXPECT_EQ(kv_.backed_blocks(), 21) << "all of its chunks";
  EXPECT_EQ(byte_of(19), std::byte{1});
}

TEST_F(KvMemoryTest, ARefusalIsDataUntilTheNextCall) {
  ASSERT_TRUE(kv_.start(5));
  device_->refuses = true;
  kv_.grow(20);
  EXPECT_TRUE(kv_.growth_failed());
  EXPECT_EQ(kv_.backed_blocks(), 5);
  EXPECT_EQ(backed_bytes(), KvMemory::kChunkBytes);
  device_->refuses = false;
  kv_.grow(20);
  EXPECT_FALSE(kv_.growth_failed());
  EXPECT_EQ(kv_.backed_blocks(), 21);
  device_->refuses = true;
  EXPECT_EQ(kv_.start(kMost).error().code, ErrorCode::kResourceExhausted);
}

// The CPU device, whose memory is the machine's: some of it stays free.
TEST(KvMemoryOfTheHost, KeepsSomeMemoryFree) {
  auto cpu = make_cpu_device({.threads = 1});
  ASSERT_TRUE(cpu);
  const auto info = (*cpu)->memory_info();
  ASSERT_TRUE(info);
  const auto blocks = static_cast<std::int32_t>(info->free_bytes / kBlock);
  ArenaPlan plan;
  plan.reserve(RegionKind::kKv, static_cast<std::size_t>(blocks) * kBlock);
  plan.finish((*cpu)->traits().granularity);
  auto arena = Arena::create(**cpu, std::move(plan));
  ASSERT_TRUE(arena) << arena.error().message;
  KvMemory kv(*arena, **cpu, kBlock, blocks);
  kv.grow(blocks);
  EXPECT_TRUE(kv.growth_failed());
  kv.grow(5);
  EXPECT_FALSE(kv.growth_failed());
}

}  // namespace
}  // namespace sluice
