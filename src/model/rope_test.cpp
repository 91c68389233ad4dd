#include "model/rope.h"
#include "base/file.h"
#include "base/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

namespace sluice {
namespace {

// Distance in units in the last place; both finite and of one sign.
std::int64_t ulps(float a, float b) {
  std::int32_t x = 0;
  std::int32_t y = 0;
  std::memcpy(&x, &a, sizeof(x));
  std::memcpy(&y, &b, sizeof(y));
  return std::abs(std::int64_t{x} - std::int64_t{y});
}

nlohmann::json golden_ropes() {
  return parse_json(read_file("tests/golden/rope/ropes.json", 1 << 26).value());
}

RopeConfig config_of(const nlohmann::json& golden) {
  auto config = parse_model_config(dump_json(golden.at("config")));
  EXPECT_TRUE(config) << config.error().message;
  return config->ropes.at(0);
}

TEST(Rope, InverseFrequenciesAreThoseOfTransformers) {
  const auto goldens = golden_ropes();
  ASSERT_GE(goldens.size(), 10U);
  for (const auto& golden : goldens) {
    const RopeConfig rope = config_of(golden);
    EXPECT_EQ(static_cast<float>(rope.attention_scaling),
              static_cast<float>(golden.at("attention_scaling").get<double>()))
        << golden.at("name");
    const auto expected = golden.at("inverse_frequencies").get<std::vector<float>>();
    const std::vector<float> actual = rope_inverse_frequencies(rope);
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t i = 0; i < actual.size(); ++i) {
      // A float32 power may be one unit off the true value; divisions and blends add another.
      EXPECT_LE(ulps(actual[i], expected[i]), 2) << golden.at("name") << " " << i;
    }
  }
}

TEST(Rope, TablesAreThoseOfTransformers) {
  for (const auto& golden : golden_ropes()) {
    const RopeConfig rope = config_of(golden);
    const auto frequencies = golden.at("inverse_frequencies").get<std::vector<float>>();
    const auto positions = golden.at("positions").get<std::vector<std::int32_t>>();
    std::vector<float> row(static_cast<std::size_t>(rope.rotary_dim));
    for (std::size_t p = 0; p < positions.size(); ++p) {
      fill_rope_table(rope, positions[p], 1, row);
      const auto expected = golden.at("table").at(p).get<std::vector<float>>();
      ASSERT_EQ(expected.size(), row.size());
      for (std::size_t i = 0; i < row.size(); ++i) {
        // Two units of a frequency move the angle by 2^-22 of itself, wherever it is computed.
        const double angle = positions[p] * double{frequencies[i % frequencies.size()]};
        const double tolerance = (3e-7 + angle * 0x1.0p-22) * rope.attention_scaling;
        EXPECT_NEAR(row[i], expected[i], tolerance) << golden.at("name") << " " << positions[p];
      }
    }
  }
}

TEST(Rope, ALongTableIsItsRows) {
  RopeConfig rope;
  rope.rotary_dim = 20;
  std::vector<float> table(100 * 20);
  fill_rope_table(rope, 0, 100, table);
  std::vector<float> row(20);
  fill_rope_table(rope, 73, 1, row);
  EXPECT_TRUE(std::equal(row.begin(), row.end(), table.begin() + 73 * 20));
  for (std::size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(table[i], 1.0F);
    EXPECT_EQ(table[10 + i], 0.0F);
  }
}

TEST(Rope, YarnWithEqualBoundsDividesByNothing) {
  RopeConfig rope;
  rope.type = RopeType::kYarn;
  rope.rotary_dim = 8;
  rope.factor = 4;
  rope.original_max_positions = 1;
  for (const float frequency : rope_inverse_frequencies(rope)) {
    EXPECT_TRUE(std::isfinite(frequency));
    EXPECT_GT(frequency, 0.0F);
  }
}

}  // namespace
}  // namespace sluice
