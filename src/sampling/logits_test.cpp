#include "sampling/logits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/rng.h"

namespace sluice {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> random_logits(std::size_t size, std::uint64_t seed, int distinct) {
  SplitMix64 random(seed);
  std::vector<float> logits(size);
  for (float& x : logits) {
    // Few distinct values make many ties.
    x = distinct > 0 ? static_cast<float>(random.below(static_cast<std::uint64_t>(distinct))) - 3
                     : static_cast<float>(random.uniform() * 16 - 8);
  }
  return logits;
}

std::vector<ScoredToken> sorted_tokens(const std::vector<float>& logits) {
  std::vector<ScoredToken> all;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    all.push_back({logits[i], static_cast<TokenId>(i)});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const ScoredToken& a, const ScoredToken& b) { return a.score > b.score; });
  return all;
}

TEST(LogitsTest, SelectBestEqualsStableSort) {
  std::vector<ScoredToken> out;
  for (const int distinct : {0, 1, 5, 300}) {
    const std::vector<float> logits = random_logits(2000, 7, distinct);
    const std::vector<ScoredToken> expected = sorted_tokens(logits);
    for (const int count : {0, 1, 2, 20, 256, 257, 1000, 1999, 2000, 5000}) {
      select_best(logits, count, out);
      ASSERT_EQ(out.size(), static_cast<std::size_t>(std::min(count, 2000)));
      for (std::size_t i = 0; i < out.size(); ++i) {
        EXPECT_EQ(out[i].id, expected[i].id) << distinct << " " << count << " " << i;
      }
    }
  }
}

TEST(LogitsTest, NucleusEndEqualsTheFullSort) {
  std::vector<ScoredToken> scratch;
  for (const int distinct : {0, 1, 4, 40}) {
    const std::vector<float> logits = random_logits(997, 11, distinct);
    const std::vector<ScoredToken> sorted = sorted_tokens(logits);
    for (const float temperature : {0.1F, 1.0F, 10.0F}) {
      std::vector<float> weights;
      double total = 0;
      for (const float x : logits) {
        weights.push_back(std::exp((x - sorted[0].score) / temperature));
        total += static_cast<double>(weights.back());
      }
      for (const float top_p : {1e-9F, 0.1F, 0.5F, 0.9F, 0.999F, 0.9999999F}) {
        double mass = 0;
        std::size_t end = 0;
        while (end < sorted.size() && mass < static_cast<double>(top_p) * total) {
          mass += static_cast<double>(weights[static_cast<std::size_t>(sorted[end++].id)]);
        }
        const ScoredToken last = nucleus_end(logits, weights, top_p, scratch);
        EXPECT_EQ(last.id, sorted[end - 1].id) << distinct << " " << temperature << " " << top_p;
      }
    }
  }
}

TEST(LogitsTest, NucleusEndSkipsTokensWithoutWeight) {
  std::vector<ScoredToken> scratch;
  const std::vector<float> logits = {-kInfinity, 2.0F, -kInfinity, 1.0F};
  const std::vector<float> weights = {0.0F, 1.0F, 0.0F, 0.36F};
  EXPECT_EQ(nucleus_end(logits, weights, 0.5F, scratch).id, 1);
  EXPECT_EQ(nucleus_end(logits, weights, 0.99F, scratch).id, 3);
}

TEST(LogitsTest, DropBehindKeepsTiesOfLowerId) {
  std::vector<float> logits = {1, 2, 2, 2, 0};
  std::vector<float> weights = {0.1F, 0.3F, 0.3F, 0.3F, 0.05F};
  drop_below({2, 2}, logits, weights);
  EXPECT_EQ(weights, (std::vector<float>{0, 0.3F, 0.3F, 0, 0}));
  EXPECT_EQ(logits, (std::vector<float>{-kInfinity, 2, 2, -kInfinity, -kInfinity}));
}

TEST(LogitsTest, ScanFindsTheLowestIdOfTheBestAndNonFiniteValues) {
  EXPECT_EQ(scan_logits(std::vector<float>{1, 3, 3, 2}).best.id, 1);
  EXPECT_TRUE(scan_logits(std::vector<float>{1, 3e38F, -3e38F, 1e-42F}).finite);
  EXPECT_FALSE(scan_logits(std::vector<float>{1, std::nanf(""), 3}).finite);
  EXPECT_FALSE(scan_logits(std::vector<float>{1, kInfinity}).finite);
  EXPECT_FALSE(scan_logits(std::vector<float>{1, -kInfinity}).finite);
}

TEST(LogitsTest, LogSumExpDoesNotOverflowAndAgreesWithDouble) {
  EXPECT_NEAR(log_sum_exp(std::vector<float>{3e38F, 3e38F}, 3e38F), 3e38, 1e32);
  const std::vector<float> logits = random_logits(50000, 3, 0);
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x));
  EXPECT_NEAR(log_sum_exp(logits, scan_logits(logits).best.score), std::log(sum), 1e-7);
}

TEST(LogitsTest, DrawInvertsTheDistributionInTheOrderOfIds) {
  const std::vector<float> weights = {0, 0.25F, 0, 0.5F, 0.25F, 0};
  EXPECT_EQ(draw(weights, 0.0), 1);
  EXPECT_EQ(draw(weights, 0.2499), 1);
  EXPECT_EQ(draw(weights, 0.25), 3);
  EXPECT_EQ(draw(weights, 0.7499), 3);
  EXPECT_EQ(draw(weights, 0.75), 4);
  EXPECT_EQ(draw(weights, 1.0 - 0x1p-53), 4);
}

}  // namespace
}  // namespace sluice
