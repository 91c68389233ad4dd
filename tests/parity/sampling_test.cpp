// Sampling on a device against the sampler of the host: the same token from the same logits, but
// where the draw, or the end of the nucleus, falls within the rounding of exp.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/thread_pool.h"
#include "sampling/sampler.h"
#include "tests/parity/support.h"

namespace sluice::parity {
namespace {

struct DrawCase {
  std::vector<float> logits;
  SamplingParams params;
  std::int32_t choice = 0;
  std::int32_t output_index = 0;
};

RowSampling row_of(const DrawCase& c, std::int32_t slot) {
  ThreadPool pool(1);
  Sampler sampler({1, 1, 64, {}}, pool);
  sampler.assign(0, c.params, c.choice, {}, {});
  const DrawParams draw = sampler.draw_params({0, c.output_index, nullptr, nullptr}).value();
  return {draw.uniform, draw.temperature, draw.top_p, draw.min_p, draw.top_k, slot};
}

std::vector<TokenId> tokens_of_the_sampler(const std::vector<DrawCase>& cases) {
  ThreadPool pool(1);
  const auto vocab = static_cast<std::int32_t>(cases.front().logits.size());
  Sampler sampler({vocab, static_cast<std::int32_t>(cases.size()), 64, {}}, pool);
  std::vector<SampleRow> rows;
  for (const DrawCase& c : cases) {
    const auto slot = static_cast<std::int32_t>(rows.size());
    sampler.assign(slot, c.params, c.choice, {}, {});
    rows.push_back({slot, c.output_index, c.logits.data(), nullptr});
  }
  std::vector<SampledRow> sampled(rows.size());
  sampler.sample(rows, sampled);
  std::vector<TokenId> tokens;
  for (const SampledRow& row : sampled) tokens.push_back(row.token);
  return tokens;
}

// Whether the row's draw lies within `slack` of the token's share, for a nucleus of `top_p`.
bool is_drawn(const DrawCase& c, TokenId token, double top_p) {
  constexpr double kSlack = 1e-6;
  const std::vector<float>& logits = c.logits;
  const float best = *std::max_element(logits.begin(), logits.end());
  std::vector<double> weights;
  for (const float logit : logits) {
    const double weight = std::exp((logit - best) / c.params.temperature);
    weights.push_back(weight < c.params.min_p ? 0.0 : weight);
  }
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  const auto drop_from = [&](std::size_t rank) {
    for (; rank < order.size(); ++rank) weights[order[rank]] = 0.0;
  };
  if (c.params.top_k > 0) drop_from(static_cast<std::size_t>(c.params.top_k));
  if (c.params.top_p < 1.0F) {
    const double wanted = top_p * std::accumulate(weights.begin(), weights.end(), 0.0);
    double sum = 0.0;
    std::size_t kept = 0;
    while (kept < order.size() && sum < wanted) sum += weights[order[kept++]];
    drop_from(kept);
  }
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  const double above = std::accumulate(weights.begin(), weights.begin() + token, 0.0) / total;
  const double share = weights[static_cast<std::size_t>(token)] / total;
  const double uniform = row_of(c, 0).uniform;
  return share > 0.0 && uniform > above - kSlack && uniform < above + share + kSlack;
}

bool is_at_a_border(const DrawCase& c, TokenId token) {
  if (c.params.temperature < 1e-5F || token < 0) return false;
  const double top_p = c.params.top_p;
  return is_drawn(c, token, top_p * (1 - 1e-6)) || is_drawn(c, token, top_p * (1 + 1e-6));
}

std::vector<float> random_logits(SplitMix64& random, std::size_t vocab) {
  std::vector<float> logits(vocab);
  const auto kind = random.below(5);
  for (float& logit : logits) {
    switch (kind) {
      case 0: logit = static_cast<float>(random.uniform() * 12 - 6); break;
      case 1: logit = static_cast<float>(random.below(4)) - 1.5F; break;  // many are equal
      case 2: logit = random.below(2) == 0 ? 0.0F : -0.0F; break;
      case 3: logit = static_cast<float>((random.uniform() - 0.5) * 6e38); break;
      default: logit = -20.0F - static_cast<float>(random.uniform() * random.uniform() * 40);
    }
  }
  return logits;
}

DrawCase random_case(SplitMix64& random, std::size_t vocab) {
  DrawCase c;
  c.logits = random_logits(random, vocab);
  SamplingParams& p = c.params;
  constexpr float kTemperatures[] = {0.0F, 1e-6F, 1.1e-5F, 0.3F, 0.8F, 1.0F, 2.5F, 100.0F};
  p.temperature = kTemperatures[random.below(std::size(kTemperatures))];
  constexpr float kTopP[] = {1.0F, 1.0F, 0.999F, 0.9F, 0.5F, 0.01F, 1e-7F};
  p.top_p = kTopP[random.below(std::size(kTopP))];
  constexpr float kMinP[] = {0.0F, 0.0F, 0.0F, 1e-3F, 0.3F, 1.0F};
  p.min_p = kMinP[random.below(std::size(kMinP))];
  if (random.below(2) == 0) p.top_k = static_cast<std::int32_t>(1 + random.below(vocab + 2));
  p.seed = random();
  c.choice = static_cast<std::int32_t>(random.below(4));
  c.output_index = static_cast<std::int32_t>(random.below(1000));
  return c;
}

// Rows in device memory and where their tokens go; slots in reverse, so that a row's place and its
// slot are not the same.
struct RowsOnDevice {
  RowsOnDevice(DeviceMemory& memory, const std::vector<DrawCase>& cases)
      : count(static_cast<std::int32_t>(cases.size())) {
    std::vector<float> logits;
    std::vector<RowSampling> rows;
    for (const DrawCase& c : cases) {
      logits.insert(logits.end(), c.logits.begin(), c.logits.end());
      rows.push_back(row_of(c, count - 1 - static_cast<std::int32_t>(rows.size())));
    }
    const auto vocab = static_cast<std::int64_t>(cases.front().logits.size());
    params.logits = memory.put_matrix(logits, count, vocab, DType::kF32, vocab + 1);
    params.sampling = memory.put(rows);
    params.last_tokens = memory.put(std::vector<std::int32_t>(cases.size(), -7));
    params.tokens = memory.put(std::vector<std::int32_t>(cases.size(), -7));
    params.rows = {memory.put_count(count), count + 2};
  }

