#include "device/arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <utility>
#include <vector>

namespace sluice {
namespace {

constexpr std::size_t kGranularity = 4096;

// Records what is reserved, backed and mapped at any moment; has no memory.
class BookkeepingDevice final : public Device {
 public:
  BookkeepingDevice() { traits_.granularity = kGranularity; }

  const DeviceTraits& traits() const override { return traits_; }
  Result<MemoryInfo> memory_info() const override { return MemoryInfo{}; }

  Result<AddressRange> reserve(std::size_t bytes) override {
    ++reserved_ranges;
    return AddressRange{reinterpret_cast<std::byte*>(0x1000000), bytes};
  }
  void release(AddressRange) override { --reserved_ranges; }

  Status back(AddressRange, std::size_t offset, std::size_t bytes,
              const Backing& backing) override {
    const bool memory = backing.kind == Backing::Kind::kMemory;
    if (!memory && backing.fd < 0) return invalid_argument("bad descriptor");
    if (memory && bytes > memory_left) return resource_exhausted("no memory left");
    if (memory) memory_left -= bytes;
    for (std::size_t at = offset; at < offset + bytes; at += kGranularity) {
      EXPECT_TRUE(backed.emplace(at, memory ? 'm' : 'f').second) << "backed twice at " << at;
    }
    return {};
  }
  void unback(AddressRange, std::size_t offset, std::size_t bytes) override {
    for (std::size_t at = offset; at < offset + bytes; at += kGranularity) {
      const auto it = backed.find(at);
      ASSERT_NE(it, backed.end()) << "not backed at " << at;
      if (it->second == 'm') memory_left += kGranularity;
      backed.erase(it);
    }
  }
  Status protect(AddressRange, std::size_t offset, std::size_t bytes, Protection) override {
    protected_pieces.emplace_back(offset, bytes);
    return {};
  }

  Result<FileDescriptor> export_memory(AddressRange, std::size_t) override {
    return unsupported("no export");
  }
  Result<std::byte*> take_host_memory(std::size_t) override { return unsupported("no memory"); }
  void give_host_memory(std::byte*) override {}
  Status copy(Queue, CopyKind, void*, const void*, std::size_t) override { return {}; }
  Status mark(Queue, std::size_t) override { return {}; }
  Status wait(Queue, std::size_t) override { return {}; }
  Result<bool> reached(Queue, std::size_t) override { return true; }
  Status wait_in(Queue, Queue, std::size_t) override { return {}; }
  Result<Duration> time_between(std::size_t, std::size_t) override { return Duration(0); }
  Status synchronize(Queue) override { return {}; }
  Ops& ops() override { std::abort(); }
  Status begin_capture() override { return unsupported("no graphs"); }
  Result<OpList> end_listing() override { return unsupported("no graphs"); }
  Result<std::unique_ptr<Graph>> make_graph(OpList) override { return unsupported("no graphs"); }
  Status replay(const Graph&) override { return unsupported("no graphs"); }

  int reserved_ranges = 0;
  std::size_t memory_left = 1 << 20;
  std::map<std::size_t, char> backed;  // by granule: 'm' memory, 'f' a descriptor's
  std::vector<std::pair<std::size_t, std::size_t>> protected_pieces;

