// The binary as a user runs it: output, exit codes, one clear line for each error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/json.h"
#include "tests/golden/golden_case.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/sanitized.h"
#include "tests/support/subprocess.h"

namespace sluice {
namespace {

using nlohmann::json;
using test::ProcessResult;
using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kDemo = "models/demo";

ProcessResult sluice_run(std::vector<std::string> arguments, const std::string& input = {}) {
  arguments.insert(arguments.begin(), SLUICE_BINARY);
  return test::run_process(arguments, {input, false});
}

ProcessResult generate(const std::string& model, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"generate", model, "--threads", "1"});
  return sluice_run(std::move(arguments));
}

// The message is one line, the last on stderr, and names `what`.
void expect_error(const ProcessResult& result, int code, const std::string& what) {
  EXPECT_EQ(result.exit_code, code) << result.err;
  EXPECT_TRUE(result.out.empty()) << result.out;
  const std::size_t at = result.err.rfind("sluice: ");
  ASSERT_NE(at, std::string::npos) << result.err;
  const std::string line = result.err.substr(at);
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1) << line;
  EXPECT_THAT(line, HasSubstr(what));
}

class CliTest : public testing::Test {
 protected:
  void SetUp() override {
    write_golden_checkpoint(read_golden_case("tests/golden/models", "llama-gqa-tied-f32"),
                            tiny_.path());
  }

  // Replaces the first `from` in a file of the tiny checkpoint.
  void edit(const std::string& file, const std::string& from, const std::string& to) {
    std::ifstream in(tiny_.file(file), std::ios::binary);
    std::string text{std::istreambuf_iterator<char>(in), {}};
    const std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    tiny_.write(file, text);
  }

  TempDirectory tiny_;  // a checkpoint without a tokenizer
};

TEST_F(CliTest, NoCommandAndUnknownCommandsAreWrongUsage) {
  expect_error(sluice_run({}), 2, "--help");
  expect_error(sluice_run({}), 2, "a command is missing; there are serve, gateway,");
  expect_error(sluice_run({"frobnicate"}), 2, "no command 'frobnicate'; there are serve, gateway,");
  expect_error(sluice_run({"kv"}), 2, "a command is missing; there are kv ls, kv verify, kv clear");
  expect_error(sluice_run({"kv", "wipe", "x"}), 2,
               "no command 'kv wipe'; there are kv ls, kv verify, kv clear (see --help)");
  expect_error(sluice_run({"functions", "send"}), 2, "there is functions publish");
  EXPECT_EQ(sluice_run({"kv", "--help"}).exit_code, 0);
  EXPECT_EQ(sluice_run({"--help"}).exit_code, 0);
  EXPECT_EQ(sluice_run({"generate", "--help"}).exit_code, 0);
  EXPECT_THAT(sluice_run({"--version"}).out, HasSubstr("sluice 0."));
}

TEST_F(CliTest, AnAgentNeedsItsGateway) { expect_error(sluice_run({"agent", "x"}), 2, "--join"); }

