#include "apps/machine_limits.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace sluice {
namespace {

TEST(MachineLimits, AreMeasuredForEachUnitThatTheMachineHas) {
  LimitsOptions options;
  options.threads = 2;
  options.read_bytes = std::int64_t{8} << 20;
  options.repetitions = 2;
  options.length = std::chrono::milliseconds(1);
  const SystemClock clock;
  const MachineLimits limits = measure_limits(options, clock);
  EXPECT_EQ(limits.threads, 2);
  EXPECT_GT(limits.read, 1e8);
  for (const MathUnit unit : kMathUnits) {
    if (has_math_unit(unit)) {
      EXPECT_GT(limits.peak(unit), 1e8) << math_unit_name(unit);
      // No core of any machine does a petaoperation per second.
      EXPECT_LT(limits.peak(unit), 2e15) << math_unit_name(unit);
    } else {
      EXPECT_EQ(limits.peak(unit), 0) << math_unit_name(unit);
    }
  }
}

TEST(MachineLimits, TextAndJsonLeaveOutWhatIsMissing) {
  MachineLimits limits;
  limits.threads = 2;
  limits.read = 29.84e9;
  limits.peaks[static_cast<std::size_t>(MathUnit::kFma)] = 461e9;
  limits.peaks[static_cast<std::size_t>(MathUnit::kAmxBf16)] = 5490e9;
  EXPECT_EQ(limits_text(limits), "read 29.8 GB/s; fma 461, amx_bf16 5490 Gop/s");
  const auto json = nlohmann::json::parse(limits_json(limits));
  EXPECT_EQ(json.size(), 4U);
  EXPECT_EQ(json["threads"], 2);
  EXPECT_EQ(json["read_gb_s"], 29.8);
  EXPECT_EQ(json["fma_gop_s"], 461);
  EXPECT_EQ(json["amx_bf16_gop_s"], 5490);
}

}  // namespace
}  // namespace sluice
