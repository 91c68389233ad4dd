// The arguments of `sluice bench serve` and `sluice bench capacity` as data, and their common path
// from arguments to a run against a server. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "loadgen/load_run.h"
#include "loadgen/report.h"
#include "loadgen/server_facts.h"
#include "loadgen/workload_spec.h"

namespace sluice {

// As given; absent = not given.
struct BenchArguments {
  // The server.
  std::string base_url = "http://127.0.0.1:8000";
  std::string endpoint = "/v1/completions";
  std::string model;
  std::string api_key;
  std::vector<std::string> headers;
  std::optional<std::int32_t> vocab_size;
  std::optional<std::int32_t> max_model_len;
  // The requests.
  std::optional<std::int64_t> num_prompts;
  std::string trace;
  std::string too_long = "refuse";
  double rate_scale = 1;
  double length_scale = 1;
  std::string lengths;
  std::optional<std::int32_t> input_len;
  std::optional<std::int32_t> output_len;
  std::uint64_t seed = 0;
  double temperature = 0;
  bool ignore_eos = false;
  // Their times.
  std::string request_rate = "inf";
  double burstiness = 1;
  std::string ramp_up;
  std::optional<double> ramp_up_start;
  std::optional<double> ramp_up_end;
  std::optional<std::int32_t> max_concurrency;
  std::int64_t num_warmups = 1;
  std::optional<double> duration;  // seconds
  double request_timeout = 600;    // seconds
  double ready_check_timeout = 0;  // seconds; 0: the server must be ready
  // The output.
  std::vector<std::string> goodput;
  std::string percentile_metrics = "ttft,tpot,itl";
  std::string metric_percentiles = "99";
  bool json = false;
  bool no_progress = false;
  std::string report;
  bool save_result = false;
  bool save_detailed = false;
  std::string result_dir;
  std::string result_filename;
  // Capacity.
  std::optional<double> tbt_slo_ms;
  double scheduling_delay_s = 2;
  double start_rate = 1;
  double resolution = 0.025;
  int max_probes = 20;
  double probe_seconds = 30;
};

// The requests of a probe, unless its rate needs more to last probe_seconds.
inline constexpr std::int64_t kProbeRequests = 128;

// The checked options of a run against this server; the workload's rate is still to choose.
struct BenchPlan {
  LoadOptions load;
  WorkloadSpec workload;
  ServerFacts server;
  std::vector<TokenId> token_ids;  // that prompts are made of; empty: texts
  std::vector<double> percentiles;
  std::vector<std::string> metrics;
};

// The value of --lengths, or its equivalent from --random-input-len and --random-output-len.
Result<std::string> lengths_option(const BenchArguments& arguments);

// Queries the server for the facts that it needs. Errors name the option.
Result<BenchPlan> make_bench_plan(const BenchArguments& arguments);

// "20261121-205640", UTC.
std::string timestamp_text();

// Writes the page of --report, and logs where it is and what it lacks.
Status write_bench_report(const std::string& folder, const ReportInput& input);

}  // namespace sluice
