#include "device/upload.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "device/cpu/cpu_device.h"
#include "tests/support/late_device.h"

namespace sluice {
namespace {

// Device memory for a few hundred thousand numbers, on a device the host reaches or on one that
// copies as late as it may.
class UploadTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    device_ = *make_cpu_device({.threads = 1});
    if (GetParam()) device_ = std::make_unique<test::LateDevice>(std::move(device_));
    range_ = *device_->reserve(std::size_t{8} << 20);
    ASSERT_TRUE(device_->back(range_, 0, range_.bytes, Backing::memory()));
  }
  void TearDown() override {
    device_->unback(range_, 0, range_.bytes);
    device_->release(range_);
  }

  // Numbers from `first` on at `place`, a count of numbers.
  Status write(Upload& upload, std::size_t place, std::size_t count, std::uint32_t first) {
    return upload.write(range_.base + place * 4, count * 4,
                        [&](std::size_t offset, std::size_t bytes, std::byte* to) {
                          std::vector<std::uint32_t> numbers(bytes / 4);
                          std::iota(numbers.begin(), numbers.end(),
                                    first + static_cast<std::uint32_t>(offset / 4));
                          std::memcpy(to, numbers.data(), bytes);
                        });
  }
  std::uint32_t number(std::size_t place) const {
    std::uint32_t value = 0;
    std::memcpy(&value, range_.base + place * 4, 4);
    return value;
  }

  ThreadPool pool_{2};
  std::unique_ptr<Device> device_;
  AddressRange range_;
};

TEST_P(UploadTest, LargeAndSmallPiecesArriveThroughFewBuffers) {
  auto upload = Upload::create(*device_, pool_, std::size_t{128} << 10);
  ASSERT_TRUE(upload);
  constexpr std::size_t kLarge = 1000003;  // much more than all buffers hold
  ASSERT_TRUE(write(*upload, 0, 5, 100));
  ASSERT_TRUE(write(*upload, 8, kLarge, 7));
  ASSERT_TRUE(write(*upload, 8 + kLarge, 0, 0));
  ASSERT_TRUE(write(*upload, 8 + kLarge, 1, 42));
  ASSERT_TRUE(upload->finish());
  EXPECT_EQ(number(4), 104U);
  EXPECT_EQ(number(5), 0U) << "not written";
  for (std::size_t i = 0; i < kLarge; ++i) ASSERT_EQ(number(8 + i), 7 + i);
  EXPECT_EQ(number(8 + kLarge), 42U);
  EXPECT_EQ(upload->bytes(), (5 + kLarge + 1) * 4);
  ASSERT_TRUE(write(*upload, 5, 1, 77));
  ASSERT_TRUE(upload->finish());
  EXPECT_EQ(number(5), 77U);
}

std::string device_name(const testing::TestParamInfo<bool>& info) {
  return info.param ? "late" : "reached";
}

INSTANTIATE_TEST_SUITE_P(Devices, UploadTest, testing::Bool(), device_name);

}  // namespace
}  // namespace sluice
