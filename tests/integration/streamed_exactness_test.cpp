// The real engine on the CPU with requests whose KV does not fit into its memory: it is streamed
// from a file. Each request gets the same tokens and log-probabilities, bit for bit, as with enough
// memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/hash128.h"
#include "base/rng.h"
#include "model/model_config.h"
#include "scheduler/policy.h"
#include "tests/support/adapter_files.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/memory_tier.h"

namespace sluice {
namespace {

using test::ChoiceResult;
using test::EngineFixture;
using test::Results;
using testing::HasSubstr;

constexpr RequestId kLong = 100;  // and the next ids

// Twelve layers, so that two windows of one layer are a sixth of the whole KV.
struct StreamedModel {
  const char* name;
  const char* config;
  std::int32_t block_size;  // with 16, a block of a layer is a piece; with 4, four are
  std::int32_t blocks;      // of KV memory
  std::int32_t ratio;       // of the longest sequence's KV to them, at least
};

constexpr const char* kFullAttention = R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "bos_token_id": 1,
  "eos_token_id": 2, "hidden_act": "silu", "max_position_embeddings": 1024, "rms_norm_eps": 1e-05,
  "vocab_size": 160, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 12,
  "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "rope_theta": 10000.0,
  "tie_word_embeddings": false, "torch_dtype": "bfloat16"})";

constexpr const char* kMixedAttention = R"({
  "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "bos_token_id": 1,
  "eos_token_id": 2, "hidden_act": "silu", "max_position_embeddings": 1024, "rms_norm_eps": 1e-06,
  "vocab_size": 160, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 12,
  "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "rope_theta": 10000.0,
  "use_sliding_window": true, "sliding_window": 37, "max_window_layers": 4,
  "tie_word_embeddings": false, "torch_dtype": "bfloat16"})";

// Fails from some call on.
class StreamedIo final : public FileIo {
 public:
  bool write(int fd, std::span<const std::byte> bytes, std::uint64_t offset) const override {
    return !fails(writes_before_error) && write_at(fd, bytes, offset);
  }
  bool read(int fd, std::span<std::byte> bytes, std::uint64_t offset) const override {
    return !fails(reads_before_error) && read_at(fd, bytes, offset);
  }
  mutable std::atomic<int> writes_before_error = -1;  // -1: no error
  mutable std::atomic<int> reads_before_error = -1;

 private:
  static bool fails(std::atomic<int>& left) {
    if (left < 0) return false;
    if (left == 0) errno = EIO;
    if (left == 0) return true;
    --left;
    return false;
  }
};

class StreamedExactnessTest : public testing::TestWithParam<StreamedModel> {
 protected:
  static constexpr int kShort = 6;

  void SetUp() override {
    checkpoint_.write("config.json", GetParam().config);
    const ModelConfig config = *load_model_config(checkpoint_.path());
    for (const char* const name : {"one", "two"}) {
      write_random_adapter(adapters_.file(name), config, 4, name[0] == 'o' ? 1 : 2, 0.3F);
    }
    EngineFixture fixture(checkpoint_.path(), base_options(), 1);
    ASSERT_GT(fixture.loaded().kv_block_bytes, 0);
    block_bytes_ = fixture.loaded().kv_block_bytes;
    for (RequestId id = 1; id <= kShort; ++id) requests_.push_back(make_request(id, 20, 12));
    for (RequestId id = kLong; id < kLong + 2; ++id) {
      requests_.push_back(make_request(id, 700 + 100 * static_cast<int>(id % 2), 16));
    }
    // Some with the one adapter, some with the other or none.
    const AdapterStore& adapters = *fixture.loaded().adapters;
    requests_[1].adapter = adapters.find("one")->content->index;
    requests_[4].adapter = requests_.back().adapter = adapters.find("two")->content->index;
    for (const Request& request : requests_) {
      fixture.add(request);
      expected_.merge(fixture.run_to_end());
    }
    const KvManager& kv = fixture.engine().kv();
    const Request& longest = requests_.back();
    ASSERT_GE(kv.blocks_needed(static_cast<std::int64_t>(longest.prompt.size())),
              GetParam().ratio * GetParam().blocks);
  }

