#include "tests/golden/expect_peft.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>
#include <vector>

#include "base/json.h"
#include "tests/golden/golden_case.h"
#include "tests/support/adapter_files.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/engine_fixture.h"

namespace sluice::test {
namespace {

nlohmann::json read_adapter_case(const std::string& family) {
  std::ifstream in("tests/golden/adapters/" + family + ".json");
  std::stringstream text;
  text << in.rdbuf();
  return parse_json(text.str());
}

}  // namespace

void expect_results_of_peft(const std::string& name, bool sealed, std::unique_ptr<Device> device) {
  const nlohmann::json golden = read_adapter_case(name);
  const TempDirectory checkpoint;
  const TempDirectory adapter;
  write_golden_checkpoint(
      read_golden_case("tests/golden/models", golden.at("model").get<std::string>()),
      checkpoint.path());
  AdapterFile file;
  for (const auto& listed : golden.at("tensors")) {
    const GoldenTensor tensor{listed.at(0).get<std::string>(),
                              listed.at(1).get<std::vector<std::int64_t>>(),
                              listed.at(2).get<float>(), listed.at(3).get<float>()};
    file[tensor.name] = {tensor.shape,
                         golden_values(tensor, golden.at("seed").get<std::uint64_t>())};
  }
  write_adapter(adapter.path(), dump_json(golden.at("config")), file);
  EngineOptions options;
  options.dtype = DType::kF32;
  options.token_budget = 7;  // prompts in chunks
  options.block_size = 4;
  options.adapters.sources.push_back({"golden", adapter.path()});
  options.adapters.sealed = sealed;
  EngineFixture fixture(checkpoint.path(), options, 1, std::move(device));
  const auto& prompts = golden.at("prompts");
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const auto& prompt = prompts[i];
    Request request = greedy_request(2 * i, prompt.at("ids").get<std::vector<TokenId>>(),
                                     static_cast<std::int32_t>(prompt.at("tokens").size()));
    request.sampling.logprobs = 0;
    fixture.add(request);  // beside it: the base model
    request.id = 2 * i + 1;
    request.adapter = 0;
    fixture.add(std::move(request));
  }
  const Results results = fixture.run_to_end();
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(results.at({2 * i, 0}).tokens,
              prompts[i].at("base_tokens").get<std::vector<TokenId>>());
    const ChoiceResult& ours = results.at({2 * i + 1, 0});
    ASSERT_EQ(ours.tokens, prompts[i].at("tokens").get<std::vector<TokenId>>()) << "prompt " << i;
    for (std::size_t t = 0; t < ours.tokens.size(); ++t) {
      EXPECT_NEAR(ours.logprobs[t].logprob, prompts[i].at("logprobs")[t].get<double>(), 1e-3);
    }
  }
}

}  // namespace sluice::test
