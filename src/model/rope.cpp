// This code rounds to float32 where transformers does. It computes powers and cosines in double and
// then rounds, which gives the float nearest to the true value, at most one unit in the last place
// from the result of any float32 library.
#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"

namespace sluice {
namespace {

// base^(2i / dim): exponent and power each rounded to float32.
float position_frequency(const RopeConfig& rope, std::int32_t i) {
  const float exponent = static_cast<float>(2 * i) / static_cast<float>(rope.rotary_dim);
  const auto base = static_cast<float>(rope.theta);
  return static_cast<float>(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
}

// Long wavelengths are divided by the factor, short ones are kept, and those between are
// interpolated.
float llama3_frequency(const RopeConfig& rope, float frequency) {
  const auto factor = static_cast<float>(rope.factor);
  const auto original = static_cast<double>(rope.original_max_positions);
  const auto low_wavelength = static_cast<float>(original / rope.low_freq_factor);
  const auto high_wavelength = static_cast<float>(original / rope.high_freq_factor);
  // transformers' scalar / tensor is a reciprocal and a product, rounded twice.
  const float wavelength = (1.0F / frequency) * static_cast<float>(2 * std::numbers::pi);
  if (wavelength > low_wavelength) return frequency / factor;
  if (wavelength < high_wavelength) return frequency;
  const float rotations = (1.0F / wavelength) * static_cast<float>(original);
  const float smooth = (rotations - static_cast<float>(rope.low_freq_factor)) /
                       static_cast<float>(rope.high_freq_factor - rope.low_freq_factor);
  const float interpolated = (1.0F - smooth) * frequency / factor;
  return interpolated + smooth * frequency;
}

// Between `low` and `high` dimensions the interpolated and the original frequencies are blended.
struct YarnRange {
  double low = 0;
  double high = 0;
};

YarnRange yarn_range(const RopeConfig& rope) {
  const auto dimension_of = [&](double rotations) {
    return rope.rotary_dim *
           std::log(rope.original_max_positions / (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(rope.theta));
  };
  YarnRange range{dimension_of(rope.beta_fast), dimension_of(rope.beta_slow)};
  if (rope.truncate) range = {std::floor(range.low), std::ceil(range.high)};
  range = {std::max(range.low, 0.0), std::min(range.high, rope.rotary_dim - 1.0)};
  if (range.low == range.high) range.high += 0.001;  // as transformers, against dividing by zero
  return range;
}

float yarn_frequency(const RopeConfig& rope, const YarnRange& range, std::int32_t i) {
  const float position = position_frequency(rope, i);
  const float extrapolated = 1.0F / position;
  const float interpolated = 1.0F / (static_cast<float>(rope.factor) * position);
  const float ramp = std::clamp((static_cast<float>(i) - static_cast<float>(range.low)) /
                                    static_cast<float>(range.high - range.low),
                                0.0F, 1.0F);
  const float keep = 1.0F - ramp;
  return interpolated * (1.0F - keep) + extrapolated * keep;
}

}  // namespace

std::vector<float> rope_inverse_frequencies(const RopeConfig& rope) {
  CHECK(rope.rotary_dim > 0 && rope.rotary_dim % 2 == 0);
  const YarnRange range = rope.type == RopeType::kYarn ? yarn_range(rope) : YarnRange{};
  std::vector<float> result;
  result.reserve(static_cast<std::size_t>(rope.rotary_dim / 2));
  for (std::int32_t i = 0; i < rope.rotary_dim / 2; ++i) {
    const float frequency = 1.0F / position_frequency(rope, i);
    switch (rope.type) {
      case RopeType::kDefault: result.push_back(frequency); break;
      case RopeType::kLinear: result.push_back(frequency / static_cast<float>(rope.factor)); break;
      case RopeType::kLlama3: result.push_back(llama3_frequency(rope, frequency)); break;
      case RopeType::kYarn: result.push_back(yarn_frequency(rope, range, i)); break;
    }
  }
  return result;
}

void fill_rope_table(const RopeConfig& rope, std::int32_t first_position,
                     std::int32_t num_positions, std::span<float> table) {
  const std::vector<float> frequencies = rope_inverse_frequencies(rope);
  const std::size_t half = frequencies.size();
  CHECK(first_position >= 0 && num_positions >= 0);
  CHECK(table.size() == static_cast<std::size_t>(num_positions) * 2 * half);
  const auto scaling = static_cast<float>(rope.attention_scaling);
  for (std::int32_t p = 0; p < num_positions; ++p) {
    float* cosines = table.data() + static_cast<std::size_t>(p) * 2 * half;
    float* sines = cosines + half;
    const auto position = static_cast<float>(first_position + p);
    for (std::size_t i = 0; i < half; ++i) {
      const auto angle = static_cast<double>(position * frequencies[i]);
      cosines[i] = static_cast<float>(std::cos(angle)) * scaling;
      sines[i] = static_cast<float>(std::sin(angle)) * scaling;
    }
  }
}

}  // namespace sluice
