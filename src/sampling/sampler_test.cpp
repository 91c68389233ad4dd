// Every parameter of the sampler against a slow oracle that sorts everything in double, alone and
// combined, and the promises of sampler.h: determinism, ties, independence of rows and threads.
#include "sampling/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "base/rng.h"
#include "grammar/regex_grammar.h"
#include "grammar/token_grammar.h"

namespace sluice {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

struct Case {
  SamplingParams params;
  std::vector<TokenId> prompt;
  std::vector<TokenId> output;
  std::vector<float> logits;
  std::vector<std::uint32_t> allowed;  // empty: all
  std::int32_t choice = 0;
};

SamplerOptions options_for(std::int32_t vocab) { return {vocab, 8, 4096, {0, 1}}; }

SampledRow run_sampler(const Case& c) {
  ThreadPool pool(1);
  Sampler sampler(options_for(static_cast<std::int32_t>(c.logits.size())), pool);
  sampler.assign(3, c.params, c.choice, c.prompt, c.output);
  const SampleRow row{3, static_cast<std::int32_t>(c.output.size()), c.logits.data(),
                      c.allowed.empty() ? nullptr : c.allowed.data()};
  SampledRow out;
  sampler.sample({&row, 1}, {&out, 1});
  return out;
}

// Whether the request itself rules the token out.
bool oracle_forbids(const Case& c, TokenId id) {
  const auto& allowed = c.params.allowed_token_ids;
  if (!allowed.empty() && std::find(allowed.begin(), allowed.end(), id) == allowed.end()) {
    return true;
  }
  std::vector<TokenId> next = c.output;
  next.push_back(id);
  for (const std::vector<TokenId>& word : c.params.bad_words) {
    if (word.size() <= next.size() && std::equal(word.rbegin(), word.rend(), next.rbegin())) {
      return true;
    }
  }
  return false;
}

// Steps 2 to 4 of the order in sampler.h, token by token.
std::vector<double> oracle_edit(const Case& c) {
  std::vector<double> x(c.logits.begin(), c.logits.end());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (!c.allowed.empty() && ((c.allowed[i / 32] >> (i % 32)) & 1U) == 0) x[i] = kMinusInfinity;
    if (oracle_forbids(c, id)) x[i] = kMinusInfinity;
    const auto& stops = c.params.stop_token_ids;
    const bool ends = id <= 1 || std::find(stops.begin(), stops.end(), id) != stops.end();
    if (ends && static_cast<int>(c.output.size()) < c.params.min_tokens) x[i] = kMinusInfinity;
    for (const auto& [token, bias] : c.params.logit_bias) {
      if (token == id) x[i] += static_cast<double>(bias);
    }
    const auto count = std::count(c.output.begin(), c.output.end(), id);
    if (count > 0 || std::find(c.prompt.begin(), c.prompt.end(), id) != c.prompt.end()) {
      const auto r = static_cast<double>(c.params.repetition_penalty);
      x[i] = x[i] > 0 ? x[i] / r : x[i] * r;
    }
    x[i] -= static_cast<double>(c.params.frequency_penalty) * static_cast<double>(count);
    if (count > 0) x[i] -= static_cast<double>(c.params.presence_penalty);
  }
  return x;
}

// Steps 5 to 7.
TokenId oracle_choose(const Case& c) {
  const std::vector<double> x = oracle_edit(c);
  std::vector<std::size_t> order(x.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return x[a] > x[b]; });
  if (c.params.temperature == 0) return static_cast<TokenId>(order[0]);
  std::vector<double> weight(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    weight[i] = std::exp((x[i] - x[order[0]]) / static_cast<double>(c.params.temperature));
    if (weight[i] < static_cast<double>(c.params.min_p)) weight[i] = 0;
  }
  for (std::size_t rank = 0; rank < x.size(); ++rank) {
    if (c.params.top_k > 0 && rank >= static_cast<std::size_t>(c.params.top_k)) {
      weight[order[rank]] = 0;
    }
  }
  const double total = std::accumulate(weight.begin(), weight.end(), 0.0);
  double before = 0;
  for (const std::size_t i : order) {
    const double mass = weight[i];
    if (c.params.top_p < 1 && before >= static_cast<double>(c.params.top_p) * total) weight[i] = 0;
    before += mass;
  }
  const double kept = std::accumulate(weight.begin(), weight.end(), 0.0);
  const double target =
      kept * sampling_uniform(c.params.seed, static_cast<std::uint32_t>(c.choice), c.output.size());
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    sum += weight[i];
    if (weight[i] > 0 && sum > target) return static_cast<TokenId>(i);
  }
  return -1;
}

