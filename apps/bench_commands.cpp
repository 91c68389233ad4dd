#include "apps/bench_commands.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string_view>

#include "apps/engine_flags.h"
#include "apps/number_range.h"
#include "base/text.h"
#include "workload/lengths.h"

namespace sluice {
namespace {

// The valid range of seconds, milliseconds and requests per second.
CLI::Validator above_zero() { return number_between(1e-6, 1e9); }

void add_server_options(CLI::App& command, BenchArguments& a) {
  const std::string group = "Server options";
  command
      .add_option("--base-url", a.base_url,
                  "http://HOST:PORT or https://... (default http://127.0.0.1:8000)")
      ->group(group);
  command
      .add_option("--endpoint", a.endpoint,
                  "/v1/completions (prompts of exact length, the default) or /v1/chat/completions")
      ->group(group);
  command.add_option("--model", a.model, "default: the server's first")->group(group);
  command.add_option("--api-key", a.api_key, "sent as a bearer token")->group(group);
  command.add_option("--header", a.headers, "NAME=VALUE of every request, repeatable")
      ->group(group)
      ->allow_extra_args(false);
  command
      .add_option("--vocab-size", a.vocab_size,
                  "draw prompts from the middle half of N token ids (default: from the token ids "
                  "that the server's /tokenize gives for common words)")
      ->group(group)
      ->check(CLI::Range(4, 1 << 30));
  command
      .add_option("--max-model-len", a.max_model_len,
                  "context, prompt and output (default: what /v1/models says)")
      ->group(group)
      ->check(CLI::Range(2, 1 << 30));
  command
      .add_option("--request-timeout", a.request_timeout,
                  "seconds without a byte after which a request has failed (600)")
      ->group(group)
      ->check(above_zero());
  command
      .add_option("--ready-check-timeout-sec", a.ready_check_timeout,
                  "wait so long for a server that is still loading (0: do not wait)")
      ->group(group)
      ->check(number_between(0, 1e6));
}

// The requests to a server or an engine.
void add_workload_options(CLI::App& command, BenchArguments& a) {
  const std::string group = "Request options";
  command.add_option("--num-prompts", a.num_prompts, "requests")
      ->group(group)
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{100'000'000}));
  command
      .add_option(
          "--lengths", a.lengths,
          fmt::format("{} or a csv file (default fixed:1024,128)", join(length_names(), ", ")))
      ->group(group);
  command
      .add_option("--random-input-len,--input-len", a.input_len,
                  "tokens of each prompt, instead of --lengths")
      ->group(group)
      ->check(CLI::Range(1, 1 << 30));
  command
      .add_option("--random-output-len,--output-len", a.output_len,
                  "tokens of each answer, instead of --lengths")
      ->group(group)
      ->check(CLI::Range(1, 1 << 30));
  command.add_option("--seed", a.seed, "of lengths, times and prompts (0)")->group(group);
  command.add_option("--temperature", a.temperature, "0 = greedy (0)")
      ->group(group)
      ->check(number_between(0, 100));
}

