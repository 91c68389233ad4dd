// The real engine on the CPU: a request gets the same tokens and log-probabilities, bit for bit,
// whatever else runs and however the engine is configured.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/rng.h"
#include "offload/disk_tier.h"
#include "offload/ram_tier.h"
#include "offload/stacked_tier.h"
#include "scheduler/block_pager.h"
#include "scheduler/policy.h"
#include "tests/golden/golden_case.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/late_device.h"
#include "tests/support/memory_tier.h"

namespace sluice {
namespace {

using test::ChoiceResult;
using test::EngineFixture;
using test::Results;

bool same(const ChoiceResult& a, const ChoiceResult& b) {
  const auto same_logprob = [](const TokenLogprob& x, const TokenLogprob& y) {
    return x.token == y.token && x.logprob == y.logprob;
  };
  return a.tokens == b.tokens && a.finish_reason == b.finish_reason &&
         std::equal(a.logprobs.begin(), a.logprobs.end(), b.logprobs.begin(), b.logprobs.end(),
                    same_logprob);
}

class EngineExactnessTest : public testing::TestWithParam<std::string> {
 protected:
  static constexpr int kRequests = 14;

  void SetUp() override {
    write_golden_checkpoint(read_golden_case("tests/golden/models", GetParam()),
                            checkpoint_.path());
    EngineFixture fixture(checkpoint_.path(), base_options(), 1);
    vocab_size_ = fixture.engine().limits().vocab_size;
    for (RequestId id = 1; id <= kRequests; ++id) requests_.push_back(make_request(id));
    // Each request alone.
    for (const Request& request : requests_) {
      fixture.add(request);
      expected_.merge(fixture.run_to_end());
    }
  }

  static EngineOptions base_options() {
    EngineOptions options;
    options.max_num_seqs = 20;
    options.max_model_len = 96;
    options.block_size = 4;
    options.prefix_caching = PrefixCaching::kOff;
    return options;
  }

  Request make_request(RequestId id) const {
    SplitMix64 random(id);
    Request request;
    request.id = id;
    const auto prompt_len = 1 + random.below(50);
    for (std::uint64_t i = 0; i < prompt_len; ++i) {
      request.prompt.push_back(
          static_cast<TokenId>(random.below(static_cast<std::uint64_t>(vocab_size_))));
    }
    SamplingParams& p = request.sampling;
    p.max_tokens = static_cast<std::int32_t>(1 + random.below(30));
    p.seed = random();
    p.logprobs = 20;
    p.n = id % 4 == 0 ? 3 : 1;
    p.temperature = id % 3 == 0 ? 0.0F : 0.9F;
    if (id % 5 == 0) p.top_p = 0.8F;
    if (id % 5 == 1) p.top_k = 12;
    if (id % 2 == 0) p.repetition_penalty = 1.2F;
    if (id % 7 == 0) p.frequency_penalty = 0.5F;
    return request;
  }

  // All at once, or some later, so that steps mix prefills and decodes.
  void expect_same(const EngineOptions& options, int threads, int steps_between) {
    EngineFixture fixture(checkpoint_.path(), options, threads);
    run_and_compare(fixture, steps_between);
  }

  void run_and_compare(EngineFixture& fixture, int steps_between) {
    Results results;
    for (const Request& request : requests_) {
      fixture.add(request);
      for (int i = 0; i < steps_between && fixture.engine().has_work(); ++i) fixture.step(results);
    }
    while (fixture.engine().has_work()) fixture.step(results);
    ASSERT_EQ(results.size(), expected_.size());
    for (const auto& [key, result] : results) {
      EXPECT_TRUE(same(result, expected_.at(key)))
          << "request " << key.first << " choice " << key.second;
    }
    EXPECT_EQ(fixture.engine().kv().num_used_blocks(), 0);
  }