Case random_case(SplitMix64& random, std::size_t vocab) {
  Case c;
  c.logits.resize(vocab);
  for (float& x : c.logits) x = static_cast<float>(random.uniform() * 12 - 6);
  for (int i = 0; i < 30; ++i) c.prompt.push_back(static_cast<TokenId>(random.below(vocab)));
  for (int i = 0; i < 20; ++i) c.output.push_back(static_cast<TokenId>(random.below(vocab)));
  c.params.max_tokens = 4000;
  c.params.seed = random();
  c.choice = static_cast<std::int32_t>(random.below(4));
  return c;
}

void randomize(Case& c, SplitMix64& random) {
  SamplingParams& p = c.params;
  const auto coin = [&] { return random.below(2) == 0; };
  if (random.below(5) == 0) p.temperature = 0;
  if (coin()) p.temperature *= static_cast<float>(0.2 + 2 * random.uniform());
  if (coin()) p.top_k = static_cast<std::int32_t>(1 + random.below(40));
  if (coin()) p.top_p = static_cast<float>(0.05 + 0.9 * random.uniform());
  if (coin()) p.min_p = static_cast<float>(0.3 * random.uniform());
  if (coin()) p.repetition_penalty = static_cast<float>(0.5 + random.uniform());
  if (coin()) p.presence_penalty = static_cast<float>(4 * random.uniform() - 2);
  if (coin()) p.frequency_penalty = static_cast<float>(4 * random.uniform() - 2);
  if (coin()) p.min_tokens = static_cast<std::int32_t>(random.below(40));
  if (coin()) p.stop_token_ids = {2, 5};
  if (coin()) p.logit_bias = {{3, 5.0F}, {4, -100.0F}, {7, 1.5F}};
  if (random.below(4) == 0) {
    for (TokenId id = 2; id < static_cast<TokenId>(c.logits.size()); id += 3) {
      p.allowed_token_ids.push_back(id);
    }
  }
  if (random.below(4) == 0) {
    const TokenId last = c.output.back();
    p.bad_words = {
        {8}, {last, 9}, {c.output[c.output.size() - 2], last, 11}, {last > 0 ? last - 1 : 1, 14}};
  }
  if (coin()) {
    c.allowed.resize((c.logits.size() + 31) / 32);
    for (auto& word : c.allowed) word = static_cast<std::uint32_t>(random());
  }
}

TEST(SamplerTest, EqualsTheOracleForRandomParameters) {
  SplitMix64 random(20);
  int sampled = 0;
  for (int i = 0; i < 3000; ++i) {
    Case c = random_case(random, i % 3 == 0 ? 1000 : 40);
    randomize(c, random);
    ASSERT_TRUE(validate(c.params, static_cast<std::int32_t>(c.logits.size())));
    const SampledRow out = run_sampler(c);
    ASSERT_FALSE(out.failed);
    EXPECT_EQ(out.token, oracle_choose(c)) << "case " << i;
    sampled += out.token != run_sampler([&] {
                              Case greedy = c;
                              greedy.params.temperature = 0;
                              return greedy;
                            }())
                                .token;
  }
  EXPECT_GT(sampled, 500);  // the draw mattered
}

TEST(SamplerTest, GreedyTakesTheLowestIdOfEqualLogits) {
  Case c;
  c.params.temperature = 0;
  c.logits = {0, 5, 1, 5, 5};
  EXPECT_EQ(run_sampler(c).token, 1);
}

TEST(SamplerTest, TopKKeepsExactlyKOfTiedTokens) {
  Case c;
  c.params.top_k = 3;
  c.logits.assign(64, 1.0F);
  std::set<TokenId> seen;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    c.params.seed = seed;
    seen.insert(run_sampler(c).token);
  }
  EXPECT_EQ(seen, (std::set<TokenId>{0, 1, 2}));
}

TEST(SamplerTest, TopKOfOneIsGreedyAtAnyTemperature) {
  SplitMix64 random(1);
  Case c = random_case(random, 500);
  c.params.temperature = 100;
  c.params.top_k = 1;
  Case greedy = c;
  greedy.params.temperature = 0;
  EXPECT_EQ(run_sampler(c).token, run_sampler(greedy).token);
}

