// `sluice simulate` as a user runs it: figures, JSON, one clear line for each error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/json.h"
#include "profile/machine_profile.h"
#include "profile/test_profiles.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/subprocess.h"

namespace sluice {
namespace {

using nlohmann::json;
using test::ProcessResult;
using testing::HasSubstr;

ProcessResult simulate(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {SLUICE_BINARY, "simulate", "--no-progress"});
  return test::run_process(arguments, {"", false});
}

ProcessResult simulate_on(const std::string& gpu, const std::string& model,
                          std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"--gpu", gpu, "--model", model});
  return simulate(std::move(arguments));
}

json result_of(const ProcessResult& result) {
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return parse_json(result.out);
}

void expect_refused(const ProcessResult& result, int code, const std::string& what) {
  EXPECT_EQ(result.exit_code, code) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  EXPECT_THAT(result.err, HasSubstr(what));
}

TEST(SimulateCli, ARunHasTheFiguresOfBenchServe) {
  const std::vector<std::string> arguments = {
      "--qps", "2",      "--num-requests",       "60",   "--seed",
      "3",     "--json", "--metric-percentiles", "50,99"};
  const ProcessResult first = simulate_on("a100-80g", "mistral-7b", arguments);
  const json r = result_of(first);
  EXPECT_EQ(r["completed"], 60);
  EXPECT_EQ(r["failed"], 0);
  EXPECT_EQ(r["scheduler"], "stall-free");
  EXPECT_EQ(r["token_budget"], 512);
  for (const char* key : {"median_ttft_ms", "p99_tpot_ms", "p99_itl_ms", "request_throughput",
                          "output_throughput", "steps", "realised_request_rate"}) {
    EXPECT_GT(r[key].get<double>(), 0) << key;
  }
  EXPECT_EQ(first.err, "");
  EXPECT_EQ(simulate_on("a100-80g", "mistral-7b", arguments).out, first.out);
}

TEST(SimulateCli, FunctionsOfAFileOnACluster) {
  const TempDirectory folder;
  const std::string functions = folder.file("functions.toml");
  ASSERT_TRUE(
      write_file(functions, "[[tenant]]\nname = \"t\"\nkey_sha256 = \"" + std::string(64, 'a') +
                                "\"\n[[backbone]]\nname = \"llama2-7b\"\ndirectory = \"x\"\n"
                                "tenants = [\"t\"]\n"));
  const std::string cluster = std::string(SLUICE_SOURCE_DIR) + "/examples/cluster-l40s.toml";
  const std::vector<std::string> arguments = {"--functions", functions,     "--cluster", cluster,
                                              "--systems",   "sluice,vllm", "--json"};
  const ProcessResult first = simulate(arguments);
  const json reports = result_of(first);
  ASSERT_EQ(reports.size(), 2U);
  EXPECT_EQ(reports[0]["system"], "sluice");
  EXPECT_GT(reports[0]["calls"], 50);
  EXPECT_LT(reports[0]["cost"], reports[1]["cost"]);
  EXPECT_EQ(simulate(arguments).out, first.out);
  expect_refused(simulate({"--functions", functions}), 2, "--cluster");
  expect_refused(simulate({"--functions", functions, "--cluster", cluster, "--systems", "x"}), 2,
                 "there is no system 'x'");
  expect_refused(simulate({"--functions", cluster, "--cluster", cluster}), 2, "machine");
}

TEST(SimulateCli, SeedsGiveOtherRequests) {
  const auto tokens = [](const std::string& seed) {
    return result_of(simulate_on(
        "h100", "llama-3-8b",
        {"--qps", "5", "--num-requests", "50", "--seed", seed, "--json"}))["total_input_tokens"];
  };
  EXPECT_NE(tokens("1"), tokens("2"));
}

// The parts of the stages' time add up to the whole.
TEST(SimulateCli, PipelinesAccountForTheirTime) {
  const json r = result_of(
      simulate_on("a40", "llama-2-70b",
                  {"--tp", "4", "--pp", "2", "--qps", "0.5", "--num-requests", "80", "--json"}));
  double sum = 0;
  for (const auto& [key, value] : r["stage_times"].items()) sum += value.get<double>();
  EXPECT_NEAR(sum, 2 * r["duration"].get<double>(), 0.05 * sum);
  EXPECT_GT(r["stage_times"]["prefill_decode_s"].get<double>(), 0);
  EXPECT_THAT(simulate_on("a40", "llama-2-70b",
                          {"--tp", "4", "--pp", "2", "--qps", "0.5", "--num-requests", "20"})
                  .out,
              HasSubstr("bubbles by prefill lengths"));
}

