// `sluice simulate`: runs the production scheduler on virtual time and a model of the hardware: one
// run, a capacity search, a search for the best deployment, or the list of known models and GPUs.
// One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace sluice {

// As given; absent or empty = not given.
struct SimulateArguments {
  // The machine.
  std::string gpu;
  std::string model;
  std::int32_t tp = 1;
  std::int32_t pp = 1;
  std::int32_t gpus_per_node = 8;
  double network_gbps = 100;
  double lent_traffic = 0;  // GB/s
  std::string host_stack = "native";
  std::string profile;  // instead of a GPU and a model
  std::optional<std::int64_t> kv_tokens;
  std::string kv_tier;  // the link
  std::string kv_stream;
  std::optional<std::int64_t> kv_tier_tokens;
  std::string kv_tier_eviction = "lru";
  std::string kv_tier_loads = "meeting";
  std::int32_t replicas = 1;
  std::string dispatch = "round-robin";
  std::string autoscale;  // RATE,CHECK,START
  std::string instances;  // MOST,ROOM,START or MOST,ROOM,START,IDLE
  // The scheduler.
  std::string scheduler = "stall-free";
  std::string token_budget = "512";
  std::optional<std::int32_t> max_num_seqs;
  std::optional<std::int32_t> max_model_len;
  std::int32_t block_size = 16;
  double predictor_noise = 0.05;
  double predictor_scale = 1;
  double predictor_skew = 0;
  bool no_predictor_learning = false;
  double step_jitter = 0;
  // The requests.
  std::optional<double> qps;
  double burstiness = 1;
  std::optional<std::int64_t> num_requests;
  std::string lengths;
  std::string rate_steps;
  std::int32_t shared_prefix = 0;
  std::int32_t prefixes = 1;
  std::string trace;
  std::string too_long = "refuse";
  double rate_scale = 1;
  double length_scale = 1;
  std::uint64_t seed = 0;
  // Many functions (simulate_functions.h), instead of one machine.
  std::string functions;
  std::string cluster;
  std::string systems = "sluice";
  std::string arrivals = "normal";
  std::string calls;  // a file; instead of arrivals
  double function_rate = 0.01;
  double seconds = 14'400;
  std::int32_t prompt_tokens = 100;
  std::int32_t output_tokens = 100;
  // The question.
  bool capacity = false;
  bool search = false;
  bool list = false;
  std::optional<double> tbt_slo_ms;
  std::optional<double> tbt_slo_factor;
  double scheduling_delay_s = 2;
  double start_rate = 1;
  double resolution = 0.025;
  int max_probes = 20;
  std::optional<std::int32_t> gpus;
  // The output.
  std::string metric_percentiles = "99";
  bool json = false;
  bool no_progress = false;
};

// Returns the exit code.
int run_simulate(const SimulateArguments& arguments);

}  // namespace sluice