  EngineOptions base_options() const {
    EngineOptions options;
    options.adapters.sources = {{"one", adapters_.file("one")}, {"two", adapters_.file("two")}};
    options.adapters.slots = 1;
    options.load_format = LoadFormat::kDummy;
    options.max_num_seqs = 6;
    options.max_model_len = 1000;
    options.block_size = GetParam().block_size;
    options.token_budget = 64;
    return options;
  }
  EngineOptions small_options(std::int32_t factor = 1) const {
    EngineOptions options = base_options();
    options.kv_cache_memory = (factor * GetParam().blocks + 1) * block_bytes_;
    return options;
  }

  Request make_request(RequestId id, int prompt_len, int max_tokens) const {
    SplitMix64 random(id);
    Request request;
    request.id = id;
    for (int i = 0; i < prompt_len; ++i) {
      request.prompt.push_back(static_cast<TokenId>(random.below(160)));
    }
    SamplingParams& p = request.sampling;
    p.max_tokens = max_tokens;
    p.seed = random();
    p.logprobs = 20;
    p.ignore_eos = true;
    p.temperature = id % 3 == 0 ? 0.0F : 0.9F;
    if (id % 2 == 0) p.repetition_penalty = 1.2F;
    return request;
  }

  // `store`: of a tier; null = none. Its loads always pay.
  std::unique_ptr<EngineFixture> make(const EngineOptions& options, int threads = 1,
                                      bool direct = false,
                                      test::MemoryTier::Store* store = nullptr) {
    KvStream::Options stream;
    stream.folder = folder_.path();
    stream.max_bytes = std::uint64_t{64} << 20;
    stream.io = io_;
    stream.direct = direct;
    std::unique_ptr<KvTier> tier;
    if (store != nullptr) tier = std::make_unique<test::MemoryTier>(*store);
    return std::make_unique<EngineFixture>(checkpoint_.path(), options, threads, nullptr, nullptr,
                                           std::move(tier), &stream, &standing_clock_);
  }

  void expect_same(const Results& results, RequestId id) const {
    const auto found = results.find({id, 0});
    ASSERT_NE(found, results.end()) << id;
    const ChoiceResult& a = found->second;
    const ChoiceResult& b = expected_.at({id, 0});
    EXPECT_EQ(a.tokens, b.tokens) << id;
    EXPECT_EQ(a.finish_reason, b.finish_reason) << id;
    EXPECT_TRUE(std::equal(a.logprobs.begin(), a.logprobs.end(), b.logprobs.begin(),
                           b.logprobs.end(),
                           [](const TokenLogprob& x, const TokenLogprob& y) {
                             return x.token == y.token && x.logprob == y.logprob;
                           }))
        << id;
  }
  void run_all(EngineFixture& fixture, int steps_between) {
    Results results;
    for (const Request& request : requests_) {
      fixture.add(request);
      for (int i = 0; i < steps_between && fixture.engine().has_work(); ++i) fixture.step(results);
    }
    while (fixture.engine().has_work()) fixture.step(results);
    for (const Request& request : requests_) expect_same(results, request.id);
    expect_empty(fixture);
  }
  static void expect_empty(EngineFixture& fixture) {
    EXPECT_EQ(fixture.engine().kv().num_used_blocks(), 0);
    EXPECT_EQ(fixture.engine().num_requests(), 0U);
  }
  // The blocks of the first long request.
  std::int32_t blocks_of_windows(EngineFixture& fixture) const {
    Results results;
    fixture.add(request(kLong));
    fixture.step(results);
    const std::int32_t blocks = fixture.engine().kv().num_used_blocks();
    fixture.engine().cancel(kLong);
    while (fixture.engine().has_work()) fixture.step(results);
    return blocks;
  }
  const Request& request(RequestId id) const {
    return *std::ranges::find(requests_, id, &Request::id);
  }

  const ManualClock standing_clock_;
  TempDirectory checkpoint_;
  TempDirectory adapters_;
  TempDirectory folder_;
  std::shared_ptr<StreamedIo> io_ = std::make_shared<StreamedIo>();
  std::int64_t block_bytes_ = 0;
  std::vector<Request> requests_;
  Results expected_;
};

TEST_P(StreamedExactnessTest, AloneAndBesideOthers) {
  const auto fixture = make(small_options(), 1, true);
  for (const RequestId id : {kLong, kLong + 1}) {
    fixture->add(request(id));
    const Results results = fixture->run_to_end();
    expect_same(results, id);
    expect_empty(*fixture);
  }
  run_all(*fixture, 0);
  run_all(*fixture, 3);
}

