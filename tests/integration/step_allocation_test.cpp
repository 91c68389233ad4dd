// The steady state allocates nothing, counted over 10,000 engine steps with 64 sampled streams.
#include <gtest/gtest.h>

#include <map>

#include "tests/golden/golden_case.h"
#include "tests/support/adapter_files.h"
#include "tests/support/allocation_counter.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/sanitized.h"

namespace sluice {
namespace {

constexpr int kStreams = 64;
constexpr int kSteps = kSanitized ? 300 : 10000;
constexpr int kWarmUp = 200;

Request stream(RequestId id) {
  Request request;
  request.id = id;
  for (int i = 0; i < 20; ++i) request.prompt.push_back(static_cast<TokenId>((id * 5 + i) % 50));
  SamplingParams& p = request.sampling;
  p.max_tokens = kSteps + 2 * kWarmUp;
  p.ignore_eos = true;
  p.seed = id;
  p.temperature = 0.8F;
  p.logprobs = id % 2 == 0 ? 5 : -1;
  if (id % 3 == 0) p.top_p = 0.9F;
  if (id % 3 == 1) p.top_k = 10;
  if (id % 4 == 0) p.presence_penalty = 0.3F;
  if (id % 5 == 0) p.min_p = 0.05F;
  if (id % 6 == 0) p.logit_bias = {{3, 1.0F}};
  return request;
}

// The golden model with a context of 16,384 and a sliding window, so that long streams stay cheap.
void write_long_context_model(const std::string& directory) {
  GoldenCase golden = read_golden_case("tests/golden/models", "mistral-window");
  const std::string field = "\"max_position_embeddings\": ";
  const std::size_t at = golden.config.find(field);
  ASSERT_NE(at, std::string::npos);
  const std::size_t end = golden.config.find_first_of(",\n}", at);
  golden.config.replace(at, end - at, field + "16384");
  write_golden_checkpoint(golden, directory);
}

// Runs all streams past the warm-up, then counts.
void expect_no_allocations(const std::string& checkpoint, EngineOptions options, int steps) {
  options.max_num_seqs = kStreams;
  options.max_model_len = 16384;
  options.dtype = DType::kF32;
  options.kv_cache_memory = std::int64_t{256} << 20;
  test::EngineFixture fixture(checkpoint, options, 2);
  const std::int32_t adapters = fixture.engine().limits().num_adapters;
  for (RequestId id = 1; id <= kStreams; ++id) {
    Request request = stream(id);
    if (adapters > 0) request.adapter = static_cast<std::int32_t>(id) % (adapters + 1) - 1;
    fixture.add(std::move(request));
  }
  Engine& engine = fixture.engine();
  for (int i = 0; i < kWarmUp; ++i) ASSERT_TRUE(engine.step());

  std::int64_t tokens = 0;
  const std::size_t before = allocation_count();
  for (int i = 0; i < steps; ++i) {
    const auto outputs = engine.step();
    if (!outputs) break;
    for (const ChoiceOutput& output : *outputs) {
      tokens += static_cast<std::int64_t>(output.tokens.size());
    }
  }
  const std::size_t allocations = allocation_count() - before;
  EXPECT_EQ(allocations, 0U);
  EXPECT_EQ(tokens, std::int64_t{steps} * kStreams);
}

TEST(StepAllocationTest, TenThousandStepsOf64SampledStreamsAllocateNothing) {
  TempDirectory checkpoint;
  ASSERT_NO_FATAL_FAILURE(write_long_context_model(checkpoint.path()));
  expect_no_allocations(checkpoint.path(), {}, kSteps);
}

TEST(StepAllocationTest, StepsWithAdaptersAllocateNothing) {
  TempDirectory checkpoint;
  TempDirectory adapters;
  ASSERT_NO_FATAL_FAILURE(write_long_context_model(checkpoint.path()));
  EngineOptions options;
  const ModelConfig config = *load_model_config(checkpoint.path());
  for (const std::string name : {"one", "two", "three"}) {
    write_random_adapter(adapters.file(name), config, 4, name.size());
    options.adapters.sources.push_back({name, adapters.file(name)});
  }
  expect_no_allocations(checkpoint.path(), options, kSteps / 10);
}

}  // namespace
}  // namespace sluice
