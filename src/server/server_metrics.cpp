#include "server/server_metrics.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "base/check.h"

namespace sluice {
namespace {

// vLLM's lowest bucket is too large: a step of the demo model takes 300 microseconds.
std::vector<double> latency_bounds(double first, double last) {
  return decade_bounds(std::array{1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.5}, first, last);
}

std::vector<double> token_bounds() {
  return decade_bounds(std::array{1.0, 2.0, 5.0}, 1, 1'000'000);
}

// The value of vLLM's label finished_reason.
constexpr std::string_view vllm_reason(FinishReason reason) {
  return reason == FinishReason::kCancelled ? "abort" : finish_reason_name(reason);
}

constexpr bool is_set(TimePoint time) { return time != TimePoint{}; }

}  // namespace

ServerMetrics::ServerMetrics(Options options)
    : options_(std::move(options)),
      time_to_first_token_(latency_bounds(1e-4, 500)),
      inter_token_latency_(latency_bounds(1e-5, 50)),
      time_per_output_token_(latency_bounds(1e-5, 50)),
      e2e_latency_(latency_bounds(1e-3, 5000)),
      queue_time_(latency_bounds(1e-5, 5000)),
      prefill_time_(latency_bounds(1e-4, 500)),
      decode_time_(latency_bounds(1e-4, 5000)),
      inference_time_(latency_bounds(1e-4, 5000)),
      dispatch_(latency_bounds(1e-5, 10)),
      token_delivery_(latency_bounds(1e-6, 10)),
      step_duration_(latency_bounds(1e-5, 50)),
      iteration_tokens_(
          {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768}),
      request_prompt_tokens_(token_bounds()),
      request_generation_tokens_(token_bounds()),
      params_n_({1, 2, 5, 10, 20}),
      params_max_tokens_(token_bounds()) {}

void ServerMetrics::count(std::vector<Labelled>& family, std::string_view first,
                          std::string_view second) {
  for (Labelled& labelled : family) {
    if (labelled.first == first && labelled.second == second) return labelled.counter.add();
  }
  family.push_back({std::string(first), std::string(second), {}});
  family.back().counter.add();
}

void ServerMetrics::request_admitted(const AdmittedRequest& request) {
  params_n_.record(request.n);
  params_max_tokens_.record(request.max_tokens);
  dispatch_.record(to_seconds(request.dispatch));
}

void ServerMetrics::request_refused(std::string_view reason) { count(refused_, reason, {}); }

void ServerMetrics::key_refused(std::string_view key) { use_of(keys_, key).refused.add(); }

void ServerMetrics::first_token(const FirstToken& first) {
  prompt_tokens_.add(first.prompt_tokens);
  time_to_first_token_.record(to_seconds(first.time - first.arrival));
  if (!first.key.empty()) use_of(keys_, first.key).prompt_tokens.add(first.prompt_tokens);
}

void ServerMetrics::tokens(std::int64_t count, std::optional<Duration> gap) {
  generation_tokens_.add(static_cast<double>(count));
  if (!gap || count == 0) return;
  inter_token_latency_.record(to_seconds(*gap) / static_cast<double>(count), count);
}

void ServerMetrics::choice_finished(const RequestTimes& times) {
  CHECK(times.reason != FinishReason::kNone);
  finished_[static_cast<std::size_t>(times.reason)].add();
  for (const auto& [uses, name] :
       {std::pair(&adapters_, times.adapter), std::pair(&keys_, times.key)}) {
    if (name.empty()) continue;
    Use& use = use_of(*uses, name);
    use.requests.add();
    use.tokens.add(times.output_tokens);
  }
  e2e_latency_.record(to_seconds(times.end - times.arrival));
  request_prompt_tokens_.record(times.prompt_tokens);
  request_generation_tokens_.record(times.output_tokens);
  if (!is_set(times.first_scheduled)) return;
  queue_time_.record(to_seconds(times.first_scheduled - times.arrival));
  if (!is_set(times.first_token)) return;
  prefill_time_.record(to_seconds(times.first_token - times.first_scheduled));
  decode_time_.record(to_seconds(times.last_token - times.first_token));
  inference_time_.record(to_seconds(times.last_token - times.first_scheduled));
  if (times.output_tokens < 2) return;
  time_per_output_token_.record(to_seconds(times.last_token - times.first_token) /
                                (times.output_tokens - 1));
}

ServerMetrics::Use& ServerMetrics::use_of(std::vector<Use>& uses, std::string_view name) {
  constexpr std::string_view kOthers = "other";
  const auto find = [&](std::string_view wanted) {
    return std::find_if(uses.begin(), uses.end(),
                        [&](const Use& use) { return use.name == wanted; });
  };
  auto found = find(name);
  const bool full = uses.size() >= kMaxUseLabels;
  if (found == uses.end() && full) found = find(kOthers);
  if (found != uses.end()) return *found;
  uses.push_back({std::string(full ? kOthers : name), {}, {}, {}, {}});
  return uses.back();
}

void ServerMetrics::write_adapters(PrometheusWriter& writer) const {
  writer.counter("forced_tokens_total",
                 "Tokens of answers that their grammar left no choice for; no step sampled them.");
  write_number(writer, static_cast<double>(gauges_.totals.forced_tokens));
  writer.counter("adapter_loads_total", "Loads of adapters into slots.");
  write_number(writer, static_cast<double>(gauges_.totals.adapter_loads));
  writer.counter("adapter_requests_total",
                 "Choices that ended, by adapter; from the 65th adapter on: other.");
  for (const Use& use : adapters_) {
    writer.value({{"adapter", use.name}}, use.requests.value());
  }
  writer.counter("adapter_generation_tokens_total", "Output tokens of ended choices, by adapter.");
  for (const Use& use : adapters_) {
    writer.value({{"adapter", use.name}}, use.tokens.value());
  }
}

void ServerMetrics::write_keys(PrometheusWriter& writer) const {
  const auto count = [&](std::string_view name, std::string_view help, Counter Use::* counter) {
    writer.counter(name, help);
    for (const Use& use : keys_) writer.value({{"key", use.name}}, (use.*counter).value());
  };
  count("key_requests_total", "Choices that ended, by the name of the API key.", &Use::requests);
  count("key_prompt_tokens_total", "Prompt tokens of requests that gave a token, by key.",
        &Use::prompt_tokens);
  count("key_generation_tokens_total", "Output tokens of ended choices, by key.", &Use::tokens);
  count("key_refused_total", "Calls that the limits of their key refused.", &Use::refused);
}

void ServerMetrics::write_turns(PrometheusWriter& writer) const {
  if (!turns_) return;
  writer.counter("function_turn_seconds_total",
                 "Time for which functions had their turn at the cores, by key.");
  Duration others{0};
  for (std::size_t i = 0; i < turns_->uses.size(); ++i) {
    const FunctionTurns::Use& use = turns_->uses[i];
    if (i >= kMaxUseLabels) {
      others += use.time;
    } else {
      writer.value({{"key", use.key}}, to_seconds(use.time));
    }
  }
  if (turns_->uses.size() > kMaxUseLabels) writer.value({{"key", "other"}}, to_seconds(others));
  writer.counter("function_suspensions_total",
                 "Function processes that were stopped because they did not keep to their turns.");
  write_number(writer, static_cast<double>(turns_->suspensions));
  writer.counter("function_kills_total", "Function processes that were killed for that.");
  write_number(writer, static_cast<double>(turns_->kills));
  writer.gauge("warm_functions", "Function processes that are ready and no tenant's yet.");
  write_number(writer, static_cast<double>(turns_->warm));
}

void ServerMetrics::write_lending(PrometheusWriter& writer) const {
  if (!lending_) return;
  writer.gauge("kv_limit_bytes", "KV memory that the engine may use now.");
  write_number(writer, static_cast<double>(lending_->limit_bytes));
  writer.gauge("kv_borrowed_bytes", "The part of it that is borrowed from other processes.");
  write_number(writer, static_cast<double>(lending_->borrowed_bytes));
  writer.gauge("kv_lending_joined", "1 while the coordinator of --lend answers.");
  write_number(writer, lending_->joined ? 1 : 0);
  writer.counter("kv_recalls_total", "Times that the coordinator asked for memory back.");
  write_number(writer, static_cast<double>(lending_->recalls));
  writer.gauge("kv_memory_pressed",
               "1 while the system is short of memory and lowers kv_limit_bytes.");
  write_number(writer, lending_->pressed ? 1 : 0);
  writer.gauge("kv_pages_lent_bytes", "Memory of this process that others use as a tier.");
  write_number(writer, static_cast<double>(lending_->pages_lent_bytes));
  writer.gauge("kv_pages_overdue_bytes",
               "The part of it that borrowers have not given back in time.");
  write_number(writer, static_cast<double>(lending_->pages_overdue_bytes));
  writer.counter("kv_pages_revoked_total", "Times that such memory was taken back by force.");
  write_number(writer, static_cast<double>(lending_->pages_revoked));
  writer.gauge("kv_pages_borrowed_bytes",
               "Memory of other processes that this one's tier may use.");
  write_number(writer, static_cast<double>(lending_->pages_borrowed_bytes));
}

void ServerMetrics::steps(std::span<const StepRecord> steps) {
  for (const StepRecord& step : steps) {
    step_duration_.record(to_seconds(step.duration));
    iteration_tokens_.record(step.tokens);
  }
}

void ServerMetrics::engine(EngineState state, const EngineGauges& gauges,
                           std::int32_t unfinished_requests) {
  state_ = state;
  gauges_ = gauges;
  const EngineStats& totals = gauges.totals;
  tier_shares_.note(gauges.tier_levels, totals.tier_hit_tokens, totals.tier_saved_seconds);
  unfinished_requests_ = unfinished_requests;
}

void ServerMetrics::startup(std::span<const StartupSpan> spans, Duration total) {
  startup_.assign(spans.begin(), spans.end());
  startup_total_ = total;
}

void ServerMetrics::http_request(std::string_view path, int status) {
  count(http_requests_, path, std::to_string(status));
}

void ServerMetrics::write(std::string& out) const {
  PrometheusWriter writer(options_.prefix, out);
  write_engine(writer);
  write_padding(writer);
  write_prefix_cache(writer);
  write_tier(writer);
  write_tokens(writer);
  write_adapters(writer);
  write_keys(writer);
  write_turns(writer);
  write_lending(writer);
  write_latencies(writer);
  write_parameters(writer);
  write_server(writer);
  write_info(writer);
}

void ServerMetrics::write_number(PrometheusWriter& writer, double value) const {
  writer.value({{"model_name", options_.model_name}}, value);
}

void ServerMetrics::write_histogram(PrometheusWriter& writer, std::string_view name,
                                    std::string_view help, const Histogram& histogram) const {
  writer.histogram(name, help);
  writer.buckets({{"model_name", options_.model_name}}, histogram);
}

void ServerMetrics::write_engine(PrometheusWriter& writer) const {
  const std::string_view model = options_.model_name;
  writer.gauge("num_requests_running", "Sequences that hold a place in the running batch.");
  write_number(writer, gauges_.running);
  writer.gauge("num_requests_waiting", "Sequences that wait for a place in the running batch.");
  write_number(writer, gauges_.waiting);
  writer.gauge("kv_cache_usage_perc", "Share of the KV blocks in use; 1 means all.");
  write_number(writer, gauges_.kv_blocks == 0
                           ? 0.0
                           : static_cast<double>(gauges_.kv_blocks_used) / gauges_.kv_blocks);
  writer.gauge("kv_blocks",
               "KV blocks by state: used; cached = free, content still findable; free.");
  const std::int32_t free = gauges_.kv_blocks - gauges_.kv_blocks_used - gauges_.kv_blocks_cached;
  writer.value({{"model_name", model}, {"state", "used"}}, gauges_.kv_blocks_used);
  writer.value({{"model_name", model}, {"state", "cached"}}, gauges_.kv_blocks_cached);
  writer.value({{"model_name", model}, {"state", "free"}}, free);
  writer.gauge("kv_pins", "Pinned prefixes.");
  write_number(writer, gauges_.pins);
  writer.gauge("kv_pinned_blocks", "KV blocks that the pinned prefixes need.");
  write_number(writer, static_cast<double>(gauges_.pinned_blocks));
  writer.counter("num_preemptions_total", "Sequences that lost their place to others.");
  write_number(writer, static_cast<double>(gauges_.totals.preemptions));
  writer.counter("engine_steps_total", "Steps of the engine.");
  write_number(writer, static_cast<double>(gauges_.totals.steps));
  writer.counter("device_busy_seconds_total", "Time in which the device ran steps; 0 on the CPU.");
  write_number(writer, to_seconds(gauges_.totals.device.busy));
  writer.counter("device_idle_seconds_total",
                 "Time in which the device waited between steps for the next one.");
  write_number(writer, to_seconds(gauges_.totals.device.idle));
  writer.gauge("engine_up", "1 while the engine takes requests, else 0: loading, failed, stopped.");
  write_number(writer, state_ == EngineState::kReady ? 1 : 0);
}

void ServerMetrics::write_padding(PrometheusWriter& writer) const {
  const ComputedWork& work = gauges_.totals.computed;
  const auto count = [&](std::string_view name, std::string_view help, std::int64_t value) {
    writer.counter(name, help);
    write_number(writer, static_cast<double>(value));
  };
  count("matmul_rows_total", "Rows computed, over all matrix products.", work.matmul_rows);
  count("matmul_rows_padding_total", "Rows computed of matrix products that held no token.",
        work.matmul_rows_padding);
  count("attention_pairs_total", "Pairs of a query and a key computed, over all heads and layers.",
        work.attention_pairs);
  count("attention_pairs_padding_total", "Pairs computed of a query and a key it does not see.",
        work.attention_pairs_padding);
}

void ServerMetrics::write_prefix_cache(PrometheusWriter& writer) const {
  writer.counter("prefix_cache_queries_total", "Tokens looked up in the prefix cache.");
  write_number(writer, static_cast<double>(gauges_.prefix_queried_tokens));
  writer.counter("prefix_cache_hits_total", "Tokens found in the prefix cache.");
  write_number(writer, static_cast<double>(gauges_.prefix_hit_tokens));
}

void ServerMetrics::write_tier(PrometheusWriter& writer) const {
  writer.gauge("kv_tier_pages", "Blocks that the tier below KV memory has room for.");
  write_number(writer, gauges_.tier_pages);
  writer.gauge("kv_tier_pages_used", "Blocks that are in the tier.");
  write_number(writer, gauges_.tier_pages_saved);
  writer.gauge("kv_tier_memory_bytes", "Memory of this machine that blocks in the tier take.");
  write_number(writer, static_cast<double>(gauges_.tier_memory_bytes));
  const EngineStats& totals = gauges_.totals;
  writer.counter("kv_tier_blocks_saved_total", "KV blocks that the tier has stored.");
  write_number(writer, static_cast<double>(totals.saved_blocks));
  writer.counter("kv_tier_blocks_loaded_total", "KV blocks that came back from the tier.");
  write_number(writer, static_cast<double>(totals.loaded_blocks));
  const auto bytes = static_cast<double>(gauges_.tier_block_bytes);
  writer.counter("kv_tier_bytes_saved_total", "Bytes of the blocks that went to the tier.");
  write_number(writer, bytes * static_cast<double>(totals.saved_blocks));
  writer.counter("kv_tier_bytes_loaded_total", "Bytes of the blocks that came back.");
  write_number(writer, bytes * static_cast<double>(totals.loaded_blocks));
  writer.counter("kv_tier_hit_tokens_total", "Prompt tokens that only the tier had.");
  write_number(writer, static_cast<double>(totals.tier_hit_tokens));
  writer.counter("kv_tier_saved_seconds_total", "Time of steps that those tokens would take.");
  write_number(writer, totals.tier_saved_seconds);
  writer.counter("kv_stream_bytes_loaded_total",
                 "Bytes of KV read for sequences larger than memory.");
  write_number(writer, static_cast<double>(totals.streamed.loaded));
  writer.counter("kv_stream_bytes_saved_total",
                 "Bytes of KV written for sequences larger than memory.");
  write_number(writer, static_cast<double>(totals.streamed.saved));
  writer.gauge("kv_tier_saves_paused", "1 while the tier takes no blocks; else 0.");
  write_number(writer, gauges_.tier_pages > 0 && !gauges_.tier_accepts_saves ? 1 : 0);
  writer.counter("kv_tier_failures_total", "Loads and saves that failed, of adapters too.");
  write_number(writer, static_cast<double>(totals.failed_transfers));
  if (gauges_.tier_levels.are_two) write_tier_levels(writer);
}

// The counters of each of two tiers.
void ServerMetrics::write_tier_levels(PrometheusWriter& writer) const {
  const TierLevels& levels = gauges_.tier_levels;
  const auto count = [&](std::string_view name, std::string_view help, double ram, double disk) {
    writer.counter(name, help);
    writer.value({{"model_name", options_.model_name}, {"tier", "ram"}}, ram);
    writer.value({{"model_name", options_.model_name}, {"tier", "disk"}}, disk);
  };
  const auto bytes = [&](std::int64_t blocks) {
    return static_cast<double>(gauges_.tier_block_bytes) * static_cast<double>(blocks);
  };
  count("kv_tier_level_bytes_saved_total", "Bytes of the blocks that went to each tier.",
        bytes(levels.fast.saved_blocks), bytes(levels.slow.saved_blocks));
  count("kv_tier_level_bytes_loaded_total", "Bytes of the blocks that came back from each tier.",
        bytes(levels.fast.loaded_blocks), bytes(levels.slow.loaded_blocks));
  count("kv_tier_level_hit_tokens_total", "Prompt tokens that only the tiers had, by tier.",
        tier_shares_.fast().hit_tokens, tier_shares_.slow().hit_tokens);
  count("kv_tier_level_saved_seconds_total", "Time of steps that those tokens would take.",
        tier_shares_.fast().saved_seconds, tier_shares_.slow().saved_seconds);
}

void ServerMetrics::write_tokens(PrometheusWriter& writer) const {
  writer.counter("prompt_tokens_total", "Prompt tokens of requests that gave a token.");
  write_number(writer, prompt_tokens_.value());
  writer.counter("generation_tokens_total", "Output tokens.");
  write_number(writer, generation_tokens_.value());
  writer.counter("request_success_total", "Choices that ended, by why.");
  for (const FinishReason reason :
       {FinishReason::kStop, FinishReason::kLength, FinishReason::kCancelled, FinishReason::kError,
        FinishReason::kNoMemory, FinishReason::kNoAdapter, FinishReason::kLostKv}) {
    writer.value({{"model_name", options_.model_name}, {"finished_reason", vllm_reason(reason)}},
                 finished_[static_cast<std::size_t>(reason)].value());
  }
  write_histogram(writer, "iteration_tokens_total", "Tokens computed per step.", iteration_tokens_);
  write_histogram(writer, "step_duration_seconds", "Duration of a step.", step_duration_);
}

void ServerMetrics::write_latencies(PrometheusWriter& writer) const {
  write_histogram(writer, "time_to_first_token_seconds",
                  "From a request's arrival to its first token.", time_to_first_token_);
  write_histogram(writer, "inter_token_latency_seconds",
                  "Between one output token of a choice and the next.", inter_token_latency_);
  write_histogram(writer, "request_time_per_output_token_seconds",
                  "A choice's mean time per output token after the first.", time_per_output_token_);
  write_histogram(writer, "e2e_request_latency_seconds", "From a request's arrival to its end.",
                  e2e_latency_);
  write_histogram(writer, "request_queue_time_seconds",
                  "From a request's arrival to its first step.", queue_time_);
  write_histogram(writer, "request_prefill_time_seconds",
                  "From a request's first step to its first token.", prefill_time_);
  write_histogram(writer, "request_decode_time_seconds", "From a choice's first token to its last.",
                  decode_time_);
  write_histogram(writer, "request_inference_time_seconds",
                  "From a choice's first step to its last token.", inference_time_);
  write_histogram(writer, "request_dispatch_seconds",
                  "From a request's last byte to the engine's inbox.", dispatch_);
  write_histogram(writer, "token_delivery_seconds",
                  "From the end of the step that gave a chunk until the socket has it.",
                  token_delivery_);
}

void ServerMetrics::write_parameters(PrometheusWriter& writer) const {
  write_histogram(writer, "request_prompt_tokens", "Prompt tokens of a finished choice.",
                  request_prompt_tokens_);
  write_histogram(writer, "request_generation_tokens", "Output tokens of a finished choice.",
                  request_generation_tokens_);
  write_histogram(writer, "request_params_n", "n of a request.", params_n_);
  write_histogram(writer, "request_params_max_tokens", "max_tokens of a request.",
                  params_max_tokens_);
}

void ServerMetrics::write_server(PrometheusWriter& writer) const {
  writer.gauge("unfinished_requests", "Requests running, waiting or on their way to the engine.");
  write_number(writer, unfinished_requests_);
  writer.gauge("max_unfinished_requests",
               "The largest number of unfinished requests; further requests are refused.");
  write_number(writer, options_.max_requests);
  writer.counter("requests_refused_total", "Requests for the model that were refused, by reason.");
  for (const Labelled& refused : refused_) {
    writer.value({{"model_name", options_.model_name}, {"reason", refused.first}},
                 refused.counter.value());
  }
  writer.counter("http_requests_total", "Answers by route and status.");
  for (const Labelled& request : http_requests_) {
    writer.value({{"path", request.first}, {"status", request.second}}, request.counter.value());
  }
  writer.gauge("http_open_connections", "Connections open now.");
  writer.value({}, open_connections_.value());
}

void ServerMetrics::write_info(PrometheusWriter& writer) const {
  writer.gauge("startup_seconds", "Time that each part of the start took; total: all of it.");
  for (const StartupSpan& span : startup_) {
    writer.value({{"span", span.name}}, to_seconds(span.duration));
  }
  if (!startup_.empty()) writer.value({{"span", "total"}}, to_seconds(startup_total_));
  writer.gauge("startup_begin_seconds", "When each part of the start began; parts may overlap.");
  for (const StartupSpan& span : startup_) {
    writer.value({{"span", span.name}}, to_seconds(span.begin));
  }
  if (cache_config_) {
    writer.gauge("cache_config_info", "How the KV cache is set up; always 1.");
    const std::string block_size = std::to_string(cache_config_->block_size);
    const std::string num_blocks = std::to_string(cache_config_->num_blocks);
    writer.value({{"model_name", options_.model_name},
                  {"block_size", block_size},
                  {"num_gpu_blocks", num_blocks},
                  {"cache_dtype", cache_config_->cache_dtype},
                  {"enable_prefix_caching", cache_config_->prefix_caching ? "True" : "False"}},
                 1);
  }
  writer.gauge("build_info", "The running version; always 1.");
  writer.value({{"version", options_.version}}, 1);
}

}  // namespace sluice
