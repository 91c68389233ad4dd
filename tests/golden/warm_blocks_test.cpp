// KV blocks of warm prompts, with every golden model: the logits behind blocks that were computed
// by another request, or restored from another engine's memory, are bit for bit those of a cold
// start.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <span>
#include <vector>

#include "kv/block_hash.h"
#include "tests/golden/golden_case.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/engine_fixture.h"

namespace sluice {
namespace {

constexpr const char* kModels = "tests/golden/models";
constexpr std::int32_t kWarmBlocks = 3;

class WarmBlocksTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    golden_ = read_golden_case(kModels, GetParam());
    write_golden_checkpoint(golden_, checkpoint_.path());
    options_.token_budget = 7;
    options_.block_size = 4;
    options_.max_num_seqs = 2;
    options_.kv_cache_memory = std::int64_t{1} << 20;
    const auto vocab = static_cast<std::int32_t>(golden_.prompts[0].logits[0].size());
    for (std::int32_t i = 0; i < 4 * kWarmBlocks + 3; ++i) prompt_.push_back((7 * i + 3) % vocab);
  }

  std::vector<TokenId> warm_prompt() const {
    return {prompt_.begin(), prompt_.begin() + 4 * kWarmBlocks};
  }
  std::vector<Hash128> warm_names(const test::EngineFixture& engine) const {
    return BlockHasher(block_hash_root(engine.loaded().kv_identity), 4).hash_prompt(warm_prompt());
  }
  test::ChoiceResult ask(test::EngineFixture& engine) const {
    Request request = test::greedy_request(2, prompt_, 6);
    request.sampling.logprobs = kMaxLogprobs;
    engine.add(std::move(request));
    return engine.run_to_end().at({2, 0});
  }
  static void expect_same(const test::ChoiceResult& a, const test::ChoiceResult& b) {
    EXPECT_EQ(a.tokens, b.tokens);
    ASSERT_EQ(a.logprobs.size(), b.logprobs.size());
    for (std::size_t i = 0; i < a.logprobs.size(); ++i) {
      EXPECT_EQ(a.logprobs[i].token, b.logprobs[i].token) << i;
      EXPECT_EQ(a.logprobs[i].logprob, b.logprobs[i].logprob) << i;
    }
  }

  void run(std::optional<DType> dtype);

  TempDirectory checkpoint_;
  GoldenCase golden_;
  EngineOptions options_;
  std::vector<TokenId> prompt_;
};

void WarmBlocksTest::run(std::optional<DType> dtype) {
  options_.dtype = dtype;
  test::EngineFixture cold(checkpoint_.path(), options_, 1);
  const test::ChoiceResult expected = ask(cold);
  ASSERT_EQ(expected.tokens.size(), 6U);
  EXPECT_EQ(cold.engine().kv().prefix_stats().hit_tokens, 0);

  test::EngineFixture warm(checkpoint_.path(), options_, 2);
  const auto names = warm_names(warm);
  warm.engine().hold_blocks(names);
  warm.add(test::greedy_request(1, warm_prompt(), 1));
  warm.run_to_end();
  EXPECT_GT(warm.engine().kv().num_pinned_blocks(), 0);
  expect_same(ask(warm), expected);
  EXPECT_EQ(warm.engine().kv().prefix_stats().hit_tokens, 4 * kWarmBlocks);

  // By index and group.
  std::map<std::pair<std::int32_t, std::int32_t>, std::vector<std::byte>> stored;
  for (const BlockPlace& place : warm.engine().kv().needed_blocks(names)) {
    ASSERT_NE(place.id, kNullBlock);
    std::vector<std::byte>& bytes = stored[{place.index, place.group}];
    bytes.resize(warm.engine().kv_block_bytes());
    ASSERT_TRUE(warm.engine().read_block(place.id, bytes));
  }
  test::EngineFixture restored(checkpoint_.path(), options_, 1);
  // Blocks have other places than in the engine that they come from.
  restored.add(test::greedy_request(1, {1, 2, 3, 4, 5, 6}, 4));
  restored.run_to_end();
  restored.engine().hold_blocks(names);
  const auto contents = [&](const BlockPlace& place) -> std::span<const std::byte> {
    return stored.at({place.index, place.group});
  };
  ASSERT_TRUE(restored.engine().restore_blocks(names, contents));
  restored.engine().check_integrity();
  EXPECT_EQ(restored.engine().kv().match(names, 4 * kWarmBlocks), 4 * kWarmBlocks);
  const auto before = restored.engine().kv().prefix_stats().hit_tokens;
  expect_same(ask(restored), expected);
  EXPECT_EQ(restored.engine().kv().prefix_stats().hit_tokens - before, 4 * kWarmBlocks);
}

TEST_P(WarmBlocksTest, EqualBitForBitAsStored) { run(std::nullopt); }
TEST_P(WarmBlocksTest, EqualBitForBitInFp8) { run(DType::kF8E4M3); }

std::string warm_test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Models, WarmBlocksTest, testing::ValuesIn(golden_case_names(kModels)),
                         warm_test_name);

}  // namespace
}  // namespace sluice
