// One row of Qwen3's vocabulary: greedy; with top_k; with top_p over all tokens.
// docs/performance.md has the figures.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <vector>

#include "base/rng.h"
#include "base/thread_pool.h"
#include "sampling/sampler.h"

namespace sluice {
namespace {

constexpr std::int32_t kVocab = 151936;

// Sums of uniform numbers: close to a model's logits in shape, with few tokens far ahead.
std::vector<float> random_logits() {
  SplitMix64 rng(1);
  std::vector<float> logits(kVocab);
  for (float& logit : logits) {
    for (int i = 0; i < 8; ++i) logit += static_cast<float>(rng.below(1000)) / 250;
  }
  return logits;
}

void sample(benchmark::State& state, const SamplingParams& params) {
  ThreadPool pool(1);
  Sampler sampler({kVocab, 1, 4096, {0}}, pool);
  sampler.assign(0, params, 0, {}, {});
  const std::vector<float> logits = random_logits();
  SampleRow row{0, 0, logits.data(), nullptr};
  SampledRow out;
  for (auto _ : state) {
    sampler.sample({&row, 1}, {&out, 1});
    benchmark::DoNotOptimize(out);
    ++row.output_index;
  }
}

SamplingParams drawn(std::int32_t top_k) {
  SamplingParams params;
  params.temperature = 0.7F;
  params.top_p = 0.95F;
  params.top_k = top_k;
  return params;
}

void BM_Greedy(benchmark::State& state) {
  SamplingParams params;
  params.temperature = 0;
  sample(state, params);
}
BENCHMARK(BM_Greedy);

void BM_TopK(benchmark::State& state) {
  sample(state, drawn(static_cast<std::int32_t>(state.range(0))));
}
BENCHMARK(BM_TopK)->Arg(20)->Arg(256)->Arg(1000);

void BM_TopP(benchmark::State& state) { sample(state, drawn(0)); }
BENCHMARK(BM_TopP);

}  // namespace
}  // namespace sluice
