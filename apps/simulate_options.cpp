#include "apps/simulate_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "base/text.h"
#include "function_sim/function_simulation.h"
#include "scheduler/policy.h"
#include "workload/lengths.h"

namespace sluice {
namespace {

void add_deployment_options(CLI::App& command, SimulateArguments& a) {
  const std::string group = "Machine";
  command.add_option("--gpu", a.gpu, "by name; --list shows them")->group(group);
  command.add_option("--model", a.model, "by name; --list shows them")->group(group);
  command.add_option("--tp", a.tp, "GPUs that share each layer (default 1)")->group(group);
  command.add_option("--pp", a.pp, "stages of a pipeline (default 1)")->group(group);
  command
      .add_option("--gpus-per-node", a.gpus_per_node, "beyond, a network joins them (default 8)")
      ->group(group);
  command.add_option("--network-gbps", a.network_gbps, "between nodes, in Gbit/s (default 100)")
      ->group(group);
  command
      .add_option("--lent-traffic", a.lent_traffic,
                  "GB/s that other GPUs move from and to memory that each of these lends over "
                  "NVLink (default 0)")
      ->group(group);
  command
      .add_option("--host-stack", a.host_stack,
                  "what a step costs the host: native (this engine, default) or python (engines "
                  "of 2023 to 2024)")
      ->group(group);
  command
      .add_option("--profile", a.profile,
                  "a machine's measured profile (sluice profile) instead of --gpu and --model")
      ->group(group);
  command
      .add_option("--step-jitter", a.step_jitter,
                  "each step takes up to so much more or less, relative, at random (default 0)")
      ->group(group);
  command
      .add_option("--kv-tokens", a.kv_tokens,
                  "KV memory in tokens, with --profile (default: enough for all that may run)")
      ->group(group);
  command
      .add_option("--kv-tier", a.kv_tier,
                  "a tier below KV memory over this link: pcie, nvlink, GB/s, or free")
      ->group(group);
  command
      .add_option("--kv-stream", a.kv_stream,
                  "instead: all KV lies below memory and is read in every step, as FlexGen does")
      ->group(group);
  command
      .add_option("--kv-tier-tokens", a.kv_tier_tokens,
                  "its size in tokens, per replica (default 16 times the KV memory)")
      ->group(group);
  command
      .add_option("--kv-tier-eviction", a.kv_tier_eviction,
                  "which block makes room: lru (default) or seconds (of computation saved)")
      ->group(group)
      ->check(CLI::IsMember({"lru", "seconds"}));
  command
      .add_option(
          "--kv-tier-loads", a.kv_tier_loads,
          "meeting (default): a tier about as fast as the model loads a prompt from the back "
          "while its front is computed; first: loads end before a prompt begins")
      ->group(group)
      ->check(CLI::IsMember({"meeting", "first"}));
}

// Copies of the deployment: how many, and which one gets a request.
void add_replica_options(CLI::App& command, SimulateArguments& a) {
  const std::string group = "Machine";
  command.add_option("--replicas", a.replicas, "copies of it all (default 1)")->group(group);
  command
      .add_option("--dispatch", a.dispatch,
                  "requests to replicas: round-robin (default) or least-loaded")
      ->group(group);
  command
      .add_option("--autoscale", a.autoscale,
                  "RATE,CHECK,START: a replica more, START seconds after the rate, looked at every "
                  "CHECK seconds, is over 1.5 times RATE; it takes the requests beyond RATE")
      ->group(group);
  command
      .add_option("--instances", a.instances,
                  "MOST,ROOM,START[,IDLE]: up to MOST replicas that start by need, from none: one "
                  "more, ready after START seconds, for a request that finds ROOM requests at "
                  "each; it ends IDLE seconds (default 0) after its last request")
      ->group(group);
}

void add_function_options(CLI::App& command, SimulateArguments& a) {
  const std::string group = "Many functions";
  command
      .add_option("--functions", a.functions,
                  "a functions file of sluice gateway: simulates its functions on a cluster; takes "
                  "the options of this group, --trace, --seed and --json")
      ->group(group);
  command.add_option("--cluster", a.cluster, "the TOML file of the cluster and its times")
      ->group(group);
  command
      .add_option("--systems", a.systems,
                  fmt::format("names with commas between them, or all (default sluice): {}",
                              join(system_names(), ", ")))
      ->group(group);
  command
      .add_option("--arrivals", a.arrivals,
                  "gaps between a function's calls: predictable, normal (default), bursty")
      ->group(group);
  command
      .add_option(
          "--calls", a.calls,
          "a CSV file of calls (seconds,function,prompt_tokens,output_tokens; a function is "
          "TENANT/NAME), instead of made ones")
      ->group(group);
  command.add_option("--function-rate", a.function_rate, "calls per second of each (default 0.01)")
      ->group(group);
  command.add_option("--seconds", a.seconds, "of calls (default 14400)")->group(group);
  command.add_option("--prompt-tokens", a.prompt_tokens, "mean (default 100)")
      ->check(CLI::Range(1, 1 << 20))
      ->group(group);
  command.add_option("--output-tokens", a.output_tokens, "mean (default 100)")
      ->check(CLI::Range(1, 1 << 20))
      ->group(group);
}

void add_scheduler_options(CLI::App& command, SimulateArguments& a) {
  const std::string group = "Scheduling";
  command
      .add_option("--scheduler", a.scheduler,
                  fmt::format("one of {} (default stall-free)", join(policy_names(), ", ")))
      ->group(group);
  command
      .add_option("--token-budget", a.token_budget,
                  "tokens per step (default 512); auto: the largest within the SLO; time: chunks "
                  "by time, with a predictor fitted to noisy measurements of this machine")
      ->group(group);
  command
      .add_option("--predictor-noise", a.predictor_noise,
                  "error of those measurements, relative (default 0.05)")
      ->group(group);
  command
      .add_option("--predictor-scale", a.predictor_scale, "factor on its predictions (default 1)")
      ->group(group);
  command
      .add_option("--predictor-skew", a.predictor_skew,
                  "largest error of each of its coefficients, relative (default 0)")
      ->group(group);
  command
      .add_flag("--no-predictor-learning", a.no_predictor_learning,
                "measured steps do not correct the predictor")
      ->group(group);
  command
      .add_option("--max-num-seqs", a.max_num_seqs,
                  "sequences that run at once, per replica (default 128, or the profile's)")
      ->group(group);
  command
      .add_option("--max-model-len", a.max_model_len,
                  "context, prompt and output (default 8192; 16384 with arxiv lengths; the "
                  "profile's)")
      ->group(group);
  command.add_option("--block-size", a.block_size, "tokens per KV block (default 16)")
      ->group(group);
}

void add_load_options(CLI::App& command, SimulateArguments& a) {
  const std::string group = "Requests";
  command.add_option("--qps", a.qps, "requests per second, Poisson; inf: all at once")
      ->group(group);
  command
      .add_option("--burstiness", a.burstiness,
                  "shape of the gaps' gamma distribution: 1 Poisson (default), below 1 burstier")
      ->group(group);
  command
      .add_option("--num-requests", a.num_requests,
                  "default 2048; of a trace: the first ones (default all)")
      ->group(group);
  command
      .add_option("--lengths", a.lengths,
                  fmt::format("{} or a csv file (default sharegpt)", join(length_names(), ", ")))
      ->group(group);
  command
      .add_option("--rate-steps", a.rate_steps,
                  "instead of --qps: RATExSECONDS with commas between steps, such as 2x60,10x30")
      ->group(group);
  command
      .add_option("--shared-prefix", a.shared_prefix,
                  "tokens that prompts have in common, a multiple of 512, besides their lengths")
      ->group(group);
  command.add_option("--prefixes", a.prefixes, "so many different ones (default 1)")
      ->check(CLI::Range(1, 1 << 20))
      ->group(group);
  command.add_option("--trace", a.trace, "Azure LLM csv or Mooncake jsonl, with its times")
      ->group(group);
  command
      .add_option("--too-long", a.too_long,
                  "requests of a trace beyond the context: refuse (default), shorten or skip")
      ->group(group);
  command.add_option("--rate-scale", a.rate_scale, "2: the trace arrives twice as fast")
      ->group(group);
  command
      .add_option("--length-scale", a.length_scale,
                  "0.25: a quarter of the tokens of a trace or of --lengths")
      ->group(group);
  command.add_option("--seed", a.seed, "of arrivals and lengths (default 0)")->group(group);
}

void add_question_options(CLI::App& command, SimulateArguments& a) {
  const std::string group = "Question";
  command
      .add_flag("--capacity", a.capacity,
                "the largest rate with P99 TBT within the SLO and a bounded queue")
      ->group(group);
  command
      .add_flag("--search", a.search,
                "token budget, tp and pp of the highest capacity on --gpus GPUs")
      ->group(group);
  command.add_flag("--list", a.list, "the GPUs and models that are known")->group(group);
  command.add_option("--tbt-slo-ms", a.tbt_slo_ms, "bound of P99 TBT")->group(group);
  command
      .add_option("--tbt-slo-factor", a.tbt_slo_factor,
                  "the same as a multiple of a decode step of 32 sequences at 4k context (the "
                  "paper: 5 strict, 25 relaxed)")
      ->group(group);
  command
      .add_option("--scheduling-delay-s", a.scheduling_delay_s,
                  "bound of the median delay until a request first runs (default 2)")
      ->group(group);
  command.add_option("--start-rate", a.start_rate, "first rate to try (default 1)")->group(group);
  command
      .add_option("--resolution", a.resolution, "of the capacity, as a share of it (default 0.025)")
      ->group(group);
  command.add_option("--max-probes", a.max_probes, "runs per capacity (default 20)")->group(group);
  command.add_option("--gpus", a.gpus, "of --search (default: those of a node)")->group(group);
}

}  // namespace

CLI::App* add_simulate(CLI::App& root, SimulateArguments& arguments) {
  CLI::App* command =
      root.add_subcommand("simulate", "The scheduler on virtual time and a model of the hardware");
  add_deployment_options(*command, arguments);
  add_replica_options(*command, arguments);
  add_scheduler_options(*command, arguments);
  add_load_options(*command, arguments);
  add_function_options(*command, arguments);
  add_question_options(*command, arguments);
  command->add_option("--metric-percentiles", arguments.metric_percentiles,
                      "such as 50,90,99 (default 99)");
  command->add_flag("--json", arguments.json, "one JSON object on stdout, nothing else");
  command->add_flag("--no-progress", arguments.no_progress, "no bar on stderr");
  return command;
}

}  // namespace sluice
