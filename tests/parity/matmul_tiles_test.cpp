// Products of x and weights in BF16 on the tile registers of AMX have the bits of a plain model of
// the instruction: within each 32 elements along K one chain of fused multiply-adds over the even
// places and one over the odd ones, added to each other and then to the sum so far.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/parity/support.h"

namespace sluice::parity {
namespace {

// The instruction takes denormals for zeros and makes none.
float flushed(float v) {
  return std::fabs(v) < std::numeric_limits<float>::min() ? std::copysign(0.0F, v) : v;
}

float product(const float* x, const float* w, std::size_t depth) {
  constexpr std::size_t kTileDepth = 32;
  float sum = 0.0F;
  for (std::size_t tile = 0; tile < depth; tile += kTileDepth) {
    float even = 0.0F;
    float odd = 0.0F;
    for (std::size_t k = tile; k < std::min(depth, tile + kTileDepth); ++k) {
      float& half = k % 2 == 0 ? even : odd;
      half = flushed(std::fma(flushed(x[k]), flushed(w[k]), half));
    }
    sum = flushed(sum + flushed(even + odd));
  }
  return sum;
}

// The case of available_cpus() emulates tile registers where they are missing.
std::vector<DeviceCase> amx_devices() {
  std::vector<DeviceCase> devices = available_cpus();
  std::erase_if(devices, [](const DeviceCase& device) { return device.name != "cpu_amx"; });
  return devices;
}

class MatmulTilesTest : public DeviceTest {};

TEST_P(MatmulTilesTest, HasTheBitsOfTheModel) {
  SplitMix64 rng(11);
  struct Size {
    std::size_t rows, depth, cols;
  };
  for (const Size& s : {Size{1, 64, 16}, Size{3, 33, 7}, Size{1, 2200, 50}, Size{2, 300, 33},
                        Size{15, 128, 40}, Size{16, 160, 32}, Size{17, 200, 50}, Size{65, 96, 40},
                        Size{90, 2080, 33}, Size{530, 1100, 20}, Size{40, 1056, 530}}) {
    memory_->clear();
    auto x = random_floats(rng, s.rows * s.depth);
    auto w = random_floats(rng, s.cols * s.depth);
    // Magnitudes whose sums round, and some whose products or values are denormals.
    for (float& v : x) v *= rng.below(8) == 0 ? 0x1p-70F : 1.0F;
    for (float& v : w) v *= rng.below(8) == 0 ? 0x1p-70F : 1.0F;
    for (std::size_t i = 0; i < x.size(); i += 41) x[i] = 0x1p-130F;
    x = round_to(DType::kBF16, x);
    w = round_to(DType::kBF16, w);
    const auto rows = static_cast<std::int64_t>(s.rows);
    const auto depth = static_cast<std::int64_t>(s.depth);
    const auto cols = static_cast<std::int64_t>(s.cols);
    MatmulParams p;
    p.x = memory_->put_matrix(x, rows, depth, DType::kBF16);
    p.segments[0].weight = memory_->put_matrix(w, cols, depth, DType::kBF16);
    p.num_segments = 1;
    p.out = memory_->take_matrix(rows, cols, DType::kF32, cols + 3);
    p.rows = {nullptr, static_cast<std::int32_t>(rows)};
    ops().run(p);
    std::vector<float> want;
    for (std::size_t r = 0; r < s.rows; ++r) {
      for (std::size_t c = 0; c < s.cols; ++c) {
        want.push_back(product(x.data() + r * s.depth, w.data() + c * s.depth, s.depth));
      }
    }
    expect_same(
        result(p.out), want,
        std::to_string(s.rows) + " x " + std::to_string(s.depth) + " x " + std::to_string(s.cols));
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, MatmulTilesTest, testing::ValuesIn(amx_devices()), case_name);

}  // namespace
}  // namespace sluice::parity