TEST(SamplerTest, LogprobsAreOfTheModelsOwnLogits) {
  SplitMix64 random(2);
  Case c = random_case(random, 300);
  c.params.temperature = 0;
  c.params.logprobs = 5;
  c.params.logit_bias = {{17, 100.0F}};  // chosen, though unlikely to the model
  c.params.frequency_penalty = 1.0F;
  const SampledRow out = run_sampler(c);
  ASSERT_EQ(out.num_logprobs, 6);
  EXPECT_EQ(out.token, 17);
  double sum = 0;
  for (const float x : c.logits) sum += std::exp(static_cast<double>(x));
  for (int i = 0; i < out.num_logprobs; ++i) {
    const ScoredToken& t = out.logprobs[i];
    const auto logit = static_cast<double>(c.logits[static_cast<std::size_t>(t.id)]);
    EXPECT_NEAR(static_cast<double>(t.score), logit - std::log(sum), 1e-6);
    if (i > 1) {
      EXPECT_GE(out.logprobs[i - 1].score, t.score);
    }
  }
  EXPECT_EQ(out.logprobs[0].id, 17);
  EXPECT_EQ(out.logprobs[1].id,
            static_cast<TokenId>(std::distance(
                c.logits.begin(), std::max_element(c.logits.begin(), c.logits.end()))));
  c.params.logprobs = 0;
  EXPECT_EQ(run_sampler(c).num_logprobs, 1);
  c.params.logprobs = -1;
  EXPECT_EQ(run_sampler(c).num_logprobs, 0);
}

TEST(SamplerTest, MinTokensForbidsEosAndStopIdsUntilThen) {
  Case c;
  c.params.temperature = 0;
  c.params.min_tokens = 2;
  c.params.stop_token_ids = {3};
  c.logits = {9, 8, 1, 7, 2};  // 0 and 1 are eos
  EXPECT_EQ(run_sampler(c).token, 4);
  c.output = {4};
  EXPECT_EQ(run_sampler(c).token, 4);
  c.output = {4, 4};
  EXPECT_EQ(run_sampler(c).token, 0);
}

TEST(SamplerTest, ARowThatOnlyDrawsIsNamedByItsDraw) {
  ThreadPool pool(1);
  Sampler sampler(options_for(8), pool);
  const auto draw_of = [&](const SamplingParams& params, std::int32_t output_index) {
    sampler.assign(0, params, 3, {}, {});
    return sampler.draw_params({0, output_index, nullptr, nullptr});
  };
  SamplingParams params;
  params.seed = 77;
  params.temperature = 0.5F;
  params.top_p = 0.9F;
  params.min_p = 0.1F;
  params.top_k = 5;
  const auto draw = draw_of(params, 12);
  ASSERT_TRUE(draw);
  EXPECT_EQ(draw->uniform, sampling_uniform(77, 3, 12));
  EXPECT_EQ(draw->temperature, 0.5F);
  EXPECT_EQ(draw->top_p, 0.9F);
  EXPECT_EQ(draw->min_p, 0.1F);
  EXPECT_EQ(draw->top_k, 5);
  params.temperature = 1e-6F;
  EXPECT_EQ(draw_of(params, 0)->temperature, 0.0F);

  params.min_tokens = 2;
  EXPECT_FALSE(draw_of(params, 1)) << "some ids are forbidden";
  EXPECT_TRUE(draw_of(params, 2));
  const std::uint32_t mask = 1;
  EXPECT_FALSE(sampler.draw_params({0, 2, nullptr, &mask}));
  using Change = void (*)(SamplingParams&);
  for (const Change change : {Change([](SamplingParams& p) { p.logprobs = 0; }),
                              Change([](SamplingParams& p) { p.logit_bias = {{1, 0.5F}}; }),
                              Change([](SamplingParams& p) { p.allowed_token_ids = {1, 2}; }),
                              Change([](SamplingParams& p) { p.bad_words = {{1, 2}}; }),
                              Change([](SamplingParams& p) { p.repetition_penalty = 1.1F; }),
                              Change([](SamplingParams& p) { p.presence_penalty = 0.1F; }),
                              Change([](SamplingParams& p) { p.frequency_penalty = -0.1F; })}) {
    SamplingParams more = params;
    change(more);
    EXPECT_FALSE(draw_of(more, 2));
  }
}