  TempDirectory checkpoint_;
  std::int32_t vocab_size_ = 100;
  std::vector<Request> requests_;
  Results expected_;
};

TEST_P(EngineExactnessTest, TogetherAndStaggered) {
  expect_same(base_options(), 1, 0);
  expect_same(base_options(), 1, 2);
}

TEST_P(EngineExactnessTest, AnyTokenBudget) {
  for (const std::int32_t budget : {1, 2, 3, 7, 16, 64, 511}) {
    EngineOptions options = base_options();
    options.token_budget = budget;
    expect_same(options, 1, 1);
  }
}

TEST_P(EngineExactnessTest, EagerlyWithTwoThreadsAndOtherBlocks) {
  EngineOptions options = base_options();
  options.graphs = GraphMode::kEager;
  options.block_size = 16;
  expect_same(options, 2, 3);
}

TEST_P(EngineExactnessTest, WithTwoStepsInFlight) {
  EngineOptions options = base_options();
  options.steps_in_flight = 2;
  options.token_budget = 24;
  expect_same(options, 1, 0);
  expect_same(options, 2, 2);
}

// On an asynchronous device, which samples some rows itself and leaves some to the host.
class EngineExactnessLateTest : public EngineExactnessTest {
 protected:
  void SetUp() override {
    EngineExactnessTest::SetUp();
    for (Request& request : requests_) {
      if (request.id % 3 == 0) continue;
      request.sampling.logprobs = -1;  // then only some rows of a step need the host
      for (auto& [key, result] : expected_) {
        if (key.first == request.id) result.logprobs.clear();
      }
    }
  }

  std::unique_ptr<test::LateDevice> make_device() {
    auto device = std::make_unique<test::LateDevice>(*make_cpu_device({.threads = 1}));
    device_ = device.get();
    return device;
  }
  std::unique_ptr<EngineFixture> make_fixture(const EngineOptions& options) {
    return std::make_unique<EngineFixture>(checkpoint_.path(), options, 1, make_device());
  }

  using OpenTier = std::unique_ptr<KvTier> (*)(const std::string& folder, std::int64_t block_bytes,
                                               const Clock& clock);

  static std::unique_ptr<KvTier> open_ram(const std::string& /*folder*/, std::int64_t block_bytes,
                                          const Clock& /*clock*/) {
    return ram_of(600, block_bytes);
  }
  static std::unique_ptr<RamTier> ram_of(std::int64_t blocks, std::int64_t block_bytes) {
    auto tier = RamTier::open({.max_bytes = blocks * block_bytes,
                               .block_bytes = static_cast<std::uint64_t>(block_bytes)});
    EXPECT_TRUE(tier) << tier.error().message;
    return *std::move(tier);
  }
  static std::unique_ptr<KvTier> open_disk(const std::string& folder, std::int64_t block_bytes,
                                           const Clock& clock) {
    DiskTier::Options disk;
    disk.folder = folder;
    disk.max_bytes = std::uint64_t{600} * 16384;
    disk.segment_bytes = std::uint64_t{64} * 16384;
    disk.free_bytes = 0;
    disk.block_bytes = static_cast<std::uint64_t>(block_bytes);
    disk.identity = "model";
    auto tier = DiskTier::open(disk, clock);
    EXPECT_TRUE(tier) << tier.error().message;
    return *std::move(tier);
  }

  // With little KV memory and a tier below it, which stays full from one engine to the next if it
  // is on a disk.
  void expect_same_from(OpenTier open_tier) {
    EngineOptions options = base_options();
    options.prefix_caching = PrefixCaching::kOn;
    options.decode_headroom = 0;
    const TempDirectory folder;
    const SystemClock clock;
    for (const std::int32_t in_flight : {1, 2}) {
      options.steps_in_flight = in_flight;
      options.kv_cache_memory.reset();
      const auto plenty = make_fixture(options);
      const std::int64_t per_block = plenty->loaded().kv_bytes / plenty->loaded().kv_blocks;
      options.kv_cache_memory = (plenty->engine().kv().blocks_needed(81) + 5) * per_block;
      EngineFixture fixture(checkpoint_.path(), options, 1, make_device(), nullptr,
                            open_tier(folder.file("kv"), per_block, clock));
      run_and_compare(fixture, 0);
      run_and_compare(fixture, 1);
      const PagingStats& paging = fixture.engine().scheduler().paging_stats();
      // Measured times decide whether blocks are loaded, but now and then some are in any case.
      for (int round = 0; round < 20 && paging.hit_tokens == 0; ++round) {
        run_and_compare(fixture, 1);
      }
      EXPECT_GT(paging.saved_blocks, 0);
      EXPECT_GT(paging.hit_tokens, 0);
      EXPECT_EQ(paging.failed_loads, 0);
    }
  }

