#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "profile/machine_profile.h"
#include "profile/test_profiles.h"

namespace sluice {
namespace {

using test::test_law;
using test::test_profile;

TEST(FitProfileTest, RecoversALawFromExactTimes) {
  MachineProfile profile = test_profile(0);
  ASSERT_TRUE(fit_profile(profile));
  EXPECT_EQ(profile.predictor.tile, 16);
  EXPECT_LT(profile.error.largest, 0.01);
  // Steps that were not measured.
  for (const StepShape& shape :
       {StepShape{5, 700, 40, 900}, StepShape{32, 4096, 256, 4096}, StepShape{12, 3000, 0, 0}}) {
    const double truth = test_law().time_ns(shape.features());
    EXPECT_NEAR(profile.predictor.time_ns(shape.features()) / truth, 1, 0.02);
  }
}

TEST(FitProfileTest, NoiseAveragesOut) {
  MachineProfile profile = test_profile(0.1);
  ASSERT_TRUE(fit_profile(profile));
  double sum = 0;
  for (const StepShape& shape : test::test_shapes()) {
    const double truth = test_law().time_ns(shape.features());
    sum += std::abs(profile.predictor.time_ns(shape.features()) / truth - 1);
  }
  const double mean = sum / static_cast<double>(test::test_shapes().size());
  std::printf("noise 10 %%: mean error against the law %.1f %%, held out median %.1f %%\n",
              100 * mean, 100 * profile.error.median);
  EXPECT_LT(mean, 0.04);
  EXPECT_GT(profile.error.points, 10);
  EXPECT_GT(profile.error.largest, 0.03);  // the held-out points are noisy themselves
  EXPECT_LE(profile.error.median, profile.error.p90);
  EXPECT_LE(profile.error.p90, profile.error.largest);
}

TEST(FitProfileTest, CoefficientsAreNeverNegative) {
  MachineProfile profile = test_profile(0.5);
  ASSERT_TRUE(fit_profile(profile));
  const StepTimePredictor& p = profile.predictor;
  for (const double value : {p.tile_ns, p.chunk_token_ns, p.row_ns, p.logits_ns, p.logit_row_ns,
                             p.decode_context_ns, p.chunk_work_ns, p.chunk_context_ns}) {
    EXPECT_GE(value, 0);
  }
  for (int i = 1; i < p.num_knots; ++i) {
    EXPECT_GE(p.knots[static_cast<std::size_t>(i)].ns, p.knots[static_cast<std::size_t>(i - 1)].ns);
  }
}

TEST(FitProfileTest, ATileIsTheLeastThatJumps) {
  const auto points = [](auto law) {
    std::vector<ProfilePoint> result;
    for (const int tile : {8, 16, 32, 64, 128, 256}) {
      for (const int multiple : {1, 3}) {
        for (const int tokens : {multiple * tile, multiple * tile + 1, (multiple + 1) * tile}) {
          result.push_back({{0, 0, tokens, 0}, law(tokens), 1, 5, false});
        }
      }
    }
    return result;
  };
  EXPECT_EQ(find_tile(points([](int m) { return 1000.0 + 10 * m; })), 1);
  for (const int tile : {8, 16, 64, 256}) {
    const auto law = [tile](int m) { return 1000.0 + 400.0 * ((m + tile - 1) / tile) + m; };
    EXPECT_EQ(find_tile(points(law)), tile);
  }
  // A bend is no tile, and neither is one odd point.
  EXPECT_EQ(find_tile(points([](int m) { return 1000.0 + (m == 65 ? 900 : 0) + 10 * m; })), 1);
  EXPECT_EQ(find_tile(points([](int m) { return 1000.0 + (m == 193 ? 900 : 0) + 10 * m; })), 1);
  EXPECT_EQ(find_tile({}), 1);
  // Reading the weights takes longer than the first two tiles.
  const auto hidden = [](int m) { return std::max(2000.0, 700.0 * ((m + 127) / 128)) + m; };
  EXPECT_EQ(find_tile(points(hidden)), 128);
  // Where the jump of the longer step may be noise, that of the shorter one decides.
  std::vector<ProfilePoint> noisy =
      points([](int m) { return 1000.0 + 400.0 * ((m + 63) / 64) + m; });
  for (ProfilePoint& point : noisy) point.spread_ns = point.shape.chunk_tokens > 128 ? 400 : 20;
  EXPECT_EQ(find_tile(noisy), 64);
  for (ProfilePoint& point : noisy) point.spread_ns = 400;
  EXPECT_EQ(find_tile(noisy), 1);
}

TEST(FitProfileTest, TooFewPointsAreRefused) {
  MachineProfile profile = test_profile(0);
  profile.points.resize(3);  // prompts only
  const auto status = fit_profile(profile);
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("more time"), std::string::npos);
}

TEST(FitProfileTest, WithNothingHeldOutTheErrorIsOfTheFit) {
  MachineProfile profile = test_profile(0.05);
  for (ProfilePoint& point : profile.points) point.held_out = false;
  ASSERT_TRUE(fit_profile(profile));
  EXPECT_EQ(profile.error.points, static_cast<std::int32_t>(profile.points.size()));
}

}  // namespace
}  // namespace sluice