TEST(SamplerTest, ScoresAreLogProbabilitiesAndRanksOfGivenTokens) {
  SplitMix64 random(11);
  ThreadPool pool(2);
  constexpr int kVocab = 333;
  Sampler sampler(options_for(kVocab), pool);
  std::vector<std::vector<float>> logits(9, std::vector<float>(kVocab));
  std::vector<ScoreRow> rows;
  for (std::vector<float>& row : logits) {
    for (float& x : row) x = static_cast<float>(std::floor(random.uniform() * 40) / 4);  // ties
    rows.push_back({row.data(), static_cast<TokenId>(random.below(kVocab)),
                    static_cast<std::int32_t>(random.below(21))});
  }
  logits[4][7] = std::nanf("");
  std::vector<SampledRow> out(rows.size());
  sampler.score(rows, out);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    EXPECT_EQ(out[r].failed, r == 4);
    if (r == 4) continue;
    double sum = 0;
    std::vector<ScoredToken> order;
    for (int i = 0; i < kVocab; ++i) {
      sum += std::exp(static_cast<double>(logits[r][static_cast<std::size_t>(i)]));
      order.push_back({logits[r][static_cast<std::size_t>(i)], i});
    }
    std::sort(order.begin(), order.end(), ranks_before);
    ASSERT_EQ(out[r].num_logprobs, 1 + rows[r].alternatives);
    EXPECT_EQ(out[r].logprobs[0].id, rows[r].token);
    EXPECT_EQ(order[static_cast<std::size_t>(out[r].rank) - 1].id, rows[r].token);
    for (std::int32_t k = 0; k < out[r].num_logprobs; ++k) {
      const ScoredToken& entry = out[r].logprobs[k];
      if (k > 0) {
        EXPECT_EQ(entry.id, order[static_cast<std::size_t>(k) - 1].id);
      }
      const auto logit = static_cast<double>(logits[r][static_cast<std::size_t>(entry.id)]);
      EXPECT_NEAR(entry.score, logit - std::log(sum), 1e-5);
    }
  }
}

TEST(SamplerTest, NonFiniteLogitsFailTheirRowAlone) {
  ThreadPool pool(1);
  Sampler sampler(options_for(4), pool);
  SamplingParams params;
  params.temperature = 0;
  for (int slot = 0; slot < 4; ++slot) sampler.assign(slot, params, 0, {}, {});
  const std::vector<float> good = {0, 1, 2, 3};
  const std::vector<float> nan = {0, std::nanf(""), 2, 3};
  const std::vector<float> inf = {0, std::numeric_limits<float>::infinity(), 2, 3};
  const std::vector<SampleRow> rows = {
      {0, 0, nan.data(), nullptr}, {1, 0, good.data(), nullptr}, {2, 0, inf.data(), nullptr}};
  std::vector<SampledRow> out(3);
  sampler.sample(rows, out);
  EXPECT_TRUE(out[0].failed);
  EXPECT_EQ(out[0].token, -1);
  EXPECT_FALSE(out[1].failed);
  EXPECT_EQ(out[1].token, 3);
  EXPECT_TRUE(out[2].failed);
}

TEST(SamplerTest, AMaskThatLeavesNothingFailsTheRow) {
  Case c;
  c.logits = {1, 2, 3};
  c.allowed = {0};
  EXPECT_TRUE(run_sampler(c).failed);
  c.allowed = {2};
  EXPECT_EQ(run_sampler(c).token, 1);
  c.params.min_tokens = 1;  // forbids token 1, which the mask alone allows
  EXPECT_TRUE(run_sampler(c).failed);
}

TEST(SamplerTest, ExtremeLogitsAndParametersStayFinite) {
  constexpr float kHuge = 3.3e38F;
  for (const float temperature : {0.0F, 1.1e-5F, 1.0F, 100.0F}) {
    for (const float repetition : {1e-30F, 1.0F, 1e30F}) {
      Case c;
      c.logits = {0, 0, kHuge, -kHuge, kHuge, 1e-44F};
      c.prompt = {2, 3};
      c.output = {2, 3};
      c.params.temperature = temperature;
      c.params.repetition_penalty = repetition;
      c.params.logit_bias = {{2, 100.0F}, {3, -100.0F}};
      c.params.top_p = 0.5F;
      c.params.logprobs = 2;
      const SampledRow out = run_sampler(c);
      EXPECT_FALSE(out.failed);
      EXPECT_TRUE(out.token == 2 || out.token == 4) << out.token;
      EXPECT_FALSE(std::isnan(out.logprobs[0].score));
    }
  }
}

