#include "engine/transfers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <memory>
#include <vector>

#include "device/cpu/cpu_device.h"
#include "tests/support/late_device.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;

// A transfer of resource r to place p copies word r of the host to word p of the device.
class WordSource final : public TransferSource {
 public:
  Status list_copies(const PlanTransfer& transfer, std::vector<TransferCopy>& copies) override {
    if (transfer.resource == kMissing) return unavailable("adapter: its file is gone");
    copies.push_back(
        {CopyKind::kHostToDevice, reinterpret_cast<std::byte*>(&device.at(place(transfer.place))),
         reinterpret_cast<const std::byte*>(&host.at(place(transfer.resource))), sizeof(int)});
    return {};
  }
  static std::size_t place(std::int32_t index) { return static_cast<std::size_t>(index); }

  static constexpr std::int32_t kMissing = -1;
  std::array<int, 32> host{};
  std::array<int, 32> device{};
};

class TransfersTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    auto cpu = make_cpu_device({.threads = 1});
    ASSERT_TRUE(cpu);
    device_ = std::move(*cpu);
    if (GetParam()) device_ = std::make_unique<test::LateDevice>(std::move(device_));
    for (std::size_t i = 0; i < source_.host.size(); ++i) source_.host[i] = static_cast<int>(i);
    transfers_ = std::make_unique<Transfers>(*device_, source_);
  }
  void TearDown() override { ASSERT_TRUE(device_->synchronize()); }

  void start(TransferId id, std::int32_t resource, std::int32_t place,
             std::size_t after = Transfers::kNoMark) {
    const PlanTransfer transfer{id, TransferKind::kLoadAdapter, resource, place};
    ASSERT_TRUE(transfers_->start(transfer, after));
  }
  // Ids that ended, failed ones negative.
  std::vector<std::int64_t> poll() {
    std::vector<TransferResult> results;
    EXPECT_TRUE(transfers_->poll(results));
    std::vector<std::int64_t> ids;
    for (const TransferResult& result : results) {
      const auto id = static_cast<std::int64_t>(result.id);
      ids.push_back(result.failed ? -id : id);
    }
    return ids;
  }
  std::vector<std::int64_t> poll_until_idle() {
    std::vector<std::int64_t> all;
    for (int i = 0; i < 1000 && !transfers_->idle(); ++i) {
      for (const std::int64_t id : poll()) all.push_back(id);
    }
    EXPECT_TRUE(transfers_->idle());
    return all;
  }

  WordSource source_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Transfers> transfers_;
};
INSTANTIATE_TEST_SUITE_P(Devices, TransfersTest, testing::Bool(), [](const auto& tested) {
  return tested.param ? std::string("late") : std::string("cpu");
});

TEST_P(TransfersTest, MovesBytesAndReportsTheEndOnce) {
  start(7, 5, 2);
  EXPECT_THAT(poll_until_idle(), ElementsAre(7));
  EXPECT_EQ(source_.device[2], 5);
  EXPECT_THAT(poll(), ElementsAre());
}

TEST_P(TransfersTest, MoreThanThereAreMarksEndInOrder) {
  std::vector<std::int64_t> expected;
  for (std::int32_t i = 0; i < 30; ++i) {
    start(static_cast<TransferId>(i + 1), i, 31 - i);
    expected.push_back(i + 1);
  }
  EXPECT_EQ(poll_until_idle(), expected);
  for (std::size_t i = 0; i < 30; ++i) EXPECT_EQ(source_.device[31 - i], static_cast<int>(i));
}

TEST_P(TransfersTest, ASourceThatFailsFailsItsTransferAlone) {
  start(1, 4, 0);
  start(2, WordSource::kMissing, 1);
  start(3, 6, 2);
  EXPECT_THAT(poll_until_idle(), testing::UnorderedElementsAre(1, -2, 3));
  EXPECT_EQ(source_.device[2], 6);
}

TEST_P(TransfersTest, StartsBehindThePlansBefore) {
  // The plan before writes the word that the transfer then overwrites.
  const int old = 99;
  ASSERT_TRUE(device_->copy_to_device(source_.device.data(), &old, sizeof(old)));
  ASSERT_TRUE(device_->mark(Queue::kCompute, 3));
  start(1, 8, 0, 3);
  EXPECT_THAT(poll_until_idle(), ElementsAre(1));
  EXPECT_EQ(source_.device[0], 8);
  ASSERT_TRUE(device_->synchronize());
  EXPECT_EQ(source_.device[0], 8) << "the older write came last";
}

TEST_P(TransfersTest, AWaitEndsWithTheFirstThatEndsOrInTime) {
  ASSERT_TRUE(transfers_->wait(milliseconds(5000))) << "nothing to wait for";
  start(1, 3, 0);
  ASSERT_TRUE(transfers_->wait(milliseconds(5000)));
  EXPECT_THAT(poll(), ElementsAre(1));
}

TEST(TransfersWaitTest, IsOverInTime) {
  auto cpu = make_cpu_device({.threads = 1});
  ASSERT_TRUE(cpu);
  test::LateDevice device(std::move(*cpu));
  device.polls_before_reached = 1 << 30;
  WordSource source;
  Transfers transfers(device, source);
  ASSERT_TRUE(transfers.start({1, TransferKind::kLoadAdapter, 0, 1}, Transfers::kNoMark));
  const SystemClock clock;
  const TimePoint before = clock.now();
  ASSERT_TRUE(transfers.wait(milliseconds(20)));
  EXPECT_GE(clock.now() - before, milliseconds(20));
  EXPECT_FALSE(transfers.idle());
  ASSERT_TRUE(device.synchronize());
}

}  // namespace
}  // namespace sluice
