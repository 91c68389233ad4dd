#include "apps/profile_options.h"

#include <CLI/CLI.hpp>
#include <string>

#include "apps/engine_flags.h"

namespace sluice {
namespace {

void add_memory_profile_options(CLI::App& command, MemoryProfileArguments& a) {
  const std::string group = "Memory that the model needs (docs/placement.md)";
  command
      .add_option("--slo-ttft-ms", a.slo_ttft_ms,
                  "find the KV memory in use at the largest rate with this TTFT")
      ->group(group);
  command.add_option("--ttft-percentile", a.ttft_percentile, "of the TTFT (default 99)")
      ->group(group);
  command.add_option("--slo-tbt-ms", a.slo_tbt_ms, "and this P99 time between tokens")
      ->group(group);
  command
      .add_flag("--fixed-batches", a.fixed_batches,
                "instead: batches that grow until the throughput saturates; needs --lengths "
                "fixed:PROMPT,OUTPUT")
      ->group(group);
  command.add_option("--lengths", a.lengths, "of the requests (default sharegpt)")->group(group);
  command.add_option("--num-requests", a.num_requests, "for each rate (default 2048)")
      ->group(group);
  command.add_option("--seed", a.seed, "of arrivals and lengths (default 0)")->group(group);
  command.add_option("--burst-seconds", a.burst_seconds, "of bursts (default 60)")->group(group);
  command
      .add_option("--lend-threshold", a.lend_threshold,
                  "a model that spares more can lend (default: an eighth of the KV memory, or of "
                  "the GPU's)")
      ->group(group);
  command
      .add_option("--gpu", a.gpu,
                  "a simulated GPU by name instead of this machine; MODEL is a name too (sluice "
                  "simulate --list)")
      ->group(group);
  command.add_option("--tp", a.tp, "of --gpu: GPUs that share each layer (default 1)")
      ->group(group);
  command.add_option("--host-stack", a.host_stack, "of --gpu: native (default) or python")
      ->group(group);
}

}  // namespace

CLI::App* add_profile(CLI::App& root, ProfileArguments& arguments) {
  const std::string group = "Profile options";
  CLI::App* command =
      root.add_subcommand("profile", "Measure what steps cost here; find token budgets");
  command->add_option("MODEL", arguments.model, "checkpoint directory or GGUF file")->required();
  command->add_option("--output", arguments.output, "file (default: one in ~/.cache/sluice)")
      ->group(group);
  command->add_option("--report", arguments.report, "folder for a page with plots (gnuplot)")
      ->group(group);
  command->add_option("--time-limit", arguments.time_limit, "seconds of measuring (default 120)")
      ->group(group);
  command->add_flag("--json", arguments.json, "one JSON object on stdout")->group(group);
  add_memory_profile_options(*command, arguments.memory);
  add_engine_options(*command, arguments.engine);
  return command;
}

}  // namespace sluice