TEST(SimulateCli, ReplicasAreFaster) {
  const auto ttft = [](const std::string& replicas, const std::string& dispatch) {
    return result_of(simulate_on("a100-80g", "llama-3-8b",
                                 {"--qps", "8", "--num-requests", "200", "--replicas", replicas,
                                  "--dispatch", dispatch, "--json"}))["mean_ttft_ms"]
        .get<double>();
  };
  EXPECT_LT(ttft("4", "round-robin"), ttft("1", "round-robin") / 4);
  EXPECT_LT(ttft("4", "least-loaded"), ttft("1", "round-robin") / 4);
}

TEST(SimulateCli, CapacityMeetsTheSloAndTheProbeAboveDoesNot) {
  const json r = result_of(simulate_on("a100-80g", "mistral-7b",
                                       {"--capacity", "--tbt-slo-factor", "5", "--num-requests",
                                        "200", "--resolution", "0.1", "--json"}));
  const double capacity = r["capacity_request_rate"];
  EXPECT_GT(capacity, 0.5);
  EXPECT_GT(r["failing_request_rate"].get<double>(), capacity);
  EXPECT_NEAR(r["tbt_slo_ms"].get<double>(), 5 * r["reference_decode_ms"].get<double>(), 1e-3);
  for (const json& probe : r["probes"]) {
    EXPECT_EQ(probe["met"].get<bool>(), probe["request_rate"].get<double>() <= capacity);
  }
}

TEST(SimulateCli, BudgetsFollowTheSlo) {
  const auto budget = [](const std::string& slo) {
    return result_of(simulate_on("h100", "llama-3-8b",
                                 {"--qps", "1", "--num-requests", "10", "--token-budget", "auto",
                                  "--tbt-slo-ms", slo, "--json"}))["token_budget"]
        .get<int>();
  };
  EXPECT_GT(budget("200"), budget("50"));
  EXPECT_EQ(budget("50") % 128, 0);
  const json by_time = result_of(
      simulate_on("h100", "llama-3-8b",
                  {"--qps", "1", "--num-requests", "10", "--token-budget", "time", "--tbt-slo-ms",
                   "100", "--max-num-seqs", "32", "--predictor-noise", "0.1", "--json"}));
  EXPECT_GT(by_time["predictor_error"]["p90"].get<double>(), 0);
}

TEST(SimulateCli, APredictorCanBeMadeWrongAndStepsJitter) {
  const auto run = [](std::vector<std::string> options) {
    options.insert(options.end(), {"--qps", "2", "--num-requests", "60", "--token-budget", "time",
                                   "--tbt-slo-ms", "60", "--max-num-seqs", "32", "--json"});
    return result_of(simulate_on("a100-80g", "llama-3-8b", options));
  };
  const json wrong = run({"--predictor-scale", "0.8", "--predictor-noise", "0"});
  EXPECT_NEAR(wrong["predictor_error"]["median"].get<double>(), 0.2, 0.03);
  const json skewed = run({"--predictor-skew", "0.5", "--predictor-noise", "0"});
  EXPECT_GT(skewed["predictor_error"]["median"].get<double>(), 0.03);
  const json stubborn = run({"--predictor-scale", "1.3", "--no-predictor-learning"});
  EXPECT_NE(stubborn["steps"], run({"--predictor-scale", "1.3"})["steps"]);
  EXPECT_NE(run({"--step-jitter", "0.2"})["duration"], run({})["duration"]);
}

TEST(SimulateCli, TheSearchSortsByCapacity) {
  const json r = result_of(simulate_on("a100-80g", "mistral-7b",
                                       {"--search", "--gpus", "2", "--tbt-slo-ms", "150",
                                        "--num-requests", "60", "--resolution", "0.2", "--json"}));
  ASSERT_EQ(r["deployments"].size(), 3 * 6u);
  EXPECT_GT(r["deployments"][0]["capacity_request_rate"],
            r["deployments"][17]["capacity_request_rate"]);
  EXPECT_EQ(r["tried"], 18);
}

