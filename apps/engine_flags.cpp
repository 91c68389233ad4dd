#include "apps/engine_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "base/text.h"
#include "scheduler/policy.h"

namespace sluice {
namespace {

void add_adapter_options(CLI::App& command, EngineOptionTexts& texts, const std::string& group) {
  command
      .add_option("--adapter", texts.adapters,
                  "NAME=DIRECTORY of a LoRA adapter in PEFT's format, or a mix of those before, "
                  "NAME=poet:0.7+pirate:0.3; may be repeated")
      ->group(group);
  command
      .add_option("--adapter-slots,--max-loras", texts.adapter_slots,
                  "adapters in the device's memory at once (default 8, or all if there are fewer)")
      ->group(group);
  command
      .add_option("--max-lora-rank", texts.max_lora_rank,
                  "the largest rank of an adapter (default: that of the adapters given; with "
                  "--adapter-dir at least 64)")
      ->group(group);
}

void add_kv_options(CLI::App& command, EngineOptionTexts& texts, const std::string& group) {
  command.add_option("--block-size", texts.block_size, "tokens per KV block (default 16)")
      ->group(group);
  command
      .add_option("--kv-cache-memory", texts.kv_cache_memory,
                  "the most, such as 4GiB (default: half of what is free after weights); "
                  "serve: also MIN-MAX, which shrinks down to MIN while the system is short of "
                  "memory")
      ->group(group);
  command
      .add_option("--gpu-memory-utilization", texts.gpu_memory_utilization,
                  "instead of --kv-cache-memory, with --device cuda: the share of the GPU's memory "
                  "in use when KV memory is full, such as 0.9")
      ->group(group);
  command
      .add_option("--kv-idle-release", texts.kv_idle_release,
                  "seconds without a request after which KV memory goes back to the system "
                  "(default 0: never)")
      ->group(group);
  command
      .add_flag("--kv-pretouch", texts.kv_pretouch,
                "take all KV memory from the system before the first request, not when it is first "
                "used")
      ->group(group);
  command
      .add_option("--kv-disk", texts.kv_disk,
                  "DIR:SIZE[,free=SIZE][,age=TIME][,daily=SIZE][,stream=SIZE][,evict=HOW][,io=HOW]:"
                  " a folder "
                  "that keeps KV blocks, also for later starts, such as kv:50GiB; the limits: room "
                  "that stays "
                  "free (default 1GiB), days or hours without use (default 30d), bytes written a "
                  "day (default: "
                  "no limit), and the part of SIZE for a request that needs more than the KV "
                  "memory (default: "
                  "none); which block makes room: lru (default) or seconds of computation saved; "
                  "reads with "
                  "io_uring (uring, the default where it is allowed) or threads")
      ->group(group);
  command
      .add_option("--kv-disk-key", texts.kv_disk_key,
                  "a file with 32 bytes or 64 hexadecimal digits: the folder of --kv-disk is "
                  "encrypted with this key")
      ->group(group);
  command
      .add_option(
          "--kv-ram", texts.kv_ram,
          "memory of this machine for KV blocks that do not fit KV memory, such as 8GiB: as "
          "they are with --device cuda; packed, and only for KV in BF16, with --device cpu")
      ->group(group);
  command
      .add_flag("--enable-prefix-caching,!--no-enable-prefix-caching", texts.prefix_caching,
                "reuse the KV blocks of common prefixes (default on)")
      ->group(group);
}

}  // namespace

void add_engine_options(CLI::App& command, EngineOptionTexts& texts) {
  const std::string group = "Engine options";
  command.add_option("--device", texts.device, "cpu or cuda:N (default cpu)")->group(group);
  command
      .add_option("--isa", texts.isa,
                  "the CPU kernels: reference, avx2, avx2_vnni, avx512, avx512_vnni, avx512_bf16, "
                  "avx512_bf16_fma or amx "
                  "(default: the best of this machine)")
      ->group(group);
  command
      .add_option(
          "--dtype", texts.dtype,
          "auto, bf16, f16, f32, fp8, int8 or int4; vLLM's names too (default auto: as stored)")
      ->group(group);
  command
      .add_option("--load-format", texts.load_format,
                  "auto: the checkpoint's weights; dummy: random ones, of config.json's shape "
                  "(default auto)")
      ->group(group);
  command
      .add_option(
          "--large-pages", texts.large_pages,
          "auto: weights mapped from files move into pages of 2 MiB while the model runs, if "
          "enough memory is free; off: they stay (default auto)")
      ->group(group);
  command.add_flag("--enforce-eager", texts.enforce_eager, "no graphs: submit every op by itself")
      ->group(group);
  command
      .add_flag("--deterministic", texts.deterministic,
                "the same bits whatever else is in the batch, on a GPU too, at some cost")
      ->group(group);
  command
      .add_option("--scheduler", texts.scheduler,
                  fmt::format("one of {} (default stall-free)", join(policy_names(), ", ")))
      ->group(group);
  command
      .add_option("--token-budget,--max-num-batched-tokens", texts.token_budget,
                  "tokens per step (default 512); follow: 512, and fewer beside streams, so that "
                  "they stay smooth (default of serve); auto or time: by --tbt-slo-ms")
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
  add_kv_options(command, texts, group);
  command
      .add_option("--threads", texts.threads,
                  "auto: one for each core, fewer where a control group limits CPU time; or a "
                  "number (default auto)")
      ->group(group);
  add_adapter_options(command, texts, group);
  command
      .add_option("--snapshot", texts.snapshot,
                  "auto: keep what a start makes in ~/.cache/sluice; off; or a file of `sluice "
                  "snapshot save` (default auto)")
      ->group(group);
  command
      .add_option("--restore", texts.restore,
                  "layout: graphs of a snapshot only at the addresses that they were saved at; "
                  "relocate: only at others (default: at the saved ones if they are free)")
      ->group(group);
}

void add_warm_options(CLI::App& command, WarmArguments& arguments) {
  const std::string group = "Warm prompts";
  command
      .add_option("--warm", arguments.files,
                  "a JSON file: an array of messages, or an object with messages and tools; its "
                  "KV blocks stay in memory, for all clients; may be repeated")
      ->group(group)
      ->allow_extra_args(false);
  command
      .add_option("--warm-limit", arguments.limit,
                  fmt::format("the most that warm prompts take of KV memory, 0 to 1 (default {})",
                              WarmPrompts::kDefaultLimit))
      ->group(group);
}

}  // namespace sluice