 private:
  DeviceTraits traits_;
};

ArenaPlan small_plan() {
  ArenaPlan plan;
  plan.add(RegionKind::kWeights, "m/a", 100);
  plan.add(RegionKind::kWeights, "m/b", 5000, 256);
  plan.add(RegionKind::kInputs, "m/tokens", 64);
  plan.reserve(RegionKind::kKv, 10 * kGranularity);
  plan.finish(kGranularity);
  return plan;
}

TEST(ArenaPlan, LaysRegionsOutInOrderAtAlignedOffsets) {
  ArenaPlan plan;
  EXPECT_EQ(plan.add(RegionKind::kKv, "m/kv", 3), 0U);
  EXPECT_EQ(plan.add(RegionKind::kWeights, "m/a", 100), 0U);
  EXPECT_EQ(plan.add(RegionKind::kWeights, "m/b", 1), 128U);
  EXPECT_EQ(plan.add(RegionKind::kWeights, "m/c", 8000, 1024), 1024U);
  EXPECT_EQ(plan.add(RegionKind::kInputs, "m/tokens", 0), 0U);
  plan.finish(kGranularity);

  EXPECT_EQ(plan.region(RegionKind::kWeights).offset, 0U);
  EXPECT_EQ(plan.region(RegionKind::kWeights).reserved, 3 * kGranularity);
  EXPECT_EQ(plan.region(RegionKind::kAdapters).reserved, 0U);
  EXPECT_EQ(plan.region(RegionKind::kInputs).reserved, 0U);
  EXPECT_EQ(plan.region(RegionKind::kKv).offset, 3 * kGranularity);
  EXPECT_EQ(plan.total_bytes(), 4 * kGranularity);
}

TEST(ArenaPlan, IsTheSameForTheSameInputs) {
  EXPECT_EQ(small_plan(), small_plan());
  ArenaPlan other;
  other.add(RegionKind::kWeights, "m/a", 101);
  other.finish(kGranularity);
  EXPECT_FALSE(small_plan() == other);
}

TEST(ArenaPlan, ReserveNeverMakesARegionSmallerThanItsBuffers) {
  ArenaPlan plan;
  plan.reserve(RegionKind::kWorkspace, 10);
  plan.add(RegionKind::kWorkspace, "m/x", 5000);
  plan.finish(kGranularity);
  EXPECT_EQ(plan.region(RegionKind::kWorkspace).reserved, 2 * kGranularity);
}

TEST(Arena, FindsTheBufferOfAnAddress) {
  BookkeepingDevice device;
  const auto arena = Arena::create(device, small_plan());
  ASSERT_TRUE(arena);
  const std::byte* b = arena->address(RegionKind::kWeights, "m/b");
  EXPECT_EQ(arena->find(b), (ArenaPlace{RegionKind::kWeights, "m/b", 0}));
  EXPECT_EQ(arena->find(b + 4999), (ArenaPlace{RegionKind::kWeights, "m/b", 4999}));
  EXPECT_EQ(arena->find(b + 5000), std::nullopt) << "after the last buffer of its region";
  const std::byte* a = arena->address(RegionKind::kWeights, "m/a");
  EXPECT_EQ(arena->find(a + 99), (ArenaPlace{RegionKind::kWeights, "m/a", 99}));
  EXPECT_EQ(arena->find(a + 100), std::nullopt) << "between two buffers";
  EXPECT_EQ(arena->find(a - 1), std::nullopt);
  EXPECT_EQ(arena->find(arena->region_base(RegionKind::kKv)), std::nullopt) << "no name";
  EXPECT_EQ(arena->find(a + arena->plan().total_bytes()), std::nullopt);
  EXPECT_EQ(arena->find(nullptr), std::nullopt);
}

TEST(Arena, GivesTheAddressOfAPlace) {
  BookkeepingDevice device;
  const auto arena = Arena::create(device, small_plan());
  ASSERT_TRUE(arena);
  const std::byte* b = arena->address(RegionKind::kWeights, "m/b");
  EXPECT_EQ(arena->address({RegionKind::kWeights, "m/b", 7}), b + 7);
  EXPECT_EQ(arena->address({RegionKind::kWeights, "m/b", 5000}), nullptr) << "it is shorter";
  EXPECT_EQ(arena->address({RegionKind::kInputs, "m/b", 0}), nullptr) << "of another region";
}

TEST(ArenaPlanDeathTest, RefusesANameTwiceAndChangesAfterFinish) {
  ArenaPlan plan;
  plan.add(RegionKind::kWeights, "m/a", 1);
  EXPECT_DEATH(plan.add(RegionKind::kWeights, "m/a", 1), "CHECK failed");
  plan.finish(kGranularity);
  EXPECT_DEATH(plan.add(RegionKind::kWeights, "m/b", 1), "CHECK failed");
}

TEST(Arena, FindsBuffersByName) {
  BookkeepingDevice device;
  auto arena = Arena::create(device, small_plan());
  ASSERT_TRUE(arena);
  EXPECT_EQ(arena->address(RegionKind::kWeights, "m/b"),
            arena->region_base(RegionKind::kWeights) + 256);
  EXPECT_EQ(arena->region_base(RegionKind::kKv) - arena->region_base(RegionKind::kWeights),
            static_cast<std::ptrdiff_t>(arena->plan().region(RegionKind::kKv).offset));
  EXPECT_DEATH(arena->address(RegionKind::kInputs, "m/b"), "no such buffer");
}

TEST(Arena, GrowsAndShrinksByWholeGranules) {
  BookkeepingDevice device;
  auto arena = Arena::create(device, small_plan());
  ASSERT_TRUE(arena);
  ASSERT_TRUE(arena->grow(RegionKind::kKv, 1));
  EXPECT_EQ(arena->backed_bytes(RegionKind::kKv), kGranularity);
  ASSERT_TRUE(arena->grow(RegionKind::kKv, 3 * kGranularity));
  ASSERT_TRUE(arena->grow(RegionKind::kKv, 2 * kGranularity));  // backed already
  EXPECT_EQ(device.backed.size(), 3U);
  arena->shrink(RegionKind::kKv, kGranularity + 1);
  EXPECT_EQ(arena->backed_bytes(RegionKind::kKv), 2 * kGranularity);
  EXPECT_EQ(device.backed.size(), 2U);
  const std::size_t kv = arena->plan().region(RegionKind::kKv).offset;
  EXPECT_TRUE(device.backed.contains(kv) && device.backed.contains(kv + kGranularity));
}

TEST(Arena, GrowthBeyondTheReservationIsAnErrorThatNamesTheRegion) {
  BookkeepingDevice device;
  auto arena = Arena::create(device, small_plan());
  ASSERT_TRUE(arena);
  const auto status = arena->grow(RegionKind::kKv, 11 * kGranularity);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(status.error().message, testing::HasSubstr("kv"));
  EXPECT_TRUE(device.backed.empty());
}

TEST(Arena, FailedGrowthKeepsWhatWasBacked) {
  BookkeepingDevice device;
  device.memory_left = 2 * kGranularity;
  auto arena = Arena::create(device, small_plan());
  ASSERT_TRUE(arena);
  ASSERT_TRUE(arena->grow(RegionKind::kKv, kGranularity));
  const auto status = arena->grow(RegionKind::kKv, 5 * kGranularity);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, testing::HasSubstr("no memory left"));
  EXPECT_EQ(arena->backed_bytes(RegionKind::kKv), kGranularity);
  ASSERT_TRUE(arena->grow(RegionKind::kKv, 2 * kGranularity));
}

TEST(Arena, MapsDescriptorsBesideBackedMemoryAndProtects) {
  BookkeepingDevice device;
  auto arena = Arena::create(device, small_plan());
  ASSERT_TRUE(arena);
  ASSERT_TRUE(arena->map(RegionKind::kWeights, kGranularity, 10, Backing::file(3)));
  EXPECT_FALSE(arena->map(RegionKind::kWeights, 0, 10, Backing::file(-1)));
  ASSERT_TRUE(arena->grow(RegionKind::kWeights, 100));
  EXPECT_EQ(device.backed.at(0), 'm');
  EXPECT_EQ(device.backed.at(kGranularity), 'f');
  EXPECT_DEATH(static_cast<void>(arena->grow(RegionKind::kWeights, 5000)), "CHECK failed");
  ASSERT_TRUE(arena->protect(RegionKind::kWeights, Protection::kReadOnly));
  ASSERT_TRUE(arena->protect(RegionKind::kKv, Protection::kReadOnly));  // nothing backed: no call
  EXPECT_THAT(device.protected_pieces, testing::ElementsAre(testing::Pair(0U, kGranularity)));
}

TEST(Arena, APieceOfARegionCanBeMappedAndUnmapped) {
  BookkeepingDevice device;
  auto arena = Arena::create(device, small_plan());
  ASSERT_TRUE(arena);
  const std::size_t kv = arena->plan().region(RegionKind::kKv).offset;
  const Backing lent = Backing::shared(3, Protection::kReadWrite);
  ASSERT_TRUE(arena->map(RegionKind::kKv, 4 * kGranularity, kGranularity, lent));
  ASSERT_TRUE(arena->map(RegionKind::kKv, 6 * kGranularity, kGranularity, lent));
  EXPECT_DEATH(static_cast<void>(arena->map(RegionKind::kKv, 4 * kGranularity, 1, lent)),
               "CHECK failed");
  arena->unmap(RegionKind::kKv, 4 * kGranularity);
  EXPECT_FALSE(device.backed.contains(kv + 4 * kGranularity));
  EXPECT_TRUE(device.backed.contains(kv + 6 * kGranularity));
  EXPECT_DEATH(arena->unmap(RegionKind::kKv, 4 * kGranularity), "CHECK failed");
  ASSERT_TRUE(arena->grow(RegionKind::kKv, 6 * kGranularity)) << "up to the other piece";
}

TEST(Arena, ReleasesEverythingOnceAlsoAfterMoves) {
  BookkeepingDevice device;
  {
    auto first = Arena::create(device, small_plan());
    auto second = Arena::create(device, small_plan());
    ASSERT_TRUE(first && second);
    ASSERT_TRUE(first->grow(RegionKind::kInputs, 64));
    ASSERT_TRUE(first->map(RegionKind::kWeights, 0, 5000, Backing::file(3)));
    Arena moved(std::move(*first));
    EXPECT_EQ(moved.backed_bytes(RegionKind::kInputs), kGranularity);
    EXPECT_EQ(device.reserved_ranges, 2);
    *second = std::move(moved);  // releases what `second` held
    EXPECT_EQ(device.reserved_ranges, 1);
    EXPECT_EQ(second->address(RegionKind::kWeights, "m/a"),
              second->region_base(RegionKind::kWeights));
  }
  EXPECT_EQ(device.reserved_ranges, 0);
  EXPECT_TRUE(device.backed.empty());
}

}  // namespace
}  // namespace sluice
