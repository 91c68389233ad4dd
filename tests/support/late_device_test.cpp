#include "tests/support/late_device.h"

#include <gtest/gtest.h>

#include <array>

#include "device/cpu/cpu_device.h"
#include "device/host_buffer.h"

namespace sluice::test {
namespace {

class LateDeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    auto cpu = make_cpu_device({.threads = 1});
    ASSERT_TRUE(cpu);
    device_ = std::make_unique<LateDevice>(std::move(*cpu));
    words_ = {0, 1, 2, 3, 4, 5};
  }
  void copy(Queue queue, std::size_t target, std::size_t source) {
    ASSERT_TRUE(device_->copy(queue, CopyKind::kDeviceToDevice, &words_.at(target),
                              &words_.at(source), sizeof(int)));
  }

  std::array<int, 6> words_{};
  std::unique_ptr<LateDevice> device_;
};

TEST_F(LateDeviceTest, QueuesRunIndependently) {
  copy(Queue::kTransfer, 0, 1);
  ASSERT_TRUE(device_->mark(Queue::kTransfer, 0));
  copy(Queue::kCompute, 2, 3);
  ASSERT_TRUE(device_->mark(Queue::kCompute, 0));
  ASSERT_TRUE(device_->wait(Queue::kCompute, 0));
  EXPECT_EQ(words_[2], 3);
  EXPECT_EQ(words_[0], 0) << "the transfer was not waited for";
  EXPECT_EQ(device_->outstanding(Queue::kTransfer), 2U);
  ASSERT_TRUE(device_->wait(Queue::kTransfer, 0));
  EXPECT_EQ(words_[0], 1);
}

TEST_F(LateDeviceTest, WithoutAMarkATransferMayOvertakeCompute) {
  copy(Queue::kCompute, 0, 1);
  copy(Queue::kTransfer, 2, 0);
  ASSERT_TRUE(device_->synchronize(Queue::kTransfer));
  EXPECT_EQ(words_[2], 0) << "the transfer has read before compute wrote";
}

TEST_F(LateDeviceTest, AMarkOrdersTheQueues) {
  copy(Queue::kCompute, 0, 1);
  ASSERT_TRUE(device_->mark(Queue::kCompute, 3));
  copy(Queue::kCompute, 4, 5);
  ASSERT_TRUE(device_->wait_in(Queue::kTransfer, Queue::kCompute, 3));
  copy(Queue::kTransfer, 2, 0);
  ASSERT_TRUE(device_->synchronize(Queue::kTransfer));
  EXPECT_EQ(words_[2], 1);
  EXPECT_EQ(words_[4], 4) << "nothing after the mark had to run";
}

TEST_F(LateDeviceTest, APollSaysNoForAWhile) {
  copy(Queue::kTransfer, 0, 1);
  ASSERT_TRUE(device_->mark(Queue::kTransfer, 0));
  for (int i = 0; i < device_->polls_before_reached; ++i) {
    EXPECT_FALSE(device_->reached(Queue::kTransfer, 0).value_or(true));
    EXPECT_EQ(words_[0], 0);
  }
  EXPECT_TRUE(device_->reached(Queue::kTransfer, 0).value_or(false));
  EXPECT_EQ(words_[0], 1);
}

TEST_F(LateDeviceTest, MemoryThatATransferUsesMustNotBeGivenBack) {
  const auto range = device_->reserve(1);
  ASSERT_TRUE(range);
  ASSERT_TRUE(device_->back(*range, 0, range->bytes, Backing::memory()));
  auto buffer = HostBuffer::create(*device_, 64);
  ASSERT_TRUE(buffer);
  ASSERT_TRUE(device_->copy(Queue::kTransfer, CopyKind::kDeviceToHost, buffer->data(),
                            range->base + 128, 64));
  EXPECT_DEATH(device_->unback(*range, 0, range->bytes), "CHECK failed");
  EXPECT_DEATH(device_->give_host_memory(buffer->data()), "CHECK failed");
  ASSERT_TRUE(device_->synchronize());
  device_->unback(*range, 0, range->bytes);
  device_->release(*range);
}

}  // namespace
}  // namespace sluice::test
