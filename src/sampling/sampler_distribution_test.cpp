// The sampler's draws follow the distribution that the parameters describe: chi-square tests over
// many output indices, with fixed seeds, so that the outcome never changes.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "sampling/sampler.h"

namespace sluice {
namespace {

constexpr int kDraws = 40000;

// Pearson's statistic of kDraws draws against `expected` probabilities; tokens of probability 0
// must never come.
double chi_square(const SamplingParams& params, const std::vector<float>& logits,
                  const std::vector<double>& expected) {
  ThreadPool pool(1);
  Sampler sampler({static_cast<std::int32_t>(logits.size()), 1, 64, {}}, pool);
  sampler.assign(0, params, 0, {}, {});
  std::vector<int> counts(logits.size());
  for (int i = 0; i < kDraws; ++i) {
    const SampleRow row{0, i, logits.data(), nullptr};
    SampledRow out;
    sampler.sample({&row, 1}, {&out, 1});
    ++counts[static_cast<std::size_t>(out.token)];
  }
  double statistic = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (expected[i] == 0) {
      EXPECT_EQ(counts[i], 0) << "token " << i << " was excluded";
      continue;
    }
    const double difference = counts[i] - kDraws * expected[i];
    statistic += difference * difference / (kDraws * expected[i]);
  }
  return statistic;
}

std::vector<double> normalized(std::vector<double> weights) {
  double sum = 0;
  for (const double w : weights) sum += w;
  for (double& w : weights) w /= sum;
  return weights;
}

// Log of the weights 1 to 8.
std::vector<float> ramp_logits() {
  std::vector<float> logits;
  for (int i = 1; i <= 8; ++i) logits.push_back(static_cast<float>(std::log(i)));
  return logits;
}

// 99.9 % quantiles of chi-square with 7, 3 and 2 degrees of freedom.
constexpr double kSeven = 24.32;
constexpr double kThree = 16.27;
constexpr double kTwo = 13.82;

TEST(SamplerDistributionTest, TemperatureOneDrawsTheSoftmax) {
  SamplingParams params;
  for (params.seed = 1; params.seed <= 5; ++params.seed) {
    EXPECT_LT(chi_square(params, ramp_logits(), normalized({1, 2, 3, 4, 5, 6, 7, 8})), kSeven);
  }
}

TEST(SamplerDistributionTest, TheTestNoticesAWrongDistribution) {
  SamplingParams params;
  EXPECT_GT(chi_square(params, ramp_logits(), normalized({1, 2, 3, 4, 5, 6, 7, 9})), kSeven);
}

TEST(SamplerDistributionTest, TemperatureScalesLogits) {
  SamplingParams params;
  params.temperature = 0.5F;  // squares the weights
  EXPECT_LT(chi_square(params, ramp_logits(), normalized({1, 4, 9, 16, 25, 36, 49, 64})), kSeven);
}

TEST(SamplerDistributionTest, TopKKeepsTheBest) {
  SamplingParams params;
  params.top_k = 3;
  EXPECT_LT(chi_square(params, ramp_logits(), normalized({0, 0, 0, 0, 0, 6, 7, 8})), kTwo);
}

TEST(SamplerDistributionTest, TopPKeepsTheTokenThatCrosses) {
  SamplingParams params;
  params.top_p = 0.6F;  // of 36: 8 + 7 = 15, + 6 = 21, 21.6 is wanted, so + 5
  EXPECT_LT(chi_square(params, ramp_logits(), normalized({0, 0, 0, 0, 5, 6, 7, 8})), kThree);
}

TEST(SamplerDistributionTest, MinPIsRelativeToTheBest) {
  SamplingParams params;
  params.min_p = 0.7F;  // of 8: 5.6
  EXPECT_LT(chi_square(params, ramp_logits(), normalized({0, 0, 0, 0, 0, 6, 7, 8})), kTwo);
}

TEST(SamplerDistributionTest, TopPComesAfterTopK) {
  SamplingParams params;
  params.top_k = 4;     // 5 6 7 8, sum 26
  params.top_p = 0.7F;  // 18.2: 8 + 7 = 15, + 6 = 21
  EXPECT_LT(chi_square(params, ramp_logits(), normalized({0, 0, 0, 0, 0, 6, 7, 8})), kTwo);
}

TEST(SamplerDistributionTest, ChoicesAreIndependentStreams) {
  const std::vector<float> logits(16, 0.0F);
  ThreadPool pool(1);
  Sampler sampler({16, 2, 64, {}}, pool);
  sampler.assign(0, {}, 0, {}, {});
  sampler.assign(1, {}, 1, {}, {});
  int equal = 0;
  for (int i = 0; i < kDraws; ++i) {
    const SampleRow rows[] = {{0, i, logits.data(), nullptr}, {1, i, logits.data(), nullptr}};
    SampledRow out[2];
    sampler.sample(rows, out);
    equal += out[0].token == out[1].token;
  }
  // Binomial(40000, 1/16): mean 2500, standard deviation 48.4.
  EXPECT_NEAR(equal, 2500, 4 * 48.4);
}

}  // namespace
}  // namespace sluice