TEST(SimulateCli, KnownNamesAreListed) {
  const json known = result_of(simulate({"--list", "--json"}));
  EXPECT_GE(known["gpus"].size(), 5u);
  EXPECT_GE(known["models"].size(), 5u);
  EXPECT_THAT(simulate({"--list"}).out, HasSubstr("falcon-180b"));
}

TEST(SimulateCli, ATraceHasItsOwnTimes) {
  TempDirectory folder;
  folder.write("trace.csv",
               "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n"
               "2023-11-16 18:15:50.9951690,396,109\n");
  const std::string file = folder.file("trace.csv");
  const json r = result_of(simulate_on("l40s", "llama-3-8b", {"--trace", file, "--json"}));
  EXPECT_EQ(r["completed"], 2);
  EXPECT_EQ(r["total_output_tokens"], 44 + 109);
  EXPECT_GT(r["duration"].get<double>(), 4.3);
  expect_refused(simulate_on("l40s", "llama-3-8b", {"--trace", file, "--qps", "1"}), 2, "--trace");
  expect_refused(simulate_on("l40s", "llama-3-8b", {"--trace", folder.file("none")}), 1, "none");
  folder.write("bad.csv",
               "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,-3,44\n");
  expect_refused(simulate_on("l40s", "llama-3-8b", {"--trace", folder.file("bad.csv")}), 2, "-3");
}

TEST(SimulateCli, AProfileIsAMachine) {
  TempDirectory folder;
  const std::string file = folder.file("profile.json");
  MachineProfile profile = test::test_profile(0.02);
  ASSERT_TRUE(fit_profile(profile).has_value());
  ASSERT_TRUE(save_profile(profile, file).has_value());
  const auto run = [&](std::vector<std::string> options) {
    options.insert(options.begin(), {"--profile", file, "--num-requests", "20", "--lengths",
                                     "fixed:200,20", "--json"});
    return simulate(options);
  };
  const json r = result_of(run({"--qps", "0.2"}));
  EXPECT_EQ(r["model"], "made-up");
  EXPECT_EQ(r["max_num_seqs"], 32);
  // A prompt of 200 tokens is 13 tiles; alone it takes about 50 ms on the profile's curve.
  EXPECT_NEAR(r["median_ttft_ms"].get<double>(), 50 + 13 * 2 + 3, 15);
  EXPECT_GT(result_of(run({"--qps", "0.2", "--tbt-slo-ms", "300", "--token-budget",
                           "time"}))["predictor_error"]["median"]
                .get<double>(),
            0);
  EXPECT_GT(result_of(run({"--capacity", "--tbt-slo-ms", "200", "--token-budget", "auto",
                           "--resolution", "0.2"}))["capacity_request_rate"]
                .get<double>(),
            0);
  expect_refused(run({"--qps", "1", "--max-num-seqs", "64"}), 2, "--max-num-seqs must be between");
  expect_refused(run({"--qps", "1", "--predictor-skew", "0.1"}), 2, "are for --gpu and --model");
  expect_refused(run({"--qps", "1", "--lent-traffic", "1"}), 2, "is for --gpu and --model");
  expect_refused(run({"--qps", "1", "--kv-tokens", "3"}), 2, "--kv-tokens 3 is not one block");
  expect_refused(run({"--qps", "1", "--token-budget", "auto", "--tbt-slo-ms", "1"}), 2,
                 "the smallest that can be kept");
}