void add_request_options(CLI::App& command, BenchArguments& a) {
  const std::string group = "Request options";
  command
      .add_flag("--ignore-eos", a.ignore_eos,
                "every answer has its full length (servers other than Sluice and vLLM may refuse)")
      ->group(group);
  command
      .add_option("--burstiness", a.burstiness,
                  "shape of the gamma distribution of gaps: 1 Poisson, less is burstier (1)")
      ->group(group);
  command.add_option("--num-warmups", a.num_warmups, "requests before, not counted (1)")
      ->group(group)
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{100'000}));
  command
      .add_option("--duration", a.duration,
                  "seconds after which a run ends; what has not ended stays in the figures")
      ->group(group)
      ->check(above_zero());
}

// The outputs of every benchmark.
void add_common_outputs(CLI::App& command, BenchArguments& a) {
  const std::string group = "Output options";
  command.add_flag("--json", a.json, "one JSON object on stdout, nothing else")->group(group);
  command
      .add_option("--metric-percentiles", a.metric_percentiles,
                  "beside mean and median: 90,99.9 (99)")
      ->group(group);
  command.add_flag("--no-progress,--disable-tqdm", a.no_progress, "no progress on stderr")
      ->group(group);
}

void add_output_options(CLI::App& command, BenchArguments& a) {
  const std::string group = "Output options";
  command
      .add_option("--goodput", a.goodput,
                  "objectives in ms, of ttft, tpot and e2el: ttft:500 tpot:50")
      ->group(group);
  command.add_option("--report", a.report, "a folder for an HTML page with plots, also as PNG")
      ->group(group);
}

void add_serve_options(CLI::App& command, BenchArguments& a) {
  const std::string times = "Arrival options";
  command
      .add_option("--request-rate", a.request_rate,
                  "arrivals per second, whatever the answers do; inf: all at once (inf)")
      ->group(times);
  command
      .add_option("--max-concurrency", a.max_concurrency,
                  "requests in flight; with rate inf the next is sent when one ends (closed loop)")
      ->group(times)
      ->check(CLI::Range(1, 100'000));
  command.add_option("--ramp-up-strategy", a.ramp_up, "linear or exponential")->group(times);
  command.add_option("--ramp-up-start-rps", a.ramp_up_start, "rate at the first request")
      ->group(times)
      ->check(above_zero());
  command.add_option("--ramp-up-end-rps", a.ramp_up_end, "rate at the last request")
      ->group(times)
      ->check(above_zero());
  command
      .add_option("--trace", a.trace,
                  "a file with times and lengths: Azure LLM inference csv, Mooncake jsonl")
      ->group(times);
  command.add_option("--rate-scale", a.rate_scale, "of a trace: 2 = arrives twice as fast (1)")
      ->group(times)
      ->check(above_zero());
  command
      .add_option("--length-scale", a.length_scale,
                  "of a trace or of --lengths: 0.25 = a quarter (1)")
      ->group(times)
      ->check(above_zero());
  command
      .add_option("--too-long", a.too_long,
                  "a trace's requests beyond the context: refuse, shorten or skip (refuse)")
      ->group(times);
  const std::string group = "Output options";
  command
      .add_option("--percentile-metrics", a.percentile_metrics,
                  "latencies in the table, of ttft, tpot, itl, e2el (ttft,tpot,itl); JSON has all")
      ->group(group);
  command.add_flag("--save-result", a.save_result, "write the JSON object to a file as well")
      ->group(group);
  command
      .add_flag("--save-detailed", a.save_detailed,
                "and in it each request: its lengths, times, gaps, text and error")
      ->group(group);
  command.add_option("--result-dir", a.result_dir, "its folder (the current one)")->group(group);
  command.add_option("--result-filename", a.result_filename, "its name (rate, model and date)")
      ->group(group);
}

void add_capacity_options(CLI::App& command, BenchArguments& a) {
  const std::string group = "Search options";
  command.add_option("--tbt-slo-ms", a.tbt_slo_ms, "the P99 TBT to meet; required")
      ->group(group)
      ->check(above_zero());
  command
      .add_option("--scheduling-delay-s", a.scheduling_delay_s,
                  "the median scheduling delay to meet (2)")
      ->group(group)
      ->check(above_zero());
  command.add_option("--start-rate", a.start_rate, "requests per second of the first probe (1)")
      ->group(group)
      ->check(above_zero());
  command.add_option("--resolution", a.resolution, "of the rate, as a share (0.025)")
      ->group(group)
      ->check(number_between(0.001, 1));
  command.add_option("--max-probes", a.max_probes, "at most (20)")
      ->group(group)
      ->check(CLI::Range(1, 1000));
  command
      .add_option("--probe-seconds", a.probe_seconds,
                  "a probe has --num-prompts (128) requests, and more where its rate needs them to "
                  "last so long (30)")
      ->group(group)
      ->check(above_zero());
}

CLI::App* add_offline(CLI::App& bench, OfflineArguments& a) {
  CLI::App* command = bench.add_subcommand("offline", "An engine without a server");
  const std::string group = "Request options";
  command->add_option("MODEL", a.model, "checkpoint directory or GGUF file")->required();
  add_workload_options(*command, a.bench);
  command
      ->add_option("--batch-size", a.batch_size,
                   "run in batches of N requests, each when the one before has ended (all at once)")
      ->group(group)
      ->check(CLI::Range(1, 1 << 20));
  command
      ->add_option("--num-warmups", a.num_warmups,
                   "short requests before, not counted (as many as run at once)")
      ->group(group)
      ->check(CLI::Range(0, 100'000));
  command
      ->add_option("--model-name", a.model_names,
                   "an adapter, or base, for each request in turn: one,two,base (base)")
      ->group(group)
      ->delimiter(',');
  add_common_outputs(*command, a.bench);
  command->add_option("--output-json", a.output_json, "write the JSON object to this file as well")
      ->group("Output options");
  command
      ->add_option("--trace", a.trace,
                   "write how long each op took to this file, for ui.perfetto.dev: of the largest "
                   "step with a prompt and of the largest without")
      ->group("Output options");
  add_engine_options(*command, a.engine);
  return command;
}

}  // namespace

BenchCommands add_bench(CLI::App& root, BenchArguments& arguments, OfflineArguments& offline) {
  CLI::App* bench = root.add_subcommand(
      "bench", "Load on a server and what its clients see, or on an engine without one");
  bench->require_subcommand(1);
  BenchCommands commands;
  commands.serve = bench->add_subcommand("serve", "Latencies and throughput under a load");
  commands.capacity =
      bench->add_subcommand("capacity", "The largest request rate that meets an objective");
  for (CLI::App* command : {commands.serve, commands.capacity}) {
    add_server_options(*command, arguments);
    add_workload_options(*command, arguments);
    add_request_options(*command, arguments);
    add_common_outputs(*command, arguments);
    add_output_options(*command, arguments);
  }
  add_serve_options(*commands.serve, arguments);
  add_capacity_options(*commands.capacity, arguments);
  commands.offline = add_offline(*bench, offline);
  return commands;
}

}  // namespace sluice