TEST(SamplerTest, PenaltiesCountTheTokensTheSamplerChose) {
  ThreadPool pool(1);
  Sampler sampler(options_for(6), pool);
  SamplingParams params;
  params.temperature = 0;
  params.presence_penalty = 2.0F;
  sampler.assign(0, params, 0, {}, {});
  const std::vector<float> logits = {0, 0, 5.0F, 4.5F, 4.0F, 3.5F};
  std::vector<TokenId> chosen;
  for (int i = 0; i < 5; ++i) {
    const SampleRow row{0, i, logits.data(), nullptr};
    SampledRow out;
    sampler.sample({&row, 1}, {&out, 1});
    chosen.push_back(out.token);
  }
  EXPECT_EQ(chosen, (std::vector<TokenId>{2, 3, 4, 5, 2}));
  // A new sequence in the slot starts from nothing; a preempted one continues where it was.
  sampler.assign(0, params, 0, {}, {});
  const SampleRow first{0, 0, logits.data(), nullptr};
  SampledRow out;
  sampler.sample({&first, 1}, {&out, 1});
  EXPECT_EQ(out.token, 2);
  const std::vector<TokenId> before = {2, 3};
  sampler.assign(0, params, 0, {}, before);
  const SampleRow third{0, 2, logits.data(), nullptr};
  sampler.sample({&third, 1}, {&out, 1});
  EXPECT_EQ(out.token, 4);
}

TEST(SamplerTest, ResultsDependNeitherOnThreadsNorOnOtherRows) {
  SplitMix64 random(5);
  std::vector<Case> cases;
  for (int i = 0; i < 8; ++i) {
    cases.push_back(random_case(random, 777));
    randomize(cases.back(), random);
  }
  std::vector<TokenId> alone;
  for (const Case& c : cases) alone.push_back(run_sampler(c).token);
  for (const int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    Sampler sampler(options_for(777), pool);
    std::vector<SampleRow> rows;
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const Case& c = cases[i];
      const auto slot = static_cast<std::int32_t>(7 - i);
      sampler.assign(slot, c.params, c.choice, c.prompt, c.output);
      rows.push_back({slot, static_cast<std::int32_t>(c.output.size()), c.logits.data(),
                      c.allowed.empty() ? nullptr : c.allowed.data()});
    }
    std::vector<SampledRow> out(rows.size());
    sampler.sample(rows, out);
    for (std::size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i].token, alone[i]) << threads;
  }
}

// Tokens 0 and 1 are ends of sequences, then a, b, c, ab. The grammar is a?bcb.
SampledRow forced_after(TokenId first, const SamplingParams& more, std::int32_t most,
                        const char* pattern = "a?bcb") {
  const std::vector<std::string> tokens = {"", "", "a", "b", "c", "ab"};
  const auto vocabulary = std::make_shared<GrammarVocabulary>(TokenTrie(tokens, 6));
  SamplingParams params = more;
  params.temperature = 0;
  params.grammar = TokenGrammar::compile(*regex_grammar(pattern), vocabulary).value();
  ThreadPool pool(1);
  SamplerOptions options = options_for(6);
  options.eos_ids = {1};
  Sampler sampler(options, pool);
  sampler.assign(0, params, 0, {}, {});
  std::vector<float> logits(6, 0.0F);
  logits[static_cast<std::size_t>(first)] = 5;
  const SampleRow row{0, 0, logits.data(), nullptr, most};
  SampledRow out;
  sampler.sample({&row, 1}, {&out, 1});
  EXPECT_EQ(out.token, first);
  return out;
}

using Tokens = std::vector<TokenId>;

Tokens ids(const SampledRow& row) { return {row.forced, row.forced + row.num_forced}; }

TEST(SamplerForced, TokensFollowWhereTheGrammarLeavesOne) {
  EXPECT_EQ(ids(forced_after(3, {}, 15)), (Tokens{4, 3, 1})) << "the end too";
  EXPECT_EQ(ids(forced_after(2, {}, 15)), (Tokens{3, 4, 3, 1})) << "not ab: a has been read";
  EXPECT_EQ(ids(forced_after(3, {}, 2)), (Tokens{4, 3}));
  EXPECT_EQ(ids(forced_after(3, {}, 0)), Tokens{});
  EXPECT_EQ(ids(forced_after(2, {}, 15, "aab?c")), Tokens{}) << "a, or ab";
  EXPECT_EQ(ids(forced_after(2, {}, 15, "ac{40}")), Tokens(15, 4)) << "kMaxForced";
  EXPECT_EQ(ids(forced_after(3, {}, 15, "bca?")), Tokens{4}) << "a, or the end";
}