TEST(SimulateCli, ErrorsNameTheFault) {
  const auto refused = [](const std::vector<std::string>& options, const std::string& what) {
    std::vector<std::string> arguments = {"--qps", "1", "--num-requests", "5"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    expect_refused(simulate_on("a40", "mistral-7b", arguments), 2, what);
  };
  refused({"--scheduler", "fifo"}, "--scheduler: scheduler 'fifo' is unknown");
  refused({"--token-budget", "0"}, "--token-budget must be auto, time or a whole number");
  refused({"--token-budget", "12x"}, "--token-budget");
  refused({"--token-budget", "auto"}, "needs --tbt-slo-ms");
  refused({"--token-budget", "auto", "--tbt-slo-ms", "1"}, "no budget meets 1.0 ms; with the");
  refused({"--token-budget", "time", "--tbt-slo-ms", "1"}, "the smallest that can be kept");
  refused({"--token-budget", "time", "--tbt-slo-ms", "300", "--scheduler", "unified"},
          "cannot plan by time");
  refused({"--predictor-scale", "0"}, "--predictor-scale must be between 0.1 and 10");
  refused({"--predictor-skew", "-1"}, "--predictor-skew must be between 0 and 9");
  refused({"--step-jitter", "1"}, "--step-jitter must be between 0 and 0.9");
  refused({"--tp", "3"}, "--tp, --pp: tp 3 does not divide the 32 heads");
  refused({"--pp", "0"}, "--pp must be between 1");
  refused({"--max-num-seqs", "0"}, "--max-num-seqs must be between 1");
  refused({"--max-model-len", "1"}, "--max-model-len must be between 2");
  refused({"--block-size", "0"}, "--block-size");
  refused({"--replicas", "0"}, "--replicas");
  refused({"--dispatch", "random"}, "round-robin, least-loaded");
  refused({"--host-stack", "c"}, "native, python");
  refused({"--network-gbps", "0"}, "--network-gbps");
  refused({"--lent-traffic", "1000"}, "NVLink in one direction");
  refused({"--burstiness", "-1"}, "--burstiness");
  refused({"--metric-percentiles", "50,,99"}, "--metric-percentiles");
  refused({"--num-requests", "0"}, "--num-requests");
  refused({"--lengths", "fixed:0,1"}, "--lengths");
  refused({"--tbt-slo-ms", "5", "--tbt-slo-factor", "5"}, "exclude each other");
  refused({"--capacity", "--search"}, "exclude each other");
  refused({"--capacity", "--tbt-slo-ms", "5"}, "leave out --qps");
  refused({"--kv-tokens", "100"}, "--kv-tokens is for --profile");
  refused({"--too-long", "cut"}, "refuse, shorten, skip");
  refused({"--instances", "4,16"}, "MOST,ROOM,START");
  refused({"--instances", "4,16,1", "--replicas", "2"}, "start by need");
}

TEST(SimulateCli, ErrorsNameTheMissingOption) {
  expect_refused(simulate({"--qps", "1"}), 2, "--gpu and --model are needed");
  expect_refused(simulate_on("b200", "mistral-7b", {"--qps", "1"}), 2, "known are a100-80g");
  expect_refused(simulate_on("a40", "gpt-4", {"--qps", "1"}), 2, "known are mistral-7b");
  expect_refused(simulate_on("a40", "mistral-7b", {}), 2,
                 "--qps, --rate-steps or --trace is needed");
  expect_refused(simulate_on("a40", "mistral-7b", {"--qps", "0"}), 2, "--qps");
  expect_refused(simulate_on("a40", "mistral-7b", {"--capacity"}), 2, "--tbt-slo-ms");
  expect_refused(simulate_on("a40", "llama-2-70b", {"--qps", "1"}), 1, "GiB are missing");
  expect_refused(simulate({"--profile", "/nonexistent/p.json", "--qps", "1"}), 1,
                 "/nonexistent/p.json");
  expect_refused(simulate({"--profile", "p.json", "--gpu", "a40"}), 2, "leave out --gpu");
}

TEST(SimulateCli, AnAutoscalerRedirectsABurst) {
  const json r =
      result_of(simulate_on("a100-80g", "llama-3-8b",
                            {"--rate-steps", "1x20,8x20,1x20", "--lengths", "fixed:200,50",
                             "--burstiness", "100", "--autoscale", "1,2,5", "--json"}));
  EXPECT_NEAR(r["redirected_requests"].get<int>(), 140, 20);
  EXPECT_EQ(r["failed"], 0);
  EXPECT_GT(r["kv_peak_held_blocks"], 0);
  expect_refused(simulate_on("a100-80g", "llama-3-8b", {"--qps", "1", "--autoscale", "1,2"}), 2,
                 "--autoscale: '1,2' is not RATE,CHECK,START");
}

ProcessResult profile_memory(const std::string& model, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {SLUICE_BINARY, "profile", model, "--gpu", "h100"});
  return test::run_process(arguments, {"", false});
}

