#include "apps/engine_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>

#include "scheduler/policy.h"

namespace sluice {

void add_engine_options(CLI::App& command, EngineOptionTexts& texts) {
  const std::string group = "Engine options";
  command.add_option("--device", texts.device, "cpu or cuda:N (default cpu)")->group(group);
  command
      .add_option("--dtype", texts.dtype,
                  "auto, bf16, f16, f32 or fp8; vLLM's names too (default auto: as stored)")
      ->group(group);
  command
      .add_option("--load-format", texts.load_format,
                  "auto: the checkpoint's weights; dummy: random ones, of config.json's shape "
                  "(default auto)")
      ->group(group);
  command.add_flag("--enforce-eager", texts.enforce_eager, "no graphs: submit every op by itself")
      ->group(group);
  command
      .add_flag("--deterministic", texts.deterministic,
                "the same bits whatever else is in the batch, on a GPU too, at some cost")
      ->group(group);
  command
      .add_option("--scheduler", texts.scheduler,
                  fmt::format("one of {} (default stall-free)", fmt::join(policy_names(), ", ")))
      ->group(group);
  command
      .add_option("--token-budget,--max-num-batched-tokens", texts.token_budget,
                  "tokens per step, or auto or time: by --tbt-slo-ms (default 512)")
      ->group(group);
  command
      .add_option("--tbt-slo-ms", texts.tbt_slo_ms,
                  "goal for the time between two tokens of a stream (default: none; with auto and "
                  "time 5 decode steps)")
      ->group(group);
  command
      .add_option("--max-num-seqs", texts.max_num_seqs, "sequences that run at once (default 64)")
      ->group(group);
  command
      .add_option("--max-model-len", texts.max_model_len,
                  "context, prompt and output (default: the model's, at most 8192)")
      ->group(group);
  command.add_option("--block-size", texts.block_size, "tokens per KV block (default 16)")
      ->group(group);
  command
      .add_option("--kv-cache-memory", texts.kv_cache_memory,
                  "the most, such as 4GiB (default: half of what is free after weights)")
      ->group(group);
  command
      .add_option("--kv-idle-release", texts.kv_idle_release,
                  "seconds without a request after which KV memory goes back to the system "
                  "(default 0: never)")
      ->group(group);
  command
      .add_flag("--enable-prefix-caching,!--no-enable-prefix-caching", texts.prefix_caching,
                "reuse the KV blocks of common prefixes (default on)")
      ->group(group);
  command.add_option("--threads", texts.threads, "default: one per CPU")->group(group);
  command.add_option("--adapter", texts.adapters, "name=DIR; not built yet")->group(group);
  command
      .add_option("--snapshot", texts.snapshot,
                  "auto: keep what a start makes in ~/.cache/sluice; off; or a file of `sluice "
                  "snapshot save` (default auto)")
      ->group(group);
}

}  // namespace sluice
