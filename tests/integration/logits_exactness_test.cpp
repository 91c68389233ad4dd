// The promise that other promises depend on: on the CPU a row's logits are bitwise the same
// whatever else is in the batch, however its prompt was chunked, with any number of threads, from a
// graph or eagerly, in one stage or two.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/rng.h"
#include "tests/golden/golden_case.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/decoder_harness.h"
#include "tests/support/tiles/tile_emulator.h"

namespace sluice {
namespace {

using test::DecoderHarness;
using test::HarnessOptions;
using test::HarnessRow;
using Logits = std::vector<std::vector<float>>;

constexpr std::int32_t kPromptLen = 61;

class LogitsExactnessTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (const auto isa = options().isa) {
      const auto isas = test::tested_cpu_isas();
      if (std::find(isas.begin(), isas.end(), *isa) == isas.end()) {
        GTEST_SKIP() << "this machine lacks " << cpu_isa_name(*isa);
      }
    }
    const std::string model = GetParam().substr(0, GetParam().find('+'));
    write_golden_checkpoint(read_golden_case("tests/golden/models", model), checkpoint_.path());
    DecoderHarness whole(checkpoint_.path(), options());
    vocab_size_ = whole.config().vocab_size;
    num_layers_ = whole.config().num_layers;
    prompt_ = random_tokens(kPromptLen, 1);
    expected_ = whole.run({{0, 0, prompt_, all(kPromptLen)}});
    ASSERT_EQ(expected_.size(), static_cast<std::size_t>(kPromptLen));
  }

  // A model's name, and after plus signs the dtype that its weights are converted to and an
  // instruction set.
  static HarnessOptions options() {
    HarnessOptions options;
    if (GetParam().find("+int8") != std::string::npos) options.dtype = DType::kI8;
    if (GetParam().find("+int4") != std::string::npos) options.dtype = DType::kI4;
    if (const auto isa = parse_cpu_isa(GetParam().substr(GetParam().rfind('+') + 1))) {
      options.isa = *isa;
    }
    options.max_tokens = 160;
    options.max_slots = 6;
    options.context = 80;
    return options;
  }

  std::vector<TokenId> random_tokens(std::int32_t count, std::uint64_t seed) const {
    SplitMix64 random(seed);
    std::vector<TokenId> tokens;
    for (std::int32_t i = 0; i < count; ++i) {
      tokens.push_back(static_cast<TokenId>(random.below(static_cast<std::uint64_t>(vocab_size_))));
    }
    return tokens;
  }

  static std::vector<std::int32_t> all(std::int32_t count) {
    std::vector<std::int32_t> positions(static_cast<std::size_t>(count));
    std::iota(positions.begin(), positions.end(), 0);
    return positions;
  }

  HarnessRow chunk(std::int32_t slot, std::int32_t begin, std::int32_t end) const {
    return {slot, begin, {prompt_.begin() + begin, prompt_.begin() + end}, all(end - begin)};
  }

  // Runs the prompt in chunks of `size`, each beside other rows that `others` makes for the step.
  template <class Others>
  void expect_same_in_chunks(DecoderHarness& harness, std::int32_t size, const Others& others) {
    for (std::int32_t begin = 0, step = 0; begin < kPromptLen; begin += size, ++step) {
      const std::int32_t end = std::min(begin + size, kPromptLen);
      std::vector<HarnessRow> rows = others(step);
      const std::size_t place = static_cast<std::size_t>(step) % (rows.size() + 1);
      rows.insert(rows.begin() + static_cast<std::ptrdiff_t>(place), chunk(0, begin, end));
      std::size_t first = 0;
      for (std::size_t i = 0; i < place; ++i) first += rows[i].logit_positions.size();
      const Logits logits = harness.run(rows);
      for (std::int32_t i = begin; i < end; ++i) {
        ASSERT_EQ(logits[first + static_cast<std::size_t>(i - begin)],
                  expected_[static_cast<std::size_t>(i)])
            << "position " << i << ", chunks of " << size;
      }
    }
  }

  static std::vector<HarnessRow> no_other_rows(std::int32_t) { return {}; }

  TempDirectory checkpoint_;
  std::int32_t vocab_size_ = 0;
  std::int32_t num_layers_ = 0;
  std::vector<TokenId> prompt_;
  Logits expected_;
};