// Profiles of two models are the input of the placer.
TEST(SimulateCli, ProfilesOfMemoryFeedThePlacer) {
  const std::vector<std::string> objective = {
      "--slo-ttft-ms",     "1000", "--slo-tbt-ms",    "100", "--num-requests", "400",
      "--ttft-percentile", "50",   "--burst-seconds", "5",   "--lengths",      "fixed:600,200"};
  auto arguments = objective;
  arguments.emplace_back("--json");
  const json lender = result_of(profile_memory("llama-3-8b", arguments));
  EXPECT_EQ(lender["device"], "h100");
  EXPECT_EQ(lender["memory"]["kind"], "producer");
  EXPECT_EQ(lender["memory"]["lend_threshold_gb"], 10);
  EXPECT_NEAR(
      lender["memory"]["placement"]["memory_gb"].get<double>(),
      lender["memory"]["kv_gb"].get<double>() - lender["memory"]["kv_in_use_gb"].get<double>(),
      1e-6);
  arguments.insert(arguments.end(), {"--max-model-len", "2048"});
  const json borrower = result_of(profile_memory("opt-30b", arguments));
  EXPECT_EQ(borrower["memory"]["kind"], "consumer");
  EXPECT_EQ(borrower["memory"]["bursts"].size(), 2U);
  EXPECT_LT(borrower["memory"]["placement"]["memory_gb"], 0);

  const json cluster = {
      {"servers", 1},
      {"gpus_per_server", 2},
      {"gpu_memory_gb", 80},
      {"models", {lender["memory"]["placement"], borrower["memory"]["placement"]}}};
  TempDirectory folder;
  folder.write("cluster.json", cluster.dump());
  const json placed = result_of(test::run_process(
      {SLUICE_BINARY, "place", folder.path() + "/cluster.json", "--json", "--solver", ""},
      {"", false}));
  ASSERT_EQ(placed["servers"][0]["pairs"].size(), 1U);
  EXPECT_EQ(placed["servers"][0]["pairs"][0]["producer"], "llama-3-8b#0");
  EXPECT_EQ(placed["servers"][0]["pairs"][0]["consumer"], "opt-30b#0");

  const auto text = profile_memory("llama-3-8b", objective);
  EXPECT_THAT(text.out, HasSubstr("memory       producer, +"));
}

TEST(SimulateCli, AProfileOfMemoryWithFixedBatches) {
  const json found = result_of(
      profile_memory("llama-3-8b", {"--fixed-batches", "--lengths", "fixed:1000,50", "--json"}));
  const json& memory = found["memory"];
  EXPECT_GE(memory["saturated_batch"], 2);
  EXPECT_EQ(memory["batches"][0]["batch"], 1);
  EXPECT_GT(memory["batches"][1]["output_throughput"], memory["batches"][0]["output_throughput"]);
}

TEST(SimulateCli, WrongOptionsOfAProfileOfMemoryAreNamed) {
  const std::vector<std::string> both = {"--slo-ttft-ms", "1000", "--slo-tbt-ms", "100"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), both.begin(), both.end());
    return profile_memory("llama-3-8b", more);
  };
  expect_refused(profile_memory("llama-3-8b", {}), 2, "give --slo-ttft-ms and --slo-tbt-ms");
  expect_refused(profile_memory("llama-3-8b", {"--slo-ttft-ms", "1000"}), 2, "go together");
  expect_refused(profile_memory("llama-3-8b", {"--fixed-batches"}), 2, "--lengths fixed:");
  expect_refused(with({"--fixed-batches"}), 2, "--fixed-batches");
  expect_refused(with({"--ttft-percentile", "0"}), 2, "--ttft-percentile");
  expect_refused(with({"--burst-seconds", "0"}), 2, "--burst-seconds");
  expect_refused(with({"--lend-threshold", "much"}), 2, "--lend-threshold");
  expect_refused(with({"--threads", "2"}), 2, "of the engine options only");
  expect_refused(with({"--time-limit", "2"}), 2, "--time-limit");
  expect_refused(with({"--max-num-seqs", "many"}), 2, "--max-num-seqs");
  expect_refused(profile_memory("nothing", both), 2, "--model");
  expect_refused(profile_memory("llama-3-8b", {"--slo-ttft-ms", "1000", "--slo-tbt-ms", "0.01",
                                               "--num-requests", "50"}),
                 2, "no rate meets");
}

}  // namespace
}  // namespace sluice
