// LoRA adapters on the CPU: a request with an adapter computes what the merged weights compute, and
// gets the same bits whatever else is in its batch and however the engine is configured.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/rng.h"
#include "checkpoint/checkpoint.h"
#include "model/model_config.h"
#include "model/weight_conversion.h"
#include "tests/golden/golden_case.h"
#include "tests/support/adapter_files.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/engine_fixture.h"

namespace sluice {
namespace {

using test::ChoiceResult;
using test::EngineFixture;
using test::Results;

bool same_bits(const ChoiceResult& a, const ChoiceResult& b) {
  return a.tokens == b.tokens && a.finish_reason == b.finish_reason &&
         std::equal(a.logprobs.begin(), a.logprobs.end(), b.logprobs.begin(), b.logprobs.end(),
                    [](const TokenLogprob& x, const TokenLogprob& y) {
                      return x.token == y.token && x.logprob == y.logprob;
                    });
}

constexpr const char* kNames[] = {"one", "two", "three"};

class AdapterExactnessTest : public testing::TestWithParam<std::string> {
 protected:
  static constexpr RequestId kRequests = 12;

  void SetUp() override {
    write_golden_checkpoint(read_golden_case("tests/golden/models", GetParam()),
                            checkpoint_.path());
    config_ = *load_model_config(checkpoint_.path());
    for (std::size_t i = 0; i < std::size(kNames); ++i) {
      write_random_adapter(adapters_.file(kNames[i]), config_, static_cast<std::int32_t>(2 + 3 * i),
                           i + 1, 0.3F);
    }
  }

  EngineOptions options(bool with_adapters = true) const {
    EngineOptions options;
    options.max_num_seqs = 16;
    options.max_model_len = 96;
    options.block_size = 4;
    if (!with_adapters) return options;
    for (const char* name : kNames) {
      options.adapters.sources.push_back({name, adapters_.file(name)});
    }
    return options;
  }

  // Request `id` uses the base model or one of the adapters.
  static const char* adapter_of(RequestId id) { return id % 4 == 0 ? nullptr : kNames[id % 4 - 1]; }

  Request make_request(RequestId id, const AdapterStore* store) const {
    SplitMix64 random(id / 4);  // four requests in a row have one prompt
    Request request;
    request.id = id;
    const auto length = 5 + random.below(40);
    for (std::uint64_t i = 0; i < length; ++i) {
      request.prompt.push_back(
          static_cast<TokenId>(random.below(static_cast<std::uint64_t>(config_.vocab_size))));
    }
    request.sampling.max_tokens = static_cast<std::int32_t>(4 + random.below(12));
    request.sampling.seed = id;
    request.sampling.logprobs = 5;
    request.sampling.ignore_eos = true;
    request.sampling.temperature = id % 3 == 0 ? 0.0F : 0.8F;
    if (id % 5 == 0) request.sampling.n = 2;
    const char* name = adapter_of(id);
    if (name != nullptr && store != nullptr) {
      request.adapter = store->find(name)->content->index;
    }
    return request;
  }

  // Each request in an engine of its own use; the base's without any adapter registered.
  Results alone() {
    EngineFixture plain(checkpoint_.path(), options(false), 1);
    EngineFixture fixture(checkpoint_.path(), options(), 1);
    Results results;
    for (RequestId id = 1; id <= kRequests; ++id) {
      EngineFixture& engine = adapter_of(id) == nullptr ? plain : fixture;
      engine.add(make_request(id, engine.loaded().adapters.get()));
      results.merge(engine.run_to_end());
    }
    return results;
  }

  void expect_same(const Results& expected, const EngineOptions& options, int threads,
                   int steps_between) {
    EngineFixture fixture(checkpoint_.path(), options, threads);
    for (int round = 0; round < 2; ++round) {  // the second one finds the prefix cache filled
      Results results;
      for (RequestId id = 1; id <= kRequests; ++id) {
        fixture.add(make_request(id, fixture.loaded().adapters.get()));
        for (int i = 0; i < steps_between && fixture.engine().has_work(); ++i) {
          fixture.step(results);
        }
      }
      while (fixture.engine().has_work()) fixture.step(results);
      ASSERT_EQ(results.size(), expected.size());
      for (const auto& [key, result] : results) {
        EXPECT_TRUE(same_bits(result, expected.at(key))) << "request " << key.first;
      }
    }
  }