TEST_P(LogitsExactnessTest, AnyChunking) {
  DecoderHarness harness(checkpoint_.path(), options());
  for (const std::int32_t size : {1, 2, 3, 4, 5, 7, 16, 17, 32, 60}) {
    expect_same_in_chunks(harness, size, no_other_rows);
  }
}

TEST_P(LogitsExactnessTest, AnyOtherRows) {
  DecoderHarness harness(checkpoint_.path(), options());
  SplitMix64 random(GetParam().size());
  for (const std::int32_t size : {1, 9, 61}) {
    // Four other sequences, each a prefill chunk or a decode of its own length.
    std::vector<std::int32_t> lengths(5, 0);
    expect_same_in_chunks(harness, size, [&](std::int32_t) {
      std::vector<HarnessRow> rows;
      for (std::int32_t slot = 1; slot <= 4; ++slot) {
        if (random.below(4) == 0) continue;
        std::int32_t& length = lengths[static_cast<std::size_t>(slot)];
        const auto count =
            static_cast<std::int32_t>(random.below(2) == 0 ? 1 : 1 + random.below(19));
        if (length + count > 80) length = 0;  // starts again in the same blocks
        rows.push_back({slot, length, random_tokens(count, random()), {count - 1}});
        length += count;
      }
      return rows;
    });
  }
}

TEST_P(LogitsExactnessTest, AnyNumberOfThreads) {
  for (const int threads : {2, 3, 5}) {
    HarnessOptions with_threads = options();
    with_threads.threads = threads;
    DecoderHarness harness(checkpoint_.path(), with_threads);
    expect_same_in_chunks(harness, 61, no_other_rows);
    expect_same_in_chunks(harness, 13, no_other_rows);
    expect_same_in_chunks(harness, 1, no_other_rows);
  }
}

TEST_P(LogitsExactnessTest, FromGraphs) {
  HarnessOptions with_graphs = options();
  with_graphs.graphs = GraphMode::kReplay;
  DecoderHarness harness(checkpoint_.path(), with_graphs);
  for (const std::int32_t size : {61, 1, 6, 61, 30})
    expect_same_in_chunks(harness, size, no_other_rows);
}

TEST_P(LogitsExactnessTest, AnyBlockSize) {
  for (const std::int32_t block_size : {1, 3, 16, 64}) {
    HarnessOptions with_blocks = options();
    with_blocks.block_size = block_size;
    DecoderHarness harness(checkpoint_.path(), with_blocks);
    expect_same_in_chunks(harness, 61, no_other_rows);
    expect_same_in_chunks(harness, 10, no_other_rows);
  }
}

TEST_P(LogitsExactnessTest, InTwoStages) {
  for (std::int32_t split = 1; split < num_layers_; ++split) {
    HarnessOptions front = options();
    front.last_layer = split;
    HarnessOptions back = options();
    back.first_layer = split;
    DecoderHarness first(checkpoint_.path(), front);
    DecoderHarness second(checkpoint_.path(), back);
    for (std::int32_t begin = 0; begin < kPromptLen; begin += 20) {
      const std::int32_t end = std::min(begin + 20, kPromptLen);
      const HarnessRow row = chunk(2, begin, end);
      EXPECT_TRUE(first.run({row}).empty());
      second.set_hidden(first.hidden(row.tokens.size()));
      const Logits logits = second.run({row});
      for (std::int32_t i = begin; i < end; ++i) {
        ASSERT_EQ(logits[static_cast<std::size_t>(i - begin)],
                  expected_[static_cast<std::size_t>(i)])
            << "position " << i << ", split at layer " << split;
      }
    }
  }
}

std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  std::replace(name.begin(), name.end(), '+', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(
    Models, LogitsExactnessTest,
    testing::Values("llama-mha", "llama-gqa-tied-f32", "llama-mqa-odd-sizes", "llama-gelu-f16",
                    "mistral-window", "qwen2-window", "qwen3-layer-types-biases", "llama-fp8-block",
                    "qwen2-window+int8", "llama-mqa-odd-sizes+int4",
                    "llama-mqa-odd-sizes+int4+avx2", "llama-mqa-odd-sizes+int4+avx2_vnni",
                    "llama-mqa-odd-sizes+int4+avx512", "llama-mqa-odd-sizes+int4+avx512_vnni",
                    "llama-mqa-odd-sizes+amx", "mistral-window+amx", "llama-fp8-block+amx",
                    "qwen2-window+int8+amx", "llama-mqa-odd-sizes+int4+amx"),
    test_name);

}  // namespace
}  // namespace sluice
