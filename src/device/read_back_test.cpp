#include "device/read_back.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "device/cpu/cpu_device.h"
#include "tests/support/late_device.h"

namespace sluice {
namespace {

// On a device the host reaches, or on one that copies as late as it may.
class ReadBackTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    device_ = *make_cpu_device({.threads = 1});
    if (GetParam()) device_ = std::make_unique<test::LateDevice>(std::move(device_));
    range_ = *device_->reserve(std::size_t{2} << 20);
    ASSERT_TRUE(device_->back(range_, 0, range_.bytes, Backing::memory()));
  }
  void TearDown() override {
    device_->unback(range_, 0, range_.bytes);
    device_->release(range_);
  }

  std::unique_ptr<Device> device_;
  AddressRange range_;
};

TEST_P(ReadBackTest, PiecesComeInOrderAndWhole) {
  constexpr std::size_t kPiece = 1024;
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, kPiece - 1, kPiece, kPiece + 1,
                                  2 * kPiece, 7 * kPiece + 5}) {
    std::vector<std::byte> written(count);
    for (std::size_t i = 0; i < count; ++i) written[i] = static_cast<std::byte>(i * 31 + i / 251);
    // Submitted and, on the late device, not run yet.
    ASSERT_TRUE(device_->copy_to_device(range_.base + 64, written.data(), count));
    std::vector<std::byte> read;
    std::size_t pieces = 0;
    ASSERT_TRUE(read_back(
        *device_, range_.base + 64, count,
        [&](std::span<const std::byte> piece) {
          EXPECT_LE(piece.size(), kPiece);
          read.insert(read.end(), piece.begin(), piece.end());
          ++pieces;
        },
        kPiece));
    EXPECT_EQ(read, written) << count;
    EXPECT_EQ(pieces, (count + kPiece - 1) / kPiece);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, ReadBackTest, testing::Bool(),
                         [](const auto& tested) { return tested.param ? "late" : "cpu"; });

}  // namespace
}  // namespace sluice
