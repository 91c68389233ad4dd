#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "device/cpu/cpu_device.h"
#include "tests/parity/lora_case.h"
#include "tests/parity/support.h"

namespace sluice::parity {
namespace {

struct LoraTypes {
  DType x;
  DType adapter;
};

class LoraTest : public DeviceTest {
 protected:
  // `ranks` of each adapter's modules, `slots` of each token.
  void check(const LoraShape& shape, const std::vector<std::vector<std::int32_t>>& ranks,
             const std::vector<std::int32_t>& slots, SplitMix64& rng);
};

constexpr std::size_t kLoraRegionBytes = std::size_t{4} << 20;

// The expected row of a token, and the error allowed.
void expected_lora_row(const LoraShape& shape, const LoraAdapter& adapter, const float* x,
                       const float* before, double* want, double* tolerance) {
  for (std::size_t m = 0; m < adapter.size(); ++m) {
    const LoraModule& module = adapter[m];
    const auto width = static_cast<std::size_t>(shape.widths[m]);
    std::vector<double> sums(width);
    std::vector<double> magnitudes(width);
    for (std::int32_t r = 0; r < module.rank; ++r) {
      const float* a = module.a.data() + r * shape.depth;
      double h = 0.0;
      double magnitude = 0.0;
      for (std::int64_t k = 0; k < shape.depth; ++k) {
        h += static_cast<double>(x[k]) * a[k];
        magnitude += std::abs(static_cast<double>(x[k]) * a[k]);
      }
      for (std::size_t n = 0; n < width; ++n) {
        const double b = module.b[static_cast<std::size_t>(r) * width + n];
        sums[n] += h * b;
        magnitudes[n] += std::abs(b) * magnitude;
      }
    }
    const double steps = static_cast<double>(shape.depth) / 8 + module.rank + 8;
    for (std::size_t n = 0; n < width; ++n) {
      want[n] = before[n] + module.scale * sums[n];
      tolerance[n] = (std::abs(before[n]) + module.scale * magnitudes[n]) * steps * 0x1p-24;
      if (module.rank == 0 || module.gains.empty()) continue;  // an absent module has no gains
      const double gain = module.gains[n];
      const double shift = module.gains[width + n];
      want[n] = gain * want[n] + shift;
      tolerance[n] =
          std::abs(gain) * tolerance[n] + 2 * (std::abs(want[n]) + std::abs(shift)) * 0x1p-24;
    }
    want += width;
    tolerance += width;
    before += width;
  }
}

void LoraTest::check(const LoraShape& shape, const std::vector<std::vector<std::int32_t>>& ranks,
                     const std::vector<std::int32_t>& slots, SplitMix64& rng) {
  const auto num_slots = static_cast<std::int32_t>(ranks.size());
  const std::size_t tokens = slots.size();
  const auto depth = static_cast<std::size_t>(shape.depth);
  std::size_t width = 0;
  for (const std::int64_t n : shape.widths) width += static_cast<std::size_t>(n);
  memory_->clear();
  LoraSite site(*memory_, shape, static_cast<std::int32_t>(tokens) + 3, num_slots,
                kLoraRegionBytes);
  std::vector<LoraAdapter> adapters;
  for (std::int32_t s = 0; s < num_slots; ++s) {
    adapters.push_back(random_adapter(shape, ranks[static_cast<std::size_t>(s)], rng));
    site.load(s, adapters.back(), rng);
  }
  const auto x = round_to(shape.x, random_floats(rng, tokens * depth));
  const auto before = random_floats(rng, tokens * width);
  site.set_batch(x, before, slots);
  site.run(ops());

  std::vector<double> want(before.begin(), before.end());
  std::vector<double> tolerance(want.size(), 0.0);
  for (std::size_t t = 0; t < tokens; ++t) {
    if (slots[t] < 0) continue;
    expected_lora_row(shape, adapters[static_cast<std::size_t>(slots[t])], x.data() + t * depth,
                      before.data() + t * width, want.data() + t * width,
                      tolerance.data() + t * width);
  }
  expect_close(result(site.out()), want, tolerance,
               std::string(dtype_name(shape.x)) + " by " + dtype_name(shape.dtype) + ", K " +
                   std::to_string(shape.depth) + ", " + std::to_string(tokens) + " tokens");
}

constexpr LoraTypes kLoraTypes[] = {{DType::kF32, DType::kF32},
                                    {DType::kF32, DType::kF16},
                                    {DType::kF32, DType::kBF16},
                                    {DType::kBF16, DType::kBF16}};

TEST_P(LoraTest, OddShapes) {
  SplitMix64 rng(1);
  for (const LoraTypes types : kLoraTypes) {
    check({1, {1}, 1, types.x, types.adapter}, {{1}}, {0}, rng);
    check({37, {5, 3, 17}, 11, types.x, types.adapter}, {{3, 0, 11}, {1, 7, 2}, {0, 0, 0}},
          {1, -1, 0, 0, 2, 1, -1, 1}, rng);
    check({100, {70, 33}, 40, types.x, types.adapter}, {{40, 1}, {17, 25}},
          {-1, 1, 1, 1, 0, 1, 0, 0, 0, 1, 0}, rng);
    if (HasFatalFailure()) return;
  }
}

// Rows of 16-bit elements at multiples of 16 bytes, which is what tensor cores take: ranks and
// numbers of tokens around the borders of their tiles.
TEST_P(LoraTest, HalvesAtWholeAddresses) {
  SplitMix64 rng(2);
  for (const DType type : {DType::kBF16, DType::kF16}) {
    const DType x = device_->traits().matmul_input_dtype(type);
    check({64, {48, 16, 16}, 16, x, type}, {{16, 16, 16}, {8, 0, 15}}, {0, 1, -1, 0, 1}, rng);
    std::vector<std::int32_t> slots(20, 1);
    slots[3] = 0;
    slots[19] = -1;
    check({520, {258, 130}, 33, x, type}, {{33, 17}, {1, 32}}, slots, rng);
    if (HasFatalFailure()) return;
  }
}

TEST_P(LoraTest, EveryRankUpToTheLargest) {
  SplitMix64 rng(3);
  const std::vector<std::int32_t> ranks = {1,  2,  7,  8,   9,   15,  16,  17, 31,
                                           32, 63, 64, 100, 128, 200, 255, 256};
  std::vector<std::vector<std::int32_t>> adapters;
  std::vector<std::int32_t> slots;
  for (const std::int32_t rank : ranks) {
    slots.push_back(static_cast<std::int32_t>(adapters.size()));
    adapters.push_back({rank});
  }
  check({40, {30}, 256, DType::kBF16, DType::kBF16}, adapters, slots, rng);
  check({24, {18}, 256, DType::kF32, DType::kF32}, adapters, slots, rng);
}

// A prefill chunk of several segments beside decodes, and more than one part of K.
TEST_P(LoraTest, LongChunksAndLongInputs) {
  SplitMix64 rng(4);
  std::vector<std::int32_t> slots(150, 1);
  for (const std::size_t t : {0, 1, 2}) slots[t] = static_cast<std::int32_t>(t) - 1;
  check({48, {64, 40}, 20, DType::kBF16, DType::kBF16}, {{20, 4}, {9, 16}}, slots, rng);
  check({2 * LoraHidden::kPartDepth + 72, {24}, 12, DType::kBF16, DType::kBF16}, {{12}, {5}},
        {0, 1, 1}, rng);
  check({LoraHidden::kPartDepth + 5, {24}, 12, DType::kF32, DType::kBF16}, {{12}, {5}}, {0, 1, 1},
        rng);
}

// Enough work that the CPU splits it over threads.
TEST_P(LoraTest, LargeEnoughForThreads) {
  SplitMix64 rng(5);
  check({1024, {4300, 520}, 32, DType::kBF16, DType::kBF16}, {{32, 16}, {16, 32}, {0, 20}},
        {0, -1, 1, 2, 0, 1}, rng);
}

// Bit patterns, NaN too, of rows without an adapter and of modules that an adapter leaves alone.
TEST_P(LoraTest, TouchesNothingElse) {
  SplitMix64 rng(6);
  const LoraShape shape{64, {20, 12}, 8, DType::kBF16, DType::kBF16};
  LoraSite site(*memory_, shape, 8, 2, kLoraRegionBytes);
  site.load(0, random_adapter(shape, {8, 0}, rng), rng);
  site.load(1, random_adapter(shape, {0, 0}, rng), rng);
  const auto x = random_floats(rng, 4 * 64);
  std::vector<float> before = random_floats(rng, 4 * 32);
  for (std::size_t i = 0; i < before.size(); i += 3) before[i] = std::nanf("");
  before[1] = -0.0F;
  site.set_batch(x, before, {-1, 1, 0, -1});
  site.run(ops());
  const auto after = result(site.out());
  const auto expect_kept = [&](std::size_t begin, std::size_t count) {
    expect_same(std::span(after).subspan(begin, count), std::span(before).subspan(begin, count),
                "from " + std::to_string(begin));
  };
  expect_kept(0, 64);   // no adapter, and an adapter without these modules
  expect_kept(84, 44);  // the second module of token 2, and token 3
  EXPECT_NE(after[2 * 32 + 1], before[2 * 32 + 1]);  // no NaN
}

INSTANTIATE_TEST_SUITE_P(Devices, LoraTest, testing::ValuesIn(available_devices()), case_name);

// State that only a bug of ours can make; without a second thread, which such tests do not like.
class LoraDeathTest : public testing::TestWithParam<CpuIsa> {};

TEST_P(LoraDeathTest, WrongSegmentsAndEntriesAreFound) {
  auto device = make_cpu_device({.threads = 1, .isa = GetParam()});
  if (!device) GTEST_SKIP() << device.error().message;
  DeviceMemory memory(**device, std::size_t{1} << 20);
  SplitMix64 rng(7);
  const LoraShape shape{16, {8}, 4, DType::kF32, DType::kF32};
  LoraSite site(memory, shape, 4, 2, 4096);
  site.load(0, random_adapter(shape, {4}, rng), rng);
  site.set_batch(random_floats(rng, 32), random_floats(rng, 16), {0, 0});
  site.run((*device)->ops());
  const auto expect_death = [&](const char* what, const LoraBatch& batch) {
    LoraShrinkParams shrink = site.shrink();
    LoraExpandParams expand = site.expand();
    shrink.batch = expand.batch = batch;
    EXPECT_DEATH((*device)->ops().run(shrink), "CHECK failed") << what;
    EXPECT_DEATH((*device)->ops().run(expand), "CHECK failed") << what;
  };
  const auto with_segment = [&](const LoraSegment& segment) {
    LoraBatch batch = site.shrink().batch;
    batch.segments = memory.put(std::vector<LoraSegment>{segment});
    return batch;
  };
  expect_death("a slot that does not exist", with_segment({0, 2, 2}));
  expect_death("an empty segment", with_segment({0, 0, 0}));
  expect_death("more tokens than there is room for", with_segment({3, 2, 0}));
  expect_death("a slot that holds nothing", with_segment({0, 2, 1}));
  LoraBatch batch = site.shrink().batch;
  batch.tokens = memory.put(std::vector<std::int32_t>{0, 4, 0, 0});
  expect_death("a token that does not exist", batch);
}

INSTANTIATE_TEST_SUITE_P(Cpu, LoraDeathTest, testing::Values(CpuIsa::kReference, CpuIsa::kAvx2));

}  // namespace
}  // namespace sluice::parity