TEST(SamplerForced, OtherParametersDecideFirst) {
  SamplingParams params;
  params.logprobs = 0;
  EXPECT_EQ(ids(forced_after(3, params, 15)), Tokens{}) << "their logits are wanted";
  params = {};
  params.bad_words = {{4, 3}};
  EXPECT_EQ(ids(forced_after(3, params, 15)), Tokens{});
  params = {};
  params.allowed_token_ids = {3, 4};
  EXPECT_EQ(ids(forced_after(3, params, 15)), (Tokens{4, 3})) << "the end is not allowed";
  params = {};
  params.stop_token_ids = {4};
  params.min_tokens = 2;
  EXPECT_EQ(ids(forced_after(3, params, 15)), Tokens{}) << "c is forbidden as second token";
  EXPECT_EQ(ids(forced_after(2, params, 15)), (Tokens{3, 4, 3, 1}));
  params = {};
  params.min_tokens = 40;
  EXPECT_EQ(ids(forced_after(3, params, 15)), (Tokens{4, 3, 1})) << "only the end is left";
  params = {};
  params.logit_bias = {{4, -100.0F}};
  EXPECT_EQ(ids(forced_after(3, params, 15)), (Tokens{4, 3, 1})) << "a bias forbids nothing";
}

// Steps 6 and 7 over the whole row, each filter in the order of sampler.h.
TokenId draw_plainly(const SamplingParams& params, std::vector<float> logits) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  const float best = best_token(logits).score;
  std::vector<float> weights(logits.size());
  std::vector<ScoredToken> tokens;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    weights[i] = std::exp((logits[i] - best) / params.temperature);
    if (weights[i] < params.min_p) {
      weights[i] = 0;
      logits[i] = kNone;
    }
  }
  if (params.top_k > 0 && static_cast<std::size_t>(params.top_k) < logits.size()) {
    select_best(logits, params.top_k, tokens);
    drop_below(tokens.back(), logits, weights);
  }
  if (params.top_p < 1.0F) {
    drop_below(nucleus_end(logits, weights, params.top_p, tokens), logits, weights);
  }
  return draw(weights, sampling_uniform(params.seed, 0, 0));
}

TEST(SamplerTest, ShortcutsOfTopKGiveTheSameTokens) {
  SplitMix64 rng(20261124);
  const auto unit = [&] { return static_cast<float>(rng.below(1 << 20)) / (1 << 20); };
  for (int round = 0; round < 4000; ++round) {
    Case c;
    c.logits.resize(2 + rng.below(round % 10 == 0 ? 3000 : 200));
    // Often with ties, or so far apart that weights underflow.
    const float step = rng.below(2) == 0 ? 0.5F : 0.001F;
    const float spread = rng.below(4) == 0 ? 300.0F : 10.0F;
    for (float& logit : c.logits) logit = std::floor(unit() * spread / step) * step;
    c.params.temperature = 0.05F + 2 * unit();
    c.params.top_k = static_cast<std::int32_t>(1 + rng.below(c.logits.size() + 2));
    if (rng.below(2) == 0) c.params.top_p = unit() * 0.99F + 0.005F;
    if (rng.below(3) == 0) c.params.min_p = unit();
    c.params.seed = rng.below(1 << 30);
    std::vector<float> kept = c.logits;
    if (rng.below(4) == 0) {
      c.allowed.resize((kept.size() + 31) / 32);
      for (auto& word : c.allowed) word = static_cast<std::uint32_t>(rng.below(1ULL << 32));
      c.allowed[0] |= 1U;
      for (std::size_t i = 0; i < kept.size(); ++i) {
        if (((c.allowed[i / 32] >> (i % 32)) & 1U) == 0) {
          kept[i] = -std::numeric_limits<float>::infinity();
        }
      }
    }
    ASSERT_EQ(run_sampler(c).token, draw_plainly(c.params, kept)) << "round " << round;
  }
}

}  // namespace
}  // namespace sluice