TEST_P(StreamedExactnessTest, AnyTokenBudgetAndThreads) {
  for (const std::int32_t budget : {7, 33, 512}) {
    EngineOptions options = small_options();
    options.token_budget = budget;
    options.graphs = budget == 33 ? GraphMode::kEager : GraphMode::kReplay;
    run_all(*make(options, budget == 7 ? 2 : 1), 1);
  }
}

TEST_P(StreamedExactnessTest, UnderAnyScheduler) {
  for (const std::string_view name : policy_names()) {
    EngineOptions options = small_options();
    options.scheduler = name;
    options.decode_headroom = 0;
    SCOPED_TRACE(name);
    run_all(*make(options), 1);
  }
}

// A sequence that runs beside it grows until the memory is full. The stream gives its blocks back,
// and goes on where its last piece ended.
TEST_P(StreamedExactnessTest, WhenAnotherSequenceNeedsItsMemory) {
  EngineOptions options = small_options(2);
  options.decode_headroom = 0;
  const auto fixture = make(options);
  const KvManager& kv = fixture->engine().kv();
  const std::int32_t windows = blocks_of_windows(*fixture);
  int tokens = 0;
  while (kv.blocks_needed(tokens + 1) + windows + kv.watermark_blocks() <= kv.num_usable_blocks()) {
    ++tokens;
  }
  const Request other = make_request(50, tokens, 2 * GetParam().block_size + 4);
  EngineFixture plenty(checkpoint_.path(), base_options(), 1);
  plenty.add(other);
  expected_.merge(plenty.run_to_end());

  Results results;
  fixture->add(other);
  while (results[{50, 0}].tokens.empty()) fixture->step(results);
  fixture->add(request(kLong));
  while (fixture->engine().has_work()) fixture->step(results);
  // Sliding layers do not grow.
  const std::int64_t preempted = GetParam().config == kFullAttention ? 1 : 0;
  EXPECT_EQ(fixture->engine().stats().preemptions, preempted);
  expect_same(results, 50);
  expect_same(results, kLong);
  expect_empty(*fixture);
}

TEST_P(StreamedExactnessTest, WhenTheKvLimitFalls) {
  const auto fixture = make(small_options(2));
  const std::int32_t windows = blocks_of_windows(*fixture);
  Results results;
  fixture->add(request(1));
  while (results[{1, 0}].tokens.empty()) fixture->step(results);
  fixture->add(request(kLong));
  for (int i = 0; i < 3; ++i) fixture->step(results);
  const std::int32_t held = fixture->engine().kv().num_held_blocks();
  ASSERT_GT(held, windows + 1);
  fixture->engine().set_kv_limit(windows + 2);
  fixture->step(results);
  EXPECT_EQ(fixture->engine().stats().preemptions, 1);
  while (fixture->engine().has_work()) fixture->step(results);
  expect_same(results, 1);
  expect_same(results, kLong);
  expect_empty(*fixture);

  // A limit that leaves no room for its windows ends it.
  fixture->add(request(kLong));
  for (int i = 0; i < 5; ++i) fixture->step(results);
  fixture->engine().set_kv_limit(windows);
  EXPECT_EQ(fixture->run_to_end().at({kLong, 0}).finish_reason, FinishReason::kNoMemory);
  expect_empty(*fixture);
}

TEST_P(StreamedExactnessTest, CancelAtAnyMoment) {
  SplitMix64 random(3);
  const auto fixture = make(small_options());
  for (int round = 0; round < 9; ++round) {
    Results results;
    fixture->add(request(kLong));
    fixture->add(request(kLong + 1));
    fixture->add(request(1));
    const auto steps = static_cast<int>(random.below(50));
    for (int i = 0; i < steps && fixture->engine().has_work(); ++i) fixture->step(results);
    fixture->engine().cancel(kLong);
    if (round % 3 != 0) fixture->engine().cancel(kLong + 1);
    while (fixture->engine().has_work()) fixture->step(results);
    if (round % 3 == 0) expect_same(results, kLong + 1);
    expect_same(results, 1);
    expect_empty(*fixture);
  }
}

