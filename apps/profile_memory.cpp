#include "apps/profile_memory.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "apps/interrupt.h"
#include "apps/option_values.h"
#include "apps/simulate_setup.h"
#include "base/memory_size.h"
#include "base/text.h"
#include "workload/lengths.h"

namespace sluice {
namespace {

using nlohmann::ordered_json;

constexpr double kGB = 1e9;
constexpr std::int64_t kThresholdPart = 8;  // of 80 GB: the paper's 10 GB

Status check_milliseconds(const char* option, std::optional<double> value) {
  if (!value || (*value >= 1e-3 && *value <= 1e9)) return {};
  return invalid_argument(
      fmt::format("{} must be between 0.001 and 1e9, got {:.6g}", option, *value));
}

// The same questions as those of `sluice simulate --capacity`.
Result<SimulateArguments> simulate_arguments(const MemoryProfileArguments& a,
                                             const EngineOptionTexts& engine,
                                             const std::string& default_budget) {
  SimulateArguments s;
  if (!engine.scheduler.empty()) s.scheduler = engine.scheduler;
  s.token_budget = engine.token_budget.empty() ? default_budget : engine.token_budget;
  constexpr std::int64_t kMost = 1 << 24;  // parse_simulate_settings() has the limits
  const auto whole = [&](const char* option, const std::string& text,
                         std::optional<std::int32_t>& out) -> Status {
    if (text.empty()) return {};
    ASSIGN_OR_RETURN(const std::int64_t value, parse_integer(option, text, 1, kMost));
    out = static_cast<std::int32_t>(value);
    return {};
  };
  RETURN_IF_ERROR(whole("--max-num-seqs", engine.max_num_seqs, s.max_num_seqs));
  RETURN_IF_ERROR(whole("--max-model-len", engine.max_model_len, s.max_model_len));
  std::optional<std::int32_t> block_size;
  RETURN_IF_ERROR(whole("--block-size", engine.block_size, block_size));
  s.block_size = block_size.value_or(s.block_size);
  s.lengths = a.lengths;
  s.num_requests = a.num_requests;
  s.seed = a.seed;
  s.tbt_slo_ms = a.slo_tbt_ms;
  s.gpu = a.gpu;
  s.tp = a.tp;
  s.host_stack = a.host_stack;
  return s;
}

Result<MemoryFindings> profile_machine(const SimulatedMachine& machine,
                                       const SimulateSettings& settings,
                                       const MemoryProfileArguments& a, double block_bytes,
                                       double memory_bytes) {
  MemoryFindings found;
  found.model = machine.model;
  found.lengths = settings.load.lengths;
  found.slo_ttft_ms = a.slo_ttft_ms;
  found.ttft_percentile = a.ttft_percentile;
  found.slo_tbt_ms = a.slo_tbt_ms;
  found.tensor_parallel = machine.tp;
  found.token_budget = machine.options.replica.token_budget;
  found.block_gb = block_bytes / kGB;
  double threshold = memory_bytes / kThresholdPart;
  if (!a.lend_threshold.empty()) {
    ASSIGN_OR_RETURN(const std::int64_t bytes,
                     parse_memory_size("--lend-threshold", a.lend_threshold));
    threshold = static_cast<double>(bytes);
  }
  found.threshold_gb = threshold / kGB;
  MemoryProfileOptions options;
  options.burst_seconds = a.burst_seconds;
  options.lend_blocks = static_cast<std::int64_t>(threshold / block_bytes);
  const ProgressReport go_on = [](double) { return !interrupted(); };
  if (a.fixed_batches) {
    ASSIGN_OR_RETURN(const auto lengths, make_lengths(a.lengths, 1, settings.load.context, a.seed));
    ASSIGN_OR_RETURN(found.profile, profile_batches(machine, lengths[0].prompt_tokens,
                                                    lengths[0].output_tokens, options, go_on));
    return found;
  }
  options.capacity.objective.p99_tbt = from_seconds(*a.slo_tbt_ms / 1e3);
  options.capacity.objective.ttft = from_seconds(*a.slo_ttft_ms / 1e3);
  options.capacity.objective.ttft_percentile = a.ttft_percentile;
  ASSIGN_OR_RETURN(found.profile, profile_memory(machine, settings.load, options, go_on));
  return found;
}

double gb(const MemoryFindings& f, std::int64_t blocks) {
  return static_cast<double>(blocks) * f.block_gb;
}

ordered_json probes_json(const CapacityResult& capacity) {
  ordered_json probes = ordered_json::array();
  for (const CapacityProbe& p : capacity.probes) {
    probes.push_back({{"met", p.met},
                      {"request_rate", p.rate},
                      {"p99_itl_ms", to_milliseconds(p.p99_tbt)},
                      {"ttft_ms", to_milliseconds(p.ttft)},
                      {"median_scheduling_delay_ms", to_milliseconds(p.median_scheduling_delay)}});
  }
  return probes;
}

ordered_json batches_json(const MemoryFindings& f) {
  ordered_json batches = ordered_json::array();
  for (const BatchStep& step : f.profile.batches) {
    batches.push_back({{"batch", step.batch},
                       {"output_throughput", step.tokens_per_s},
                       {"kv_in_use_gb", gb(f, step.held_blocks)},
                       {"kv_free_gb", gb(f, f.profile.kv_blocks - step.held_blocks)}});
  }
  return batches;
}

}  // namespace

Result<bool> wants_memory_profile(const MemoryProfileArguments& a) {
  RETURN_IF_ERROR(check_milliseconds("--slo-ttft-ms", a.slo_ttft_ms));
  RETURN_IF_ERROR(check_milliseconds("--slo-tbt-ms", a.slo_tbt_ms));
  if (!(a.ttft_percentile > 0 && a.ttft_percentile <= 100)) {
    return invalid_argument(fmt::format(
        "--ttft-percentile must be above 0 and at most 100, got {:g}", a.ttft_percentile));
  }
  if (!(a.burst_seconds >= 0.01 && a.burst_seconds <= 1e5)) {
    return invalid_argument(
        fmt::format("--burst-seconds must be between 0.01 and 100000, got {:g}", a.burst_seconds));
  }
  const bool slo = a.slo_ttft_ms || a.slo_tbt_ms;
  if (slo && a.fixed_batches) {
    return invalid_argument(
        "--fixed-batches has no objective: leave out --slo-ttft-ms and --slo-tbt-ms");
  }
  if (slo && !(a.slo_ttft_ms && a.slo_tbt_ms)) {
    return invalid_argument("--slo-ttft-ms and --slo-tbt-ms go together: give both");
  }
  if (a.fixed_batches && !a.lengths.starts_with("fixed:")) {
    return invalid_argument("--fixed-batches needs --lengths fixed:PROMPT,OUTPUT");
  }
  if (slo || a.fixed_batches) return true;
  if (!a.lengths.empty() || a.num_requests || !a.lend_threshold.empty() || !a.gpu.empty()) {
    return invalid_argument(
        "--lengths, --num-requests, --lend-threshold and --gpu are for a profile of memory: give "
        "--slo-ttft-ms and --slo-tbt-ms, or --fixed-batches");
  }
  return false;
}

Result<MemoryFindings> profile_simulated_memory(const std::string& model,
                                                const MemoryProfileArguments& a,
                                                const EngineOptionTexts& engine) {
  EngineOptionTexts others = engine;
  others.scheduler = others.token_budget = others.max_num_seqs = "";
  others.max_model_len = others.block_size = "";
  if (others != EngineOptionTexts{}) {
    return invalid_argument(
        "with --gpu nothing is loaded: of the engine options only --scheduler, --token-budget, "
        "--max-num-seqs, --max-model-len and --block-size may be given");
  }
  ASSIGN_OR_RETURN(SimulateArguments s, simulate_arguments(a, engine, "512"));
  s.model = model;
  ASSIGN_OR_RETURN(const Deployment deployment, parse_deployment(s));
  ASSIGN_OR_RETURN(const SimulateSettings settings, parse_simulate_settings(s, nullptr));
  ASSIGN_OR_RETURN(const SimulatedMachine machine, make_machine(deployment, settings.machine));
  return profile_machine(machine, settings, a, machine.block_bytes, deployment.gpu.memory_bytes);
}

Result<MemoryFindings> profile_measured_memory(const MachineProfile& measured,
                                               const MemoryProfileArguments& a,
                                               const EngineOptionTexts& engine,
                                               std::int64_t kv_bytes,
                                               std::int64_t kv_bytes_per_token) {
  ASSIGN_OR_RETURN(SimulateArguments s,
                   simulate_arguments(a, engine, a.fixed_batches ? "512" : "auto"));
  s.kv_tokens = kv_bytes / kv_bytes_per_token;
  // More than the profile has are extrapolated when a server runs; here they would be refused.
  if (s.max_num_seqs) s.max_num_seqs = std::min(*s.max_num_seqs, measured.max_num_seqs);
  if (s.max_model_len) s.max_model_len = std::min(*s.max_model_len, measured.max_model_len);
  ASSIGN_OR_RETURN(const SimulateSettings settings, parse_simulate_settings(s, &measured));
  ASSIGN_OR_RETURN(const SimulatedMachine machine,
                   make_profiled_machine(measured, settings.machine));
  const double block_bytes = static_cast<double>(kv_bytes_per_token) * s.block_size;
  return profile_machine(machine, settings, a, block_bytes, static_cast<double>(kv_bytes));
}

std::string memory_findings_text(const MemoryFindings& f) {
  const MemoryProfile& p = f.profile;
  std::string out;
  if (p.batches.empty()) {
    append_format(
        out,
        "rate         {:.3f} requests/s ({}) with a P{:g} TTFT of {:.6g} ms and a P99 TBT "
        "of {:.6g} ms\n",
        p.capacity.rate, f.lengths, f.ttft_percentile, *f.slo_ttft_ms, *f.slo_tbt_ms);
  }
  for (const BatchStep& step : p.batches) {
    append_format(out, "batch        {:>5}: {:>8.1f} tokens/s, {:.3f} GB of KV\n", step.batch,
                  step.tokens_per_s, gb(f, step.held_blocks));
  }
  append_format(out, "KV in use    {:.3f} of {:.3f} GB{} at the peak\n", gb(f, p.held_blocks),
                gb(f, p.kv_blocks), f.tensor_parallel > 1 ? " on each GPU" : "");
  for (const BurstNeed& burst : p.bursts) {
    append_format(out, "burst        {:g} times the rate: {:.3f} GB to page\n", burst.times,
                  gb(f, burst.swap_blocks));
  }
  append_format(out, "memory       {}, {:+.3f} GB (a producer spares more than {:.3f} GB)\n",
                p.producer ? "producer" : "consumer", gb(f, p.spare_blocks), f.threshold_gb);
  return out;
}

ordered_json memory_findings_json(const MemoryFindings& f) {
  const MemoryProfile& p = f.profile;
  ordered_json bursts = ordered_json::array();
  for (const BurstNeed& burst : p.bursts) {
    bursts.push_back({{"times", burst.times}, {"swap_gb", gb(f, burst.swap_blocks)}});
  }
  ordered_json json = {{"lengths", f.lengths},
                       {"token_budget", f.token_budget},
                       {"kv_gb", gb(f, p.kv_blocks)},
                       {"kv_in_use_gb", gb(f, p.held_blocks)},
                       {"lend_threshold_gb", f.threshold_gb},
                       {"kind", p.producer ? "producer" : "consumer"}};
  if (p.batches.empty()) {
    json["slo_ttft_ms"] = *f.slo_ttft_ms;
    json["ttft_percentile"] = f.ttft_percentile;
    json["slo_tbt_ms"] = *f.slo_tbt_ms;
    json["capacity_request_rate"] = p.capacity.rate;
    json["bursts"] = std::move(bursts);
    json["probes"] = probes_json(p.capacity);
  } else {
    json["saturated_batch"] = p.saturated_batch;
    json["batches"] = batches_json(f);
  }
  // One of the models of a file of `sluice place`.
  json["placement"] = {{"name", f.model},
                       {"count", 1},
                       {"tensor_parallel", f.tensor_parallel},
                       {"memory_gb", gb(f, p.spare_blocks)}};
  return json;
}

}  // namespace sluice