  TempDirectory checkpoint_;
  TempDirectory adapters_;
  ModelConfig config_;
};

TEST_P(AdapterExactnessTest, AloneMixedCachedAndWithAnyThreads) {
  const Results expected = alone();
  EXPECT_FALSE(same_bits(expected.at({1, 0}), expected.at({2, 0})));
  expect_same(expected, options(), 1, 0);
  EngineOptions other = options();
  other.token_budget = 7;
  other.prefix_caching = PrefixCaching::kOff;
  expect_same(expected, other, 2, 1);
  other = options();
  other.graphs = GraphMode::kEager;
  other.adapters.slots = 1;  // adapters take turns
  other.adapters.max_rank = 32;
  other.steps_in_flight = 2;
  expect_same(expected, other, 2, 2);
}

// Adds scale * B A to the weights of a checkpoint in F32.
void merge_adapter(const std::string& directory, const ModelConfig& config,
                   const AdapterFile& adapter, float scale) {
  const auto checkpoint = Checkpoint::open(directory);
  ASSERT_TRUE(checkpoint);
  std::map<std::string, std::vector<float>> tensors;
  std::map<std::string, std::vector<std::int64_t>> shapes;
  for (const TensorInfo& tensor : checkpoint->tensors()) {
    const auto data = checkpoint->data(tensor);
    const DType dtype = *weight_dtype(tensor);
    auto& values = tensors[tensor.name];
    values.resize(data.size() / size_of(dtype));
    convert_weights(data.data(), dtype, reinterpret_cast<std::byte*>(values.data()), DType::kF32,
                    values.size());
    shapes[tensor.name] = tensor.shape;
  }
  for (std::int32_t layer = 0; layer < config.num_layers; ++layer) {
    for (const WeightRole role : all_lora_roles()) {
      const AdapterTensor& a = adapter.at(lora_tensor_name(config, role, layer, "lora_A"));
      const AdapterTensor& b = adapter.at(lora_tensor_name(config, role, layer, "lora_B"));
      auto& weight = tensors.at(weight_name(config.family, role, layer));
      const auto rank = static_cast<std::size_t>(a.shape[0]);
      const auto depth = static_cast<std::size_t>(a.shape[1]);
      for (std::size_t i = 0; i < weight.size(); ++i) {
        double sum = 0;
        for (std::size_t r = 0; r < rank; ++r) {
          sum +=
              static_cast<double>(b.values[i / depth * rank + r]) * a.values[r * depth + i % depth];
        }
        weight[i] += static_cast<float>(scale * sum);
      }
    }
  }
  nlohmann::json header;
  std::string data;
  for (const auto& [name, values] : tensors) {
    const std::size_t begin = data.size();
    data.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    header[name] = {
        {"dtype", "F32"}, {"shape", shapes[name]}, {"data_offsets", {begin, data.size()}}};
  }
  std::filesystem::remove(directory + "/model.safetensors");
  std::ofstream(directory + "/model.safetensors", std::ios::binary)
      << safetensors_bytes(dump_json(header), data);
}

TEST_P(AdapterExactnessTest, ComputesWhatMergedWeightsCompute) {
  if (config_.scaling) return;  // codes and scales do not merge
  EngineOptions with = options();
  with.dtype = DType::kF32;
  EngineFixture fixture(checkpoint_.path(), with, 1);
  Request request = make_request(4, nullptr);
  request.sampling.temperature = 0;
  request.adapter = fixture.loaded().adapters->find("two")->content->index;
  fixture.add(request);
  const Results results = fixture.run_to_end();
  const ChoiceResult adapted = results.at({4, 0});

  const AdapterFile adapter = random_adapter(config_, all_lora_roles(), 5, 2, 0.3F);
  ASSERT_NO_FATAL_FAILURE(merge_adapter(checkpoint_.path(), config_, adapter, 2.0F));
  EngineOptions without = options(false);
  without.dtype = DType::kF32;
  EngineFixture merged(checkpoint_.path(), without, 1);
  request.adapter = -1;
  merged.add(request);
  const Results merged_results = merged.run_to_end();
  const ChoiceResult expected = merged_results.at({4, 0});
  ASSERT_EQ(adapted.tokens, expected.tokens);
  for (std::size_t i = 0; i < adapted.logprobs.size(); ++i) {
    EXPECT_NEAR(adapted.logprobs[i].logprob, expected.logprobs[i].logprob, 2e-3);
  }
}

// A reload under one name: requests that hold the old content end with it, later ones get the new.
// The blocks of one content are never found by the other.
TEST_P(AdapterExactnessTest, AReloadDoesNotTouchRunningRequests) {
  EngineOptions dynamic = options();
  dynamic.adapters.at_run_time = true;
  dynamic.adapters.slots = 2;
  EngineFixture fixture(checkpoint_.path(), dynamic, 1);
  AdapterStore& store = *fixture.loaded().adapters;
  const Results expected = alone();
  Results results;
  fixture.add(make_request(1, &store));
  for (int i = 0; i < 3; ++i) fixture.step(results);
  const std::int32_t old_index = store.find("one")->content->index;
  ASSERT_TRUE(store.load("one", adapters_.file("three")));  // what "three" has
  EXPECT_NE(store.find("one")->content->index, old_index);
  EXPECT_NE(store.content(old_index), nullptr);
  Request later = make_request(1, &store);
  later.id = 100;
  fixture.add(later);
  ASSERT_TRUE(store.remove("two"));
  while (fixture.engine().has_work()) fixture.step(results);
  EXPECT_TRUE(same_bits(results.at({1, 0}), expected.at({1, 0})));
  Request three = make_request(1, &store);
  three.id = 101;
  three.adapter = store.find("three")->content->index;
  EXPECT_EQ(three.adapter, later.adapter);  // equal content under two names
  fixture.add(three);
  results.merge(fixture.run_to_end());
  EXPECT_TRUE(same_bits(results.at({100, 0}), results.at({101, 0})));
  EXPECT_FALSE(same_bits(results.at({100, 0}), results.at({1, 0})));
}

INSTANTIATE_TEST_SUITE_P(Models, AdapterExactnessTest,
                         testing::Values("llama-gqa-tied-f32", "mistral-window", "qwen2-gqa7-tied",
                                         "qwen3-fp8-tensor"),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// 1,000 adapters on 8 slots: all requests end, and each computes with its own adapter.
TEST(AdapterSlotsOfAnEngine, AThousandAdaptersOnEightSlots) {
  const TempDirectory checkpoint;
  const TempDirectory adapters;
  write_golden_checkpoint(read_golden_case("tests/golden/models", "llama-gqa-tied-f32"),
                          checkpoint.path());
  const ModelConfig config = *load_model_config(checkpoint.path());
  EngineOptions options;
  options.max_num_seqs = 16;
  options.max_model_len = 64;
  constexpr RequestId kAdapters = 1000;
  for (RequestId i = 0; i < kAdapters; ++i) {
    const std::string name = "a" + std::to_string(i);
    write_adapter(adapters.file(name), adapter_config_json(1, 4, R"(["q_proj"])"),
                  random_adapter(config, {WeightRole::kQ}, 1, i, 0.5F));
    options.adapters.sources.push_back({name, adapters.file(name)});
  }
  EngineFixture fixture(checkpoint.path(), options, 1);
  EXPECT_EQ(fixture.engine().limits().num_adapters, kAdapters);
  const auto run = [&](RequestId id) {
    Request request = test::greedy_request(id, {1, 2, 3, 4, 5}, 2);
    request.sampling.logprobs = 1;
    request.adapter = static_cast<std::int32_t>(id * 7 % kAdapters);
    fixture.add(std::move(request));
  };
  for (RequestId id = 1; id <= 200; ++id) run(id);
  const Results together = fixture.run_to_end();
  ASSERT_EQ(together.size(), 200U);
  for (RequestId id = 1; id <= 200; id += 40) {
    run(id);
    EXPECT_TRUE(same_bits(together.at({id, 0}), fixture.run_to_end().at({id, 0})));
  }
}

}  // namespace
}  // namespace sluice