TEST_P(StreamedExactnessTest, AnErrorOfTheDiskEndsItAlone) {
  const auto fixture = make(small_options());
  for (const int calls : {0, 5, 60, 100}) {
    for (const bool writes : {false, true}) {
      (writes ? io_->writes_before_error : io_->reads_before_error) = calls;
      Results results;
      fixture->add(request(kLong));
      for (RequestId id = 1; id <= kShort; ++id) fixture->add(request(id));
      while (fixture->engine().has_work()) fixture->step(results);
      EXPECT_EQ(results.at({kLong, 0}).finish_reason, FinishReason::kLostKv);
      for (RequestId id = 1; id <= kShort; ++id) expect_same(results, id);
      expect_empty(*fixture);
      io_->writes_before_error = -1;
      io_->reads_before_error = -1;
    }
  }
  fixture->add(request(kLong));
  const Results results = fixture->run_to_end();
  expect_same(results, kLong);
}

TEST_P(StreamedExactnessTest, WithLogProbabilitiesOfThePrompt) {
  Request scored = request(kLong);
  scored.sampling.prompt_logprobs = 3;
  EngineFixture plenty(checkpoint_.path(), base_options(), 1);
  plenty.add(scored);
  const Results expected = plenty.run_to_end();
  const auto fixture = make(small_options());
  fixture->add(scored);
  const Results results = fixture->run_to_end();
  expect_same(results, kLong);
  const auto& a = results.at({kLong, 0}).prompt_logprobs;
  const auto& b = expected.at({kLong, 0}).prompt_logprobs;
  ASSERT_EQ(a.size(), b.size());
  EXPECT_GT(a.size(), scored.prompt.size());
  EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), [](const auto& x, const auto& y) {
    return x.token == y.token && x.logprob == y.logprob && x.rank == y.rank;
  }));
}

// The next turn of a chat, in the same process and in later ones. The last one meets damaged pages.
TEST_P(StreamedExactnessTest, TheNextTurnIsLoadedFromATier) {
  const EngineOptions options = small_options();
  test::MemoryTier::Store store;
  store.pages.resize(static_cast<std::size_t>(2000));
  Request turn = request(kLong);
  auto fixture = make(options, 1, true, &store);
  for (int round = 0; round < 4; ++round) {
    SCOPED_TRACE(round);
    if (round > 1) {
      fixture = make(options, 1, true, &store);
      store.fail_loads = round == 3;
    }
    EngineFixture plenty(checkpoint_.path(), base_options(), 1);
    plenty.add(turn);
    expected_ = plenty.run_to_end();
    const std::int64_t before = fixture->engine().stats().tier_hit_tokens;
    fixture->add(turn);
    fixture->add(make_request(static_cast<RequestId>(200 + round), 20, 12));
    const Results results = fixture->run_to_end();
    expect_same(results, turn.id);
    expect_empty(*fixture);
    EXPECT_GT(store.saves, 0);
    const std::int64_t hits = fixture->engine().stats().tier_hit_tokens - before;
    const auto length = static_cast<std::int64_t>(turn.prompt.size());
    // All but the new tokens and the last piece, of at most 16 tokens.
    const bool finds = round == 1 || round == 2;
    EXPECT_GE(hits, finds ? length - 20 - 16 : 0);
    EXPECT_LE(hits, finds ? length - 20 : 0);

    const std::vector<TokenId>& said = results.at({turn.id, 0}).tokens;
    turn.prompt.insert(turn.prompt.end(), said.begin(), said.end());
    for (TokenId i = 0; i < 20; ++i) turn.prompt.push_back(i + 3);
    ++turn.id;
  }
}