  test::LateDevice* device_ = nullptr;  // the fixture's
};

// Blocks pass through host memory, and steps run ahead of the host.
TEST_P(EngineExactnessLateTest, FromHostMemory) { expect_same_from(&open_ram); }

TEST_P(EngineExactnessLateTest, FromADisk) { expect_same_from(&open_disk); }

TEST_P(EngineExactnessLateTest, FromHostMemoryBeforeADisk) {
  expect_same_from([](const std::string& folder, std::int64_t block_bytes, const Clock& clock) {
    return std::unique_ptr<KvTier>(std::make_unique<StackedTier>(
        ram_of(30, block_bytes), open_disk(folder, block_bytes, clock)));
  });
}

TEST_P(EngineExactnessLateTest, WithOneStepInFlightAndTwo) {
  for (const std::int32_t in_flight : {1, 2}) {
    for (const GraphMode graphs : {GraphMode::kReplay, GraphMode::kEager}) {
      EngineOptions options = base_options();
      options.steps_in_flight = in_flight;
      options.graphs = graphs;
      options.token_budget = 24;
      run_and_compare(*make_fixture(options), 0);
      run_and_compare(*make_fixture(options), 2);
    }
  }
}

TEST_P(EngineExactnessLateTest, AfterPreemptionAndFromThePrefixCache) {
  EngineOptions options = base_options();
  options.prefix_caching = PrefixCaching::kOn;
  const auto plenty = make_fixture(options);
  run_and_compare(*plenty, 0);
  run_and_compare(*plenty, 1);
  EngineOptions scarce = options;
  scarce.decode_headroom = 0;  // admit as many as fit now, so that some are preempted
  const std::int64_t per_block =
      plenty->loaded().kv_bytes / std::max(plenty->loaded().kv_blocks, 1);
  scarce.kv_cache_memory = (plenty->engine().kv().blocks_needed(81) + 5) * per_block;
  run_and_compare(*make_fixture(scarce), 0);
}

TEST_P(EngineExactnessLateTest, WaitsOnceAStepAfterSubmittingTheNext) {
  const auto fixture = make_fixture(base_options());
  Results results;
  for (RequestId id = 1; id <= 4; ++id) {
    Request request = make_request(id);
    request.sampling.max_tokens = 30;
    request.sampling.ignore_eos = true;
    request.sampling.logprobs = -1;
    request.sampling.repetition_penalty = 1.0F;
    request.sampling.frequency_penalty = 0.0F;
    fixture->add(request);
  }
  for (int i = 0; i < 5; ++i) fixture->step(results);
  for (int i = 0; i < 15; ++i) {
    const int waits = device_->waits();
    fixture->step(results);
    EXPECT_EQ(device_->waits(), waits + 1);
    EXPECT_GT(device_->outstanding(), 0U) << "the device has nothing to do";
  }
  while (fixture->engine().has_work()) fixture->step(results);
  EXPECT_EQ(device_->outstanding(), 0U);
  EXPECT_GT(fixture->engine().stats().device.busy, Duration(0));
}

TEST_P(EngineExactnessLateTest, ARowWhoseLogitsAreNotFiniteFailsAlone) {
  EngineOptions options = base_options();
  options.graphs = GraphMode::kEager;
  const auto fixture = make_fixture(options);
  int spoilt = 0;
  device_->before_sample = [&](const SampleParams& p) {
    for (std::int32_t row = 0; row < *p.rows.value && spoilt == 0; ++row) {
      if (p.sampling[row].slot < 0) continue;
      p.logits.as<float>()[row * p.logits.strides[0] + 1] = std::nanf("");
      ++spoilt;
    }
  };
  Results results;
  for (const Request& request : requests_) fixture->add(request);
  while (fixture->engine().has_work()) fixture->step(results);
  EXPECT_EQ(spoilt, 1);
  int failed = 0;
  for (const auto& [key, result] : results) {
    if (result.finish_reason == FinishReason::kError) {
      ++failed;
    } else {
      EXPECT_TRUE(same(result, expected_.at(key))) << key.first << " choice " << key.second;
    }
  }
  EXPECT_EQ(failed, 1);
  EXPECT_EQ(fixture->engine().kv().num_used_blocks(), 0);
}

TEST_P(EngineExactnessLateTest, AnEngineMayEndWithStepsInFlight) {
  const auto fixture = make_fixture(base_options());
  Results results;
  for (const Request& request : requests_) fixture->add(request);
  for (int i = 0; i < 3; ++i) fixture->step(results);
}

TEST_P(EngineExactnessTest, FromThePrefixCache) {
  EngineOptions options = base_options();
  options.prefix_caching = PrefixCaching::kOn;
  EngineFixture fixture(checkpoint_.path(), options, 1);
  run_and_compare(fixture, 0);
  const std::int64_t first = fixture.engine().stats().computed_tokens;
  run_and_compare(fixture, 1);
  const std::int64_t second = fixture.engine().stats().computed_tokens - first;
  EXPECT_LT(second, first) << "nothing came from the cache";
}

// Memory for little more than one request, and a tier that outlives the engines. The third engine
// meets damaged pages.
TEST_P(EngineExactnessTest, FromATierAlsoInALaterProcess) {
  EngineOptions options = base_options();
  options.prefix_caching = PrefixCaching::kOn;
  options.decode_headroom = 0;
  {
    EngineFixture plenty(checkpoint_.path(), options, 1);
    const std::int64_t per_block = plenty.loaded().kv_bytes / plenty.loaded().kv_blocks;
    options.kv_cache_memory = (plenty.engine().kv().blocks_needed(81) + 5) * per_block;
  }
  test::MemoryTier::Store store;
  store.pages.resize(600);
  const ManualClock standing;
  for (const bool damaged : {false, false, true}) {
    store.fail_loads = damaged;
    const bool first = store.saves == 0;
    EngineFixture fixture(checkpoint_.path(), options, 1, nullptr, nullptr,
                          std::make_unique<test::MemoryTier>(store), nullptr, &standing);
    run_and_compare(fixture, first ? 0 : 1);
    const PagingStats& paging = fixture.engine().scheduler().paging_stats();
    if (damaged) {
      EXPECT_GT(paging.failed_loads, 0);
      EXPECT_EQ(paging.hit_tokens, 0);
    } else {
      EXPECT_GT(first ? paging.saved_blocks : paging.hit_tokens, 50);
    }
  }
}

TEST_P(EngineExactnessTest, AfterPreemption) {
  EngineOptions options = base_options();
  for (const bool two_in_flight : {false, true}) {
    options.steps_in_flight = two_in_flight ? 2 : 1;
    EngineFixture plenty(checkpoint_.path(), options, 1);
    EngineOptions scarce = options;
    scarce.decode_headroom = 0;  // admit as many as fit now, so that some are preempted
    // A few more blocks than the longest request needs.
    const std::int64_t per_block =
        plenty.loaded().kv_bytes / std::max(plenty.loaded().kv_blocks, 1);
    scarce.kv_cache_memory = (plenty.engine().kv().blocks_needed(81) + 5) * per_block;
    EngineFixture fixture(checkpoint_.path(), scarce, 1);
    run_and_compare(fixture, 0);
    // A sequence with a short window never grows beyond the blocks that admission promised.
    if (GetParam() == "mistral-window") continue;
    EXPECT_GT(fixture.engine().stats().preemptions, 0) << "memory was not scarce enough";
  }
}

TEST_P(EngineExactnessTest, UnderAnyScheduler) {
  for (Request& request : requests_) request.client_key = std::to_string(request.id % 3);
  int round = 0;
  for (const std::string_view scheduler : policy_names()) {
    SCOPED_TRACE(scheduler);
    EngineOptions options = base_options();
    options.scheduler = scheduler;
    options.token_budget = 24;
    options.steps_in_flight = 1 + round++ % 2;
    EngineFixture plenty(checkpoint_.path(), options, 1);
    run_and_compare(plenty, 1);
    EngineOptions scarce = options;
    const std::int64_t per_block =
        plenty.loaded().kv_bytes / std::max(plenty.loaded().kv_blocks, 1);
    scarce.kv_cache_memory = (plenty.engine().kv().blocks_needed(81) + 5) * per_block;
    EngineFixture fixture(checkpoint_.path(), scarce, 1);
    run_and_compare(fixture, 0);
  }
}

TEST_P(EngineExactnessTest, AChoiceDependsOnItsIndexAndNotOnTheNumberOfChoices) {
  EngineFixture fixture(checkpoint_.path(), base_options(), 1);
  Request request = make_request(4);
  request.sampling.n = 1;
  request.id = 100;
  fixture.add(request);
  request.sampling.n = 8;
  request.id = 101;
  fixture.add(request);
  const Results results = fixture.run_to_end();
  EXPECT_TRUE(same(results.at({100, 0}), results.at({101, 0})));
  for (int choice = 0; choice < 3; ++choice) {
    EXPECT_TRUE(same(expected_.at({4, choice}), results.at({101, choice}))) << choice;
  }
  EXPECT_FALSE(same(results.at({101, 1}), results.at({101, 2})));
}

TEST_P(EngineExactnessTest, CancelAtAnyMomentLeavesOtherRequestsUnchanged) {
  SplitMix64 random(99);
  for (int round = 0; round < 6; ++round) {
    EngineOptions options = base_options();
    options.steps_in_flight = 1 + round % 2;
    options.token_budget = 32;
    options.prefix_caching = round % 3 == 0 ? PrefixCaching::kOn : PrefixCaching::kOff;
    EngineFixture fixture(checkpoint_.path(), options, 1);
    Results results;
    // A victim beside each request: the same prompt, cancelled after a few steps.
    std::vector<RequestId> victims;
    for (const Request& request : requests_) {
      Request victim = request;
      victim.id += 1000;
      fixture.add(victim);
      victims.push_back(victim.id);
      fixture.add(request);
    }
    while (fixture.engine().has_work()) {
      if (!victims.empty() && random.below(2) == 0) {
        const std::size_t pick = random.below(victims.size());
        fixture.engine().cancel(victims[pick]);
        victims.erase(victims.begin() + static_cast<std::ptrdiff_t>(pick));
      }
      fixture.step(results);
    }
    for (const auto& [key, expected] : expected_) {
      EXPECT_TRUE(same(results.at(key), expected)) << key.first << " round " << round;
    }
    EXPECT_EQ(fixture.engine().kv().num_used_blocks(), 0);
    EXPECT_EQ(fixture.engine().num_requests(), 0U);
  }
}

std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

const auto kModels = testing::Values("llama-mha", "llama-gqa-tied-f32", "mistral-window",
                                     "qwen3-layer-types-biases");
INSTANTIATE_TEST_SUITE_P(Models, EngineExactnessTest, kModels, test_name);
INSTANTIATE_TEST_SUITE_P(Models, EngineExactnessLateTest, kModels, test_name);

}  // namespace
}  // namespace sluice