// CBC may be absent; the greedy placement has the same fields.
TEST_F(CliTest, PlacePlacesTheExample) {
  const auto run =
      sluice_run({"place", "examples/cluster-128.json", "--json", "--time-limit", "0.1"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto answer = nlohmann::json::parse(run.out);
  EXPECT_EQ(answer["servers"].size(), 16U);
  EXPECT_GE(answer["objective_gb"], answer["bound_gb"]);
  std::size_t gpus = 0;
  for (const auto& server : answer["servers"]) gpus += server["gpus"].size();
  EXPECT_EQ(gpus, 128U);
  expect_error(sluice_run({"place", "no-such-file.json"}), 1, "no-such-file.json");
}

TEST_F(CliTest, WrongOptionsOfCoordinatorAreWrongUsage) {
  expect_error(sluice_run({"coordinator"}), 2, "--token-file");
  for (const char* budget : {"cpu", "=1GiB", "cpu=", "c/u=1GiB", "cpu=-1", "cpu=many"}) {
    expect_error(sluice_run({"coordinator", "--token-file", "x", "--budget", budget}), 2,
                 "--budget");
  }
  expect_error(sluice_run({"coordinator", "--token-file", "x", "--port", "70000"}), 2, "--port");
  expect_error(sluice_run({"coordinator", "--token-file", "no-such-file"}), 1, "no-such-file");
}

TEST_F(CliTest, WrongOptionsOfBenchAreWrongUsage) {
  expect_error(sluice_run({"bench"}), 2, "--help");
  expect_error(sluice_run({"bench", "frobnicate"}), 2, "bench frobnicate");
  EXPECT_EQ(sluice_run({"bench", "serve", "--help"}).exit_code, 0);
  const std::vector<std::vector<std::string>> serve = {
      {"--base-url", "ftp://h:1", "http"},
      {"--base-url", "127.0.0.1:8000", "http://"},
      {"--endpoint", "/v1/embeddings", "/v1/completions"},
      {"--header", "no value", "NAME=VALUE"},
      {"--header", "Host=x", "generator's own"},
      {"--request-rate", "0", "--request-rate '0'"},
      {"--request-rate", "fast", "--request-rate 'fast'"},
      {"--num-prompts", "0", "--num-prompts"},
      {"--max-concurrency", "-1", "--max-concurrency"},
      {"--goodput", "itl:5", "--goodput 'itl:5'"},
      {"--goodput", "ttft:-1", "--goodput 'ttft:-1'"},
      {"--metric-percentiles", "101", "--metric-percentiles"},
      {"--percentile-metrics", "tbt", "--percentile-metrics 'tbt'"},
      {"--too-long", "cut", "--too-long 'cut'"},
      {"--ramp-up-strategy", "steep", "linear and exponential"},
      {"--ramp-up-strategy", "linear", "--ramp-up-start-rps"},
      {"--ramp-up-end-rps", "3", "--ramp-up-strategy"},
      {"--result-dir", "x", "--save-result"},
      {"--save-detailed", "--no-progress", "--save-result"},
      {"--ready-check-timeout-sec", "-1", "--ready-check-timeout-sec"},
      {"--duration", "0", "--duration"},
      {"--request-timeout", "nan", "--request-timeout"},
      {"--goodput", "ttft:inf", "--goodput 'ttft:inf'"},
      {"--no-such-option", "1", "--no-such-option"},
  };
  for (const auto& one : serve) {
    expect_error(sluice_run({"bench", "serve", one[0], one[1]}), 2, one[2]);
  }
  expect_error(sluice_run({"bench", "serve", "--trace", "t.csv", "--request-rate", "2"}), 2,
               "--trace has lengths and times of its own");
  expect_error(sluice_run({"bench", "serve", "--lengths", "arxiv", "--random-input-len", "2"}), 2,
               "exclude each other");
  expect_error(sluice_run({"bench", "offline"}), 2, "MODEL");
  expect_error(sluice_run({"bench", "offline", kDemo, "--lengths", "fixed:0,1"}), 2, "fixed:0,1");
  expect_error(sluice_run({"bench", "offline", kDemo, "--batch-size", "0"}), 2, "--batch-size");
  expect_error(sluice_run({"bench", "offline", kDemo, "--device", "tpu"}), 2, "--device");
  expect_error(sluice_run({"bench", "capacity"}), 2, "--tbt-slo-ms is missing");
  expect_error(sluice_run({"bench", "capacity", "--tbt-slo-ms", "-5"}), 2, "--tbt-slo-ms");
}

TEST_F(CliTest, WrongOptionsOfServeAreWrongUsage) {
  const std::vector<std::vector<std::string>> cases = {
      {"--port", "65536"},           {"--max-connections", "0"}, {"--max-queue", "many"},
      {"--max-body-size", "2GiB"},   {"--idle-timeout", "0"},    {"--drain-timeout", "-1"},
      {"--metrics-namespace", "9x"}, {"--workers", "0"}};
  for (const auto& option : cases) {
    std::vector<std::string> arguments = {"serve", tiny_.path()};
    arguments.insert(arguments.end(), option.begin(), option.end());
    expect_error(sluice_run(arguments), 2, option[0]);
  }
  expect_error(sluice_run({"serve", "/"}), 2, "--served-model-name");
}

TEST_F(CliTest, ServeNamesTheReasonWhenItCannotStart) {
  const auto serve = [&](const std::vector<std::string>& options) {
    std::vector<std::string> arguments = {"serve", tiny_.path(), "--port", "0"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return sluice_run(arguments);
  };
  expect_error(serve({"--api-key-file", "/nonexistent/keys"}), 1, "/nonexistent/keys");
  expect_error(serve({"--access-log", "/nonexistent/log"}), 1, "/nonexistent");
  // It listens first; then it finds that the model has no tokenizer.
  EXPECT_EQ(serve({}).exit_code, 1);
  EXPECT_THAT(serve({}).err, HasSubstr("tokenizer"));
}

TEST_F(CliTest, ADeviceThatIsNotThereIsRefusedByName) {
  expect_error(generate(tiny_.path(), {"--prompt-ids", "1", "--device", "cuda:0"}), 1, "cuda");
}

TEST_F(CliTest, WrongAdaptersAreErrors) {
  const auto with = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--prompt-ids", "1"});
    return generate(tiny_.path(), arguments);
  };
  expect_error(with({"--adapter", "poet"}), 2, "--adapter");
  expect_error(with({"--adapter", "poet=/nonexistent"}), 1, "/nonexistent/adapter_config.json");
  expect_error(with({"--model-name", "poet"}), 1, "--model-name");
}

TEST_F(CliTest, WeightsAreQuantizedWhileLoading) {
  const ProcessResult result = generate(
      kDemo, {"--prompt", "Once upon a time", "--max-tokens", "5", "--dtype", "fp8", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(parse_json(result.out)["output_tokens"].size(), 5U);
}

// The token budget is chosen from the profile that was measured and kept.
TEST_F(CliTest, AGoalForTheTimeBetweenTokensChoosesTheBudget) {
  const std::string cache = tiny_.path() + "/cache";
  ::setenv("XDG_CACHE_HOME", cache.c_str(), 1);
  const auto profile = [&](std::vector<std::string> options) {
    options.insert(options.begin(), {"profile", tiny_.path(), "--threads", "1", "--max-num-seqs",
                                     "4", "--time-limit", "1"});
    return sluice_run(std::move(options));
  };
  const ProcessResult measured = profile({"--json"});
  ASSERT_EQ(measured.exit_code, 0) << measured.err;
  const json found = parse_json(measured.out);
  EXPECT_GT(found["decode_step_ms"], 0);
  EXPECT_EQ(found["recommendations"].size(), 2U);
  EXPECT_TRUE(std::filesystem::exists(found["profile"].get<std::string>()));
  EXPECT_TRUE(found["profile"].get<std::string>().starts_with(cache));

  const ProcessResult needs =
      profile({"--json", "--slo-ttft-ms", "200", "--slo-tbt-ms", "1000", "--lengths", "fixed:8,8",
               "--num-requests", "20000", "--kv-cache-memory", "1MiB", "--burst-seconds", "0.1"});
  ASSERT_EQ(needs.exit_code, 0) << needs.err;
  const json memory = parse_json(needs.out)["memory"];
  EXPECT_GT(memory["capacity_request_rate"], 0);
  EXPECT_GT(memory["kv_in_use_gb"], 0);
  EXPECT_LE(memory["kv_in_use_gb"], memory["kv_gb"]);
  EXPECT_LE(memory["kv_gb"], 0.00104858);
  EXPECT_EQ(memory["placement"]["count"], 1);

  const std::string page = tiny_.path() + "/report/index.html";
  const ProcessResult reported =
      profile({"--report", tiny_.path() + "/report", "--output", tiny_.path() + "/p.json"});
  ASSERT_EQ(reported.exit_code, 0) << reported.err;
  EXPECT_THAT(reported.out, AllOf(HasSubstr("TBT goals"), HasSubstr(tiny_.path() + "/p.json")));
  EXPECT_GT(std::filesystem::file_size(page), 1000U);
  expect_error(profile({"--report", tiny_.path() + "/config.json"}), 1, "--report");

  const auto with = [&](std::vector<std::string> options) {
    options.insert(options.begin(), {"--prompt-ids", "1,2,3", "--max-tokens", "4", "--max-num-seqs",
                                     "4", "--temperature", "0", "--json"});
    return generate(tiny_.path(), std::move(options));
  };
  const ProcessResult plain = with({});
  for (const std::string mode : {"auto", "time"}) {
    const ProcessResult result = with({"--token-budget", mode, "--tbt-slo-ms", "60000"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.err,
                AllOf(HasSubstr("token budget: "), HasSubstr("60000"), HasSubstr(cache)));
    EXPECT_EQ(parse_json(result.out)["output_tokens"], parse_json(plain.out)["output_tokens"]);
  }
  // A goal that cannot be kept, and a profile that cannot be read, are told and prevent nothing.
  const auto runs_and_says = [&](const ProcessResult& result, const std::string& what) {
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr(what));
    EXPECT_EQ(parse_json(result.out)["output_tokens"], parse_json(plain.out)["output_tokens"]);
  };
  runs_and_says(with({"--tbt-slo-ms", "0.001"}), "the smallest that can be kept is");
  ASSERT_TRUE(write_file(found["profile"].get<std::string>(), "{"));
  runs_and_says(with({"--token-budget", "auto"}), "follows measured steps instead");
  expect_error(with({"--token-budget", "time", "--scheduler", "unified"}), 2, "unified");
  expect_error(with({"--token-budget", "64", "--tbt-slo-ms", "5"}), 2, "--token-budget 64");
  expect_error(profile({"--token-budget", "auto"}), 2, "--token-budget");
  expect_error(profile({"--slo-ttft-ms", "1", "--slo-tbt-ms", "1"}), 2, "--kv-cache-memory");
  ::unsetenv("XDG_CACHE_HOME");
}

TEST_F(CliTest, WrongValuesAreWrongUsage) {
  const std::vector<std::vector<std::string>> cases = {
      {"--max-tokens", "0"},   {"--max-tokens", "-1"},    {"--max-tokens", "many"},
      {"--temperature", "-1"}, {"--top-p", "0"},          {"--top-p", "1.5"},
      {"--min-p", "2"},        {"--top-k", "-2"},         {"--n", "0"},
      {"--seed", "-1"},        {"--logit-bias", "3"},     {"--logit-bias", "3=x"},
      {"--threads", "0"},      {"--device", "tpu"},       {"--kv-cache-memory", "big"},
      {"--stop", ""},          {"--no-such-option", "1"}, {"--repetition-penalty", "0"},
      {"--min-tokens", "999"}, {"--logprobs", "21"},      {"--temperature", "nan"}};
  for (const auto& option : cases) {
    std::vector<std::string> arguments = {"--prompt-ids", "1", "--json"};
    arguments.insert(arguments.end(), option.begin(), option.end());
    const ProcessResult result = generate(tiny_.path(), arguments);
    EXPECT_EQ(result.exit_code, 2) << option[0] << " " << option[1] << ": " << result.err;
    EXPECT_THAT(result.err, HasSubstr("sluice: "));
  }
  expect_error(generate(tiny_.path(), {}), 2, "--prompt");
  expect_error(generate(tiny_.path(), {"--prompt-ids", "1", "--n", "0"}), 2,
               "--n must be a whole number of at least 1, got '0'");
  expect_error(generate(tiny_.path(), {"--prompt", "x", "--prompt-ids", "1"}), 2, "exactly one");
  expect_error(generate(tiny_.path(), {"--prompt-ids", "1,,2"}), 2, "--prompt-ids");
  expect_error(generate(tiny_.path(), {"--prompt-ids", "1,x"}), 2, "--prompt-ids");
  expect_error(generate(tiny_.path(), {"--prompt-ids", "-4"}), 2, "--prompt-ids");
  expect_error(generate(tiny_.path(), {"--prompt-ids", "1", "--logprobs", "2"}), 2, "--json");
}

TEST_F(CliTest, UnknownOptionsAreNamed) {
  expect_error(
      generate(kDemo, {"--promt", "x"}), 2,
      "there is no option '--promt'; did you mean '--prompt'? (see sluice generate --help)");
  expect_error(generate(kDemo, {"x", "--prompt", "y", "--seed=7", "--temprature=0"}), 2,
               "there is no option '--temprature=0'; did you mean '--temperature'? (see sluice "
               "generate --help)");
  expect_error(generate(kDemo, {"more", "words", "--prompt", "x"}), 2,
               "'more words' was not expected (see sluice generate --help)");
  expect_error(sluice_run({"bench", "serve", "--prompts", "9"}), 2,
               "there is no option '--prompts'");
  expect_error(sluice_run({"--verbose", "doctor"}), 2, "'--verbose' (see sluice --help)");
}

TEST_F(CliTest, PromptIdsWithoutATokenizerGiveTheGoldenTokens) {
  const GoldenCase golden = read_golden_case("tests/golden/models", "llama-gqa-tied-f32");
  for (const GoldenPrompt& prompt : golden.prompts) {
    std::string ids;
    for (const TokenId id : prompt.ids) ids += (ids.empty() ? "" : ",") + std::to_string(id);
    const ProcessResult result =
        generate(tiny_.path(), {"--prompt-ids", ids, "--temperature", "0", "--ignore-eos", "--json",
                                "--max-tokens", std::to_string(prompt.greedy.size())});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const json object = parse_json(result.out);
    EXPECT_EQ(object.at("prompt_tokens").get<std::vector<TokenId>>(), prompt.ids);
    EXPECT_EQ(object.at("output_tokens").get<std::vector<TokenId>>(), prompt.greedy);
    EXPECT_EQ(object.at("finish_reason"), "length");
    EXPECT_THAT(result.err, HasSubstr("no text will come"));
  }
}

TEST_F(CliTest, DummyWeightsNeedNoFilesAndAreRepeatable) {
  const TempDirectory bare;
  std::filesystem::copy_file(tiny_.file("config.json"), bare.file("config.json"));
  expect_error(generate(bare.path(), {"--prompt-ids", "1,2"}), 1, "model.safetensors");
  const std::vector<std::string> arguments = {"--prompt-ids",  "1,2,3", "--max-tokens", "8",
                                              "--load-format", "dummy", "--ignore-eos", "--json"};
  const ProcessResult first = generate(bare.path(), arguments);
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_THAT(first.err, HasSubstr("the weights are RANDOM"));
  const auto tokens = parse_json(first.out)["output_tokens"];
  EXPECT_EQ(tokens.size(), 8U);
  EXPECT_EQ(parse_json(generate(bare.path(), arguments).out)["output_tokens"], tokens);
  // The checkpoint's own weights are not used, even if it has some.
  EXPECT_EQ(parse_json(generate(tiny_.path(), arguments).out)["output_tokens"], tokens);
}

TEST_F(CliTest, BenchOfflineMeasuresAnEngineWithoutAServer) {
  const std::string saved = tiny_.file("saved.json");
  const ProcessResult result = sluice_run({"bench",
                                           "offline",
                                           tiny_.path(),
                                           "--load-format",
                                           "dummy",
                                           "--dtype",
                                           "bf16",
                                           "--threads",
                                           "1",
                                           "--num-prompts",
                                           "6",
                                           "--input-len",
                                           "40",
                                           "--output-len",
                                           "5",
                                           "--batch-size",
                                           "3",
                                           "--max-model-len",
                                           "64",
                                           "--json",
                                           "--output-json",
                                           saved});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("the weights are RANDOM"), HasSubstr("6/6")));
  const json object = parse_json(result.out);
  EXPECT_EQ(object["num_requests"], 6);
  EXPECT_EQ(object["total_num_tokens"], 6 * 45);
  EXPECT_EQ(object["latencies"].size(), 2U);
  EXPECT_EQ(object["load_format"], "dummy");
  EXPECT_EQ(object["dtype"], "bf16");
  EXPECT_EQ(object["ended_by"], "all_ended");
  ASSERT_FALSE(object["startup"].empty());
  EXPECT_EQ(object["startup"].back()["name"], "warm-up");
  EXPECT_GT(object["startup"].back()["seconds"].get<double>(), 0);
  std::ifstream file(saved);
  EXPECT_EQ(parse_json(std::string(std::istreambuf_iterator<char>(file), {})), object);
  // A request that cannot be run, and a file that cannot be written, are errors.
  EXPECT_EQ(sluice_run({"bench", "offline", kDemo, "--num-prompts", "1", "--input-len", "9",
                        "--output-len", "1", "--output-json", "/nonexistent/x"})
                .exit_code,
            1);
}

// Each op of a step is inside the step's event, in order, and none is missing.
void expect_step(const json& events, std::size_t first, const char* name, int tokens) {
  const json& step = events[first];
  EXPECT_EQ(step["name"], name);
  EXPECT_EQ(step["args"]["tokens"], tokens);
  const std::size_t ops = step["args"]["ops"].get<std::size_t>();
  ASSERT_LE(first + ops, events.size() - 1);
  std::map<std::string, int> counts;
  double end = step["ts"].get<double>();
  for (std::size_t i = first + 1; i <= first + ops; ++i) {
    const json& op = events[i];
    EXPECT_EQ(op["ph"], "X");
    EXPECT_EQ(op["tid"], 0);
    EXPECT_FALSE(op["args"]["shape"].get<std::string>().empty());
    EXPECT_NEAR(op["ts"].get<double>(), end, 0.002);  // microseconds, rounded
    end = op["ts"].get<double>() + op["dur"].get<double>();
    ++counts[op["name"].get<std::string>()];
  }
  EXPECT_NEAR(end, step["ts"].get<double>() + step["dur"].get<double>(), 0.002);
  // A layer: two norms, qkv and o and down, rope, attention, gate and up, two sums over ranks.
  constexpr int kLayers = 3;
  const std::map<std::string, int> expected = {
      {"embed", 1},           {"rms_norm", 2 * kLayers + 1}, {"matmul", 3 * kLayers + 1},
      {"attention", kLayers}, {"rope_write_kv", kLayers},    {"gated_matmul", kLayers},
      {"gather_rows", 1},     {"all_reduce", 2 * kLayers}};
  EXPECT_EQ(counts, expected);
}

TEST_F(CliTest, BenchOfflineTracesTheOpsOfAStepWithAndWithoutAPrompt) {
  for (const std::string mode : {"--no-progress", "--enforce-eager"}) {
    const std::string file = tiny_.file("trace.json");
    const ProcessResult result =
        sluice_run({"bench", "offline", tiny_.path(), "--load-format", "dummy", "--num-prompts",
                    "3", "--input-len", "10", "--output-len", "5", "--batch-size", "3",
                    "--max-model-len", "64", "--json", "--trace", file, mode});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    std::ifstream stream(file);
    const json trace = parse_json(std::string(std::istreambuf_iterator<char>(stream), {}));
    const json& events = trace["traceEvents"];
    ASSERT_GT(events.size(), 2U);
    expect_step(events, 0, "prompt step", 30);
    const std::size_t ops = events[0]["args"]["ops"].get<std::size_t>();
    ASSERT_GT(events.size(), ops + 1);
    expect_step(events, ops + 1, "decode step", 3);
    EXPECT_EQ(events.size(), 2 * ops + 2);
  }
  const ProcessResult unwritable =
      sluice_run({"bench", "offline", tiny_.path(), "--load-format", "dummy", "--num-prompts", "1",
                  "--input-len", "9", "--output-len", "1", "--trace", "/nonexistent/x"});
  EXPECT_EQ(unwritable.exit_code, 1);
  EXPECT_THAT(unwritable.err, HasSubstr("--trace"));
}

TEST_F(CliTest, JsonHasExactlyTheKeysPromised) {
  const ProcessResult result =
      generate(kDemo, {"--prompt", "Once upon a time", "--max-tokens", "5", "--temperature", "0",
                       "--logprobs", "3", "--json", "--ignore-eos"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 1);
  const json object = parse_json(result.out);
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  EXPECT_THAT(keys, testing::UnorderedElementsAre("prompt_tokens", "cached_tokens", "output_tokens",
                                                  "text", "finish_reason", "logprobs", "timing"));
  ASSERT_EQ(object["logprobs"].size(), 5U);
  for (std::size_t i = 0; i < 5; ++i) {
    const json& token = object["logprobs"][i];
    ASSERT_EQ(token.size(), 4U);
    EXPECT_EQ(token[0]["token"], object["output_tokens"][i]);
    EXPECT_EQ(token[0], token[1]) << "greedy takes the most likely token";
    EXPECT_LE(token[0]["logprob"].get<double>(), 0.0);
  }
  EXPECT_GT(object["timing"]["ttft_ms"].get<double>(), 0.0);
  EXPECT_GE(object["timing"]["total_ms"], object["timing"]["ttft_ms"]);
  EXPECT_THAT(result.err, AllOf(HasSubstr("TTFT"), HasSubstr("tokens/s"), HasSubstr("start")));
}

TEST_F(CliTest, TextIsStreamedAndEqualToTheJsonText) {
  const std::vector<std::string> arguments = {"--prompt", "The little", "--max-tokens",
                                              "30",       "--seed",     "7"};
  const ProcessResult text = generate(kDemo, arguments);
  ASSERT_EQ(text.exit_code, 0) << text.err;
  std::vector<std::string> with_json = arguments;
  with_json.emplace_back("--json");
  const ProcessResult object = generate(kDemo, with_json);
  ASSERT_EQ(object.exit_code, 0) << object.err;
  EXPECT_EQ(text.out, parse_json(object.out).at("text").get<std::string>() + "\n");
}

TEST_F(CliTest, StopStringsEndTheTextBeforeThem) {
  const std::vector<std::string> base = {"--prompt", "Once upon a time", "--max-tokens",
                                         "60",       "--temperature",    "0",
                                         "--json",   "--ignore-eos"};
  const auto text_of = [](const ProcessResult& result) {
    return parse_json(result.out).at("text").get<std::string>();
  };
  const std::string whole = text_of(generate(kDemo, base));
  ASSERT_GT(whole.size(), 20U);
  const std::string stop = whole.substr(10, 4);
  std::vector<std::string> stopped = base;
  stopped.insert(stopped.end(), {"--stop", stop});
  const ProcessResult result = generate(kDemo, stopped);
  EXPECT_EQ(text_of(result), whole.substr(0, whole.find(stop)));
  EXPECT_EQ(parse_json(result.out).at("finish_reason"), "stop");
  stopped.emplace_back("--include-stop");
  EXPECT_EQ(text_of(generate(kDemo, stopped)), whole.substr(0, whole.find(stop) + 4));
}

TEST_F(CliTest, OutputsKeepToAGrammar) {
  const TempDirectory files;
  files.write("schema.json", R"({"type":"object","required":["a"],"additionalProperties":false,
      "properties":{"a":{"type":"boolean"}}})");
  files.write("x.gbnf", "root ::= \"ye\" \"s\"");
  const auto output = [](const std::string& option, const std::string& value) {
    const ProcessResult result =
        generate("models/demo", {"--prompt", "A fox", "--temperature", "0", option, value});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  };
  EXPECT_TRUE(parse_json(output("--json-schema", files.file("schema.json")))["a"].is_boolean());
  EXPECT_EQ(output("--grammar", files.file("x.gbnf")), "yes\n");
  EXPECT_THAT(output("--regex", "up|down"), testing::AnyOf("up\n", "down\n"));
  expect_error(generate("models/demo", {"--prompt", "a", "--regex", "(a"}), 1, "--regex");
  expect_error(generate("models/demo", {"--prompt", "a", "--json-schema", "/nowhere/x"}), 2,
               "--json-schema");
  expect_error(generate("models/demo", {"--prompt", "a", "--json-schema", files.file("x.gbnf")}), 2,
               "--json-schema");
  expect_error(generate("models/demo", {"--prompt", "a", "--regex", "a", "--grammar", "x"}), 2,
               "at most one");
}

TEST_F(CliTest, ChatUsesTheModelsTemplate) {
  const ProcessResult result = generate(
      kDemo, {"--chat", "Tell me a story.", "--max-tokens", "8", "--temperature", "0", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  TempDirectory files;
  files.write("chat.json", R"({"messages":[{"role":"user","content":"Tell me a story."}],
                               "add_generation_prompt":true})");
  const ProcessResult tokenized =
      sluice_run({"tokenize", kDemo, "--chat", files.file("chat.json")});
  ASSERT_EQ(tokenized.exit_code, 0) << tokenized.err;
  const json chat = parse_json(tokenized.out);
  EXPECT_EQ(chat.at("text"), "<|bos|><|user|>Tell me a story.<|end|><|assistant|>");
  EXPECT_EQ(chat.at("ids"), parse_json(result.out).at("prompt_tokens"));
  // The generation prompt is there by default, as in the API.
  files.write("chat.json", R"({"messages":[{"role":"user","content":"Tell me a story."}]})");
  EXPECT_EQ(parse_json(sluice_run({"tokenize", kDemo, "--chat", files.file("chat.json")}).out),
            chat);
  files.write("chat.json", R"({"messages":[{"role":"user","content":"Tell me a story."}],
                               "add_generation_prompt":false})");
  const ProcessResult without = sluice_run({"tokenize", kDemo, "--chat", files.file("chat.json")});
  EXPECT_EQ(parse_json(without.out).at("text"), "<|bos|><|user|>Tell me a story.<|end|>");
}

TEST_F(CliTest, SeveralChoicesAreAllThere) {
  const std::vector<std::string> arguments = {
      "--prompt", "The",          "--max-tokens",  "6", "--n", "3",
      "--json",   "--ignore-eos", "--temperature", "1"};
  const ProcessResult result = generate(kDemo, arguments);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json object = parse_json(result.out);
  ASSERT_EQ(object.at("choices").size(), 3U);
  EXPECT_EQ(object["choices"][0]["output_tokens"], object["output_tokens"]);
  EXPECT_NE(object["choices"][1]["output_tokens"], object["choices"][2]["output_tokens"]);
}

TEST_F(CliTest, BadPromptsAreErrors) {
  expect_error(generate(tiny_.path(), {"--prompt-ids", "1,99999"}), 1, "token 99999");
  expect_error(generate(kDemo, {"--prompt", "caf\xC3"}), 1, "UTF-8");
  expect_error(generate(kDemo, {"--chat", "caf\xC3"}), 1, "UTF-8");
  expect_error(generate(kDemo, {"--prompt", "a long story", "--max-model-len", "3"}), 1,
               "the context of 3");
  expect_error(generate(tiny_.path(), {"--prompt", "no tokenizer here"}), 1, "tokenizer");
  expect_error(generate(tiny_.path(), {"--chat", "no tokenizer here"}), 1, "tokenizer");
}

TEST_F(CliTest, HugeMaxTokensIsCutAtTheContext) {
  for (const char* huge : {"2147483647", "9223372036854775807"}) {
    const ProcessResult result =
        generate(tiny_.path(), {"--prompt-ids", "1,2,3", "--max-tokens", huge, "--ignore-eos",
                                "--max-model-len", "20", "--json"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const json object = parse_json(result.out);
    EXPECT_EQ(object.at("output_tokens").size(), 17U);
    EXPECT_EQ(object.at("finish_reason"), "length");
  }
}

TEST_F(CliTest, BrokenCheckpointsNameTheFileAndTheFault) {
  const auto fails = [&](const std::string& what) {
    expect_error(generate(tiny_.path(), {"--prompt-ids", "1"}), 1, what);
    SetUp();  // whole again
  };
  edit("config.json", "LlamaForCausalLM", "MambaForCausalLM");
  fails("MambaForCausalLM");
  edit("config.json", "\"llama\"", "\"mamba\"");
  fails("mamba");
  edit("config.json", "{", "[");
  fails("config.json");
  std::filesystem::resize_file(tiny_.file("model.safetensors"), 5000);
  fails("model.safetensors");
  std::filesystem::resize_file(tiny_.file("model.safetensors"), 4);
  fails("model.safetensors");
  edit("model.safetensors", "model.norm.weight", "model.nurm.weight");
  fails("model.norm.weight");
  edit("model.safetensors", "\"F32\"", "\"I32\"");
  fails("I32");
  std::filesystem::remove(tiny_.file("model.safetensors"));
  fails("safetensors");
  std::filesystem::remove(tiny_.file("config.json"));
  fails("config.json");
  expect_error(generate("/nonexistent", {"--prompt-ids", "1"}), 1, "/nonexistent");
}

TEST_F(CliTest, MemoryThatCannotBeHadIsAnError) {
  expect_error(generate(tiny_.path(), {"--prompt-ids", "1", "--kv-cache-memory", "900TiB"}), 1,
               "cpu: --kv-cache-memory asks for 921600.00 GiB");
  expect_error(generate(tiny_.path(), {"--prompt-ids", "1", "--kv-cache-memory", "64B"}), 1,
               "--kv-cache-memory");
}

TEST_F(CliTest, InterruptEndsStreamingCleanly) {
  const ProcessResult result =
      test::run_process({SLUICE_BINARY, "generate", kDemo, "--prompt", "Once", "--max-tokens",
                         "2000", "--ignore-eos", "--threads", "1"},
                        {"", true});
  EXPECT_EQ(result.exit_code, 130) << result.err;
  EXPECT_EQ(result.out.back(), '\n');
  EXPECT_THAT(result.err, HasSubstr("finish: cancelled"));
}

TEST_F(CliTest, TokenizeReadsStdin) {
  const ProcessResult ids = sluice_run({"tokenize", kDemo}, "Once upon a time");
  ASSERT_EQ(ids.exit_code, 0) << ids.err;
  const ProcessResult object = sluice_run({"tokenize", kDemo, "--json"}, "Once upon a time");
  const json parsed = parse_json(object.out);
  std::string joined;
  for (const auto& id : parsed.at("ids")) {
    joined += (joined.empty() ? "" : " ") + std::to_string(id.get<TokenId>());
  }
  EXPECT_EQ(ids.out, joined + "\n");
  EXPECT_EQ(parsed.at("text"), "Once upon a time");

  const ProcessResult plain =
      sluice_run({"tokenize", kDemo, "--jsonl", "--no-special"}, "\"Once upon\"\n\" a time\"\n");
  ASSERT_EQ(plain.exit_code, 0) << plain.err;
  EXPECT_EQ(std::count(plain.out.begin(), plain.out.end(), '\n'), 2);
  for (std::size_t begin = 0; begin < plain.out.size();) {
    const std::size_t end = plain.out.find('\n', begin);
    EXPECT_TRUE(parse_json(plain.out.substr(begin, end - begin)).is_array());
    begin = end + 1;
  }
}

TEST_F(CliTest, TokenizeErrors) {
  expect_error(sluice_run({"tokenize", kDemo}, "caf\xC3"), 1, "stdin");
  expect_error(sluice_run({"tokenize", kDemo, "--jsonl"}, "not json\n"), 1, "line 1");
  expect_error(sluice_run({"tokenize", kDemo, "--jsonl", "--json"}), 2, "--json");
  expect_error(sluice_run({"tokenize", "/nonexistent"}), 1, "/nonexistent");
  expect_error(sluice_run({"tokenize"}), 2, "MODEL");
  for (const std::string flag : {"--json", "--jsonl"}) {
    const std::string command = "\"$0\" tokenize models/demo " + flag + " < models";
    const auto unreadable = test::run_process({"/bin/sh", "-c", command, SLUICE_BINARY}, {});
    expect_error(unreadable, 1, "sluice: stdin: cannot be read");
  }
  TempDirectory files;
  const auto chat_fails = [&](const std::string& text, const std::string& what) {
    files.write("chat.json", text);
    expect_error(sluice_run({"tokenize", kDemo, "--chat", files.file("chat.json")}), 1, what);
  };
  chat_fails("[]", "chat.json");
  chat_fails("{", "not valid JSON");
  chat_fails("{\"messages\":" + std::string(100000, '['), "nested deeper");
  chat_fails("{}", "messages");
  chat_fails(R"({"messages":[{"role":"wizard","content":"x"}]})", "Unknown role: wizard");
  chat_fails(R"({"messages":7})", "messages");
  chat_fails(R"({"messages":[],"add_generation_prompt":1})", "add_generation_prompt");
  expect_error(sluice_run({"tokenize", kDemo, "--chat", "/nonexistent"}), 1, "/nonexistent");
}

TEST_F(CliTest, DoctorDescribesTheMachine) {
  const ProcessResult text = sluice_run({"doctor"});
  EXPECT_EQ(text.exit_code, 0) << text.out;
  EXPECT_THAT(text.out, AllOf(HasSubstr("cores"), HasSubstr("memory"), HasSubstr("cuda"),
                              HasSubstr("isa"), HasSubstr("huge pages"), HasSubstr("sandbox")));
  const ProcessResult object = sluice_run({"doctor", "--json"});
  EXPECT_EQ(object.exit_code, 0);
  const json parsed = parse_json(object.out);
  EXPECT_TRUE(parsed.at("usable").get<bool>());
  for (const auto& check : parsed.at("checks")) {
    EXPECT_FALSE(check.at("name").get<std::string>().empty());
    EXPECT_FALSE(check.at("found").get<std::string>().empty()) << check;
  }
  expect_error(sluice_run({"doctor", "x"}), 2, "x");
}

TEST_F(CliTest, DoctorWarnsOfLimitsThatOnlyLargeModelsNeed) {
  if (kAddressSanitized) GTEST_SKIP() << "the address sanitizer needs terabytes of addresses";
  const char* limited = "ulimit -v 16777216; exec \"$0\" doctor";
  const ProcessResult text = test::run_process({"/bin/sh", "-c", limited, SLUICE_BINARY}, {});
  EXPECT_EQ(text.exit_code, 0) << text.out;
  EXPECT_THAT(text.out, AllOf(HasSubstr("warning  address space"), HasSubstr("ulimit -v")));
}

}  // namespace
}  // namespace sluice