// The prompts of both tenants are the same, so only the tenant keeps them apart: a long one, and
// its beginning, which fits into memory. In one process and in later ones, and with a slow tier.
TEST_P(StreamedExactnessTest, ATenantFindsNoBlockOfAnother) {
  const EngineOptions options = small_options();
  test::MemoryTier::Store store;
  store.pages.resize(static_cast<std::size_t>(2000));
  store.pause = std::chrono::milliseconds(5);
  Request first = request(kLong);
  first.adapter = -1;
  Request beginning = make_request(3, 0, 8);
  beginning.prompt.assign(first.prompt.begin(), first.prompt.begin() + 100);
  EngineFixture plenty(checkpoint_.path(), base_options(), 1);
  for (const Request& wanted : {first, beginning}) {
    plenty.add(wanted);
    expected_[{wanted.id, 0}] = plenty.run_to_end().at({wanted.id, 0});
  }
  const auto cached = [&](EngineFixture& fixture, const Request& wanted, std::string_view tenant) {
    fixture.add(wanted, tenant);
    const Results results = fixture.run_to_end();
    expect_same(results, wanted.id);
    return results.at({wanted.id, 0}).cached_prompt_tokens;
  };
  auto fixture = make(options, 1, false, &store);
  EXPECT_EQ(cached(*fixture, first, "alice"), 0);
  EXPECT_EQ(cached(*fixture, beginning, "frank"), 0);
  EXPECT_EQ(cached(*fixture, first, "bob"), 0);
  for (int restart = 0; restart < 2; ++restart) {
    SCOPED_TRACE(restart);
    for (const std::string_view tenant : {"alice", "bob"}) {
      EXPECT_GT(cached(*fixture, beginning, tenant), 0);
      EXPECT_GT(cached(*fixture, first, tenant), 600);
    }
    EXPECT_EQ(cached(*fixture, beginning, restart == 0 ? "carol" : "dave"), 0);
    fixture = make(options, 1, false, &store);
  }
  EXPECT_EQ(cached(*fixture, first, "erin"), 0);

  std::map<Hash128, std::set<Hash128>> tenants_of;  // by name
  std::set<Hash128> tenants;
  for (const auto& [page, bytes, used] : store.pages) {
    if (bytes.empty()) continue;
    tenants_of[page.name].insert(page.tenant);
    tenants.insert(page.tenant);
  }
  EXPECT_EQ(tenants.size(), 6U);
  for (const auto& [name, owners] : tenants_of) EXPECT_EQ(owners.size(), 1U);
}

// Beside others, with cancels, and with a stream whose file fails.
TEST_P(StreamedExactnessTest, BlocksOfAFailingStreamAreNotKept) {
  const EngineOptions options = small_options();
  for (const bool writes : {false, true}) {
    for (const int calls : {0, 5, 60, 100, 400}) {
      test::MemoryTier::Store store;
      store.pages.resize(static_cast<std::size_t>(2000));
      const auto fixture = make(options, 1, false, &store);
      (writes ? io_->writes_before_error : io_->reads_before_error) = calls;
      for (const RequestId id : {kLong, kLong + 1}) {
        fixture->add(request(id));
        static_cast<void>(fixture->run_to_end());
      }
      io_->writes_before_error = -1;
      io_->reads_before_error = -1;
      for (const RequestId id : {kLong, kLong + 1}) {
        fixture->add(request(id));
        expect_same(fixture->run_to_end(), id);
      }
      expect_empty(*fixture);
    }
  }
}

TEST_P(StreamedExactnessTest, RefusesWhatItCannotStream) {
  const auto refusal = [](EngineFixture& fixture, const Request& wanted) {
    const auto added = fixture.engine().add_request(wanted);
    EXPECT_FALSE(added);
    return added ? std::string() : added.error().message;
  };
  Request choices = request(kLong);
  choices.sampling.n = 2;
  const auto fixture = make(small_options());
  EXPECT_THAT(refusal(*fixture, choices), HasSubstr("n above 1"));

  EngineOptions tiny = small_options();
  tiny.kv_cache_memory = 7 * block_bytes_;
  EXPECT_THAT(refusal(*make(tiny), request(kLong)), HasSubstr("KV blocks, there are 6"));

  EngineFixture without(checkpoint_.path(), small_options(), 1);
  EXPECT_THAT(refusal(without, request(kLong)), HasSubstr("the KV memory has"));
}

constexpr StreamedModel kModelsStreamed[] = {{"Full16", kFullAttention, 16, 12, 4},
                                             {"Full4", kFullAttention, 4, 50, 4},
                                             {"Mixed16", kMixedAttention, 16, 19, 3}};
std::string streamed_name(const testing::TestParamInfo<StreamedModel>& info) {
  return info.param.name;
}
INSTANTIATE_TEST_SUITE_P(Models, StreamedExactnessTest, testing::ValuesIn(kModelsStreamed),
                         streamed_name);

}  // namespace
}  // namespace sluice
