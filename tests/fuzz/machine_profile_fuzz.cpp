// Machine profiles. An accepted profile predicts times that are finite, never negative, and never
// fall when a step grows. Written to a file and read again, it is the same.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "profile/machine_profile.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto profile = sluice::parse_profile(
      std::string_view(reinterpret_cast<const char*>(data), size), "profile.json");
  if (!profile) {
    CHECK(!profile.error().message.empty());
    return 0;
  }
  CHECK(!profile->points.empty());
  double before = 0;
  sluice::StepFeatures step;
  for (const std::int32_t count : {1, 7, 64, 1000, 20000}) {
    step.add_decode(count, profile->predictor.window);
    const double ns = profile->predictor.with_chunk_ns(step, count, count, true);
    CHECK(std::isfinite(ns) && ns >= before);
    before = ns;
  }
  const std::string text = sluice::profile_to_json(*profile);
  const auto again = sluice::parse_profile(text, "profile.json");
  CHECK(again.has_value() && sluice::profile_to_json(*again) == text);
  return 0;
}