  std::vector<std::int32_t> tokens(DeviceMemory& memory) const {
    return read(memory, params.tokens);
  }
  // By row, not by slot.
  std::vector<std::int32_t> last_tokens(DeviceMemory& memory) const {
    auto found = read(memory, params.last_tokens);
    std::reverse(found.begin(), found.end());
    return found;
  }
  std::vector<std::int32_t> read(DeviceMemory& memory, const std::int32_t* from) const {
    const auto bytes = memory.download(from, static_cast<std::size_t>(count) * sizeof(*from));
    std::vector<std::int32_t> values(static_cast<std::size_t>(count));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

  std::int32_t count;
  SampleParams params;
};

class SamplingTest : public DeviceTest {
 protected:
  // How many rows got another token than the sampler's: each at a border, or the test fails.
  int run(const std::vector<DrawCase>& cases) {
    memory_->clear();
    const RowsOnDevice rows(*memory_, cases);
    ops().run(rows.params);
    EXPECT_TRUE(device_->synchronize());
    memory_->check_guards();
    const auto tokens = rows.tokens(*memory_);
    EXPECT_EQ(rows.last_tokens(*memory_), tokens);
    const auto expected = tokens_of_the_sampler(cases);
    int others = 0;
    for (std::size_t i = 0; i < cases.size(); ++i) {
      if (tokens[i] == expected[i]) continue;
      ++others;
      const SamplingParams& p = cases[i].params;
      EXPECT_TRUE(is_at_a_border(cases[i], tokens[i]))
          << "vocabulary " << cases[i].logits.size() << ", temperature " << p.temperature
          << ", top_p " << p.top_p << ", min_p " << p.min_p << ", top_k " << p.top_k << ", seed "
          << p.seed << ": token " << tokens[i] << ", expected " << expected[i];
    }
    return others;
  }
};

TEST_P(SamplingTest, RandomRowsGetTheTokensOfTheSampler) {
  SplitMix64 random(1);
  const int rows = GetParam().slow ? 24 : 200;
  int others = 0;
  for (const std::size_t vocab : {1, 2, 17, 100, 512, 513, 1999}) {
    std::vector<DrawCase> cases;
    for (int i = 0; i < rows; ++i) cases.push_back(random_case(random, vocab));
    others += run(cases);
  }
  EXPECT_LE(others, rows * 7 / 500);
}

TEST_P(SamplingTest, VocabulariesOfTheLargestModels) {
  SplitMix64 random(2);
  const std::size_t vocab = GetParam().name.starts_with("cpu") ? 20000 : 262144;
  std::vector<DrawCase> cases(5);
  for (DrawCase& c : cases) {
    c.params.seed = random();
    c.logits.resize(vocab, 1.0F);
    c.params.temperature = 0.7F;
  }
  for (std::size_t i = 0; i < 4; ++i) {
    for (float& logit : cases[i].logits) logit = static_cast<float>(random.uniform() * 30 - 15);
  }
  cases[1].params.top_p = 0.95F;
  cases[2].params.top_k = 50;
  cases[2].params.top_p = 0.9F;
  cases[3].params.temperature = 0.0F;
  cases[4].params.top_k = static_cast<std::int32_t>(vocab) / 2;  // of all that are equal
  cases[4].params.top_p = 0.5F;
  run(cases);
}

TEST_P(SamplingTest, ALaterLimitDoesNotBringBackWhatAnEarlierOneDropped) {
  // top_k drops the third of three equal tokens; half of the remaining weight is the first alone.
  std::vector<DrawCase> cases(64);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    cases[i].logits = {-1.0F, 2.0F, 2.0F, 2.0F};
    cases[i].params.top_k = 2;
    cases[i].params.top_p = i % 2 == 0 ? 0.4F : 1.0F - 0x1p-20F;
    cases[i].params.seed = i;
  }
  EXPECT_EQ(run(cases), 0);
}

TEST_P(SamplingTest, LogitsThatAreNotFiniteFailTheirRowAlone) {
  std::vector<DrawCase> cases(5);
  for (DrawCase& c : cases) c.logits = {0.0F, 3.0F, -1.0F};
  for (std::size_t i = 0; i < 3; ++i) cases[i].params.temperature = 0.0F;
  cases[0].logits[2] = std::numeric_limits<float>::quiet_NaN();
  cases[2].logits[0] = -std::numeric_limits<float>::infinity();
  cases[3].logits[1] = std::numeric_limits<float>::infinity();
  cases[4].params.top_k = 1;
  const RowsOnDevice rows(*memory_, cases);
  ops().run(rows.params);
  EXPECT_EQ(rows.tokens(*memory_), (std::vector<std::int32_t>{-1, 1, -1, -1, 1}));
  EXPECT_EQ(rows.last_tokens(*memory_), (std::vector<std::int32_t>{0, 1, 0, 0, 1}));
}

TEST_P(SamplingTest, ARowWithoutASlotIsLeftAlone) {
  std::vector<DrawCase> cases(3);
  for (DrawCase& c : cases) c.logits = {0.0F, 3.0F, -1.0F};
  for (DrawCase& c : cases) c.params.temperature = 0.0F;
  const RowsOnDevice rows(*memory_, cases);
  const RowSampling none;
  memory_->upload(const_cast<RowSampling*>(rows.params.sampling) + 1,
                  std::as_bytes(std::span(&none, 1)));
  ops().run(rows.params);
  EXPECT_EQ(rows.tokens(*memory_), (std::vector<std::int32_t>{1, -7, 1}));
  EXPECT_EQ(rows.last_tokens(*memory_), (std::vector<std::int32_t>{1, -7, 1}));
}

TEST_P(SamplingTest, AGraphReadsTheParametersOfItsReplay) {
  std::vector<DrawCase> cases(2);
  for (DrawCase& c : cases) c.logits = {0.0F, 0.5F, 0.25F};
  const RowsOnDevice rows(*memory_, cases);
  ASSERT_TRUE(device_->begin_capture());
  ops().run(rows.params);
  auto graph = device_->end_capture();
  ASSERT_TRUE(graph) << graph.error().message;
  auto* place = const_cast<RowSampling*>(rows.params.sampling);
  const std::vector<RowSampling> first = {{0.0, 1.0F, 1.0F, 0.0F, 0, 1},
                                          {0.999, 1.0F, 1.0F, 0.0F, 0, 0}};
  memory_->upload(place, std::as_bytes(std::span(first)));
  ASSERT_TRUE(device_->replay(**graph));
  EXPECT_EQ(rows.tokens(*memory_), (std::vector<std::int32_t>{0, 2}));
  const std::vector<RowSampling> second = {{0.0, 1.0F, 1.0F, 0.0F, 1, 1},
                                           {0.999, 1.0F, 1.0F, 0.0F, 2, 0}};
  memory_->upload(place, std::as_bytes(std::span(second)));
  ASSERT_TRUE(device_->replay(**graph));
  EXPECT_EQ(rows.tokens(*memory_), (std::vector<std::int32_t>{1, 2}));
}

INSTANTIATE_TEST_SUITE_P(Devices, SamplingTest, testing::ValuesIn(available_devices()), case_name);

}  // namespace
}  // namespace sluice::parity
