#include "apps/simulate_setup.h"

#include <fmt/format.h>

#include <charconv>
#include <string>
#include <utility>

#include "apps/option_values.h"
#include "scheduler/policy.h"

namespace sluice {
namespace {

constexpr std::int32_t kContext = 8192;        // the paper's limit for chats
constexpr std::int32_t kArxivContext = 16384;  // the paper's limit for arxiv documents
constexpr std::int32_t kSeqs = 128;            // the paper's batch limit
constexpr std::int32_t kMaxContext = 1 << 24;
constexpr std::int32_t kMaxTokens = 1 << 24;
constexpr std::int32_t kMaxSeqs = 1 << 16;
constexpr std::int32_t kMaxRanks = 1024;
constexpr double kBytesPerGbit = 1e9 / 8;

Status in_range(const char* option, double value, double low, double high) {
  if (value >= low && value <= high) return {};
  return invalid_argument(
      fmt::format("{} must be between {:.6g} and {:.6g}, got {:.6g}", option, low, high, value));
}

Result<TooLong> parse_too_long(const std::string& text) {
  if (text == "refuse") return TooLong::kRefuse;
  if (text == "shorten") return TooLong::kShorten;
  if (text == "skip") return TooLong::kSkip;
  return invalid_argument(
      fmt::format("--too-long '{}' is unknown; known are refuse, shorten, skip", text));
}

Status parse_budget(const SimulateArguments& a, SimulatedMachineOptions& options) {
  using Budget = SimulatedMachineOptions::Budget;
  options.budget = a.token_budget == "auto"   ? Budget::kAuto
                   : a.token_budget == "time" ? Budget::kTime
                                              : Budget::kTokens;
  if (options.budget != Budget::kTokens) return {};
  std::int32_t& tokens = options.simulation.replica.token_budget;
  const char* end = a.token_budget.data() + a.token_budget.size();
  const auto [stop, error] = std::from_chars(a.token_budget.data(), end, tokens);
  if (error == std::errc() && stop == end && tokens >= 1 && tokens <= kMaxTokens) return {};
  return invalid_argument(
      fmt::format("--token-budget must be auto, time or a whole number between 1 and {}, got '{}'",
                  kMaxTokens, a.token_budget));
}

Status parse_slo(const SimulateArguments& a, SimulatedMachineOptions& options) {
  if (a.tbt_slo_ms && a.tbt_slo_factor) {
    return invalid_argument("--tbt-slo-ms and --tbt-slo-factor exclude each other");
  }
  if (a.tbt_slo_ms) RETURN_IF_ERROR(in_range("--tbt-slo-ms", *a.tbt_slo_ms, 1e-3, 1e9));
  if (a.tbt_slo_factor) RETURN_IF_ERROR(in_range("--tbt-slo-factor", *a.tbt_slo_factor, 0.01, 1e6));
  options.tbt_slo_ms = a.tbt_slo_ms;
  options.tbt_slo_factor = a.tbt_slo_factor;
  const bool chosen = options.budget != SimulatedMachineOptions::Budget::kTokens;
  if (chosen && !a.tbt_slo_ms && !a.tbt_slo_factor) {
    return invalid_argument(
        fmt::format("--token-budget {} needs --tbt-slo-ms or --tbt-slo-factor", a.token_budget));
  }
  return {};
}

Status parse_load(const SimulateArguments& a, std::int32_t context, SimulatedLoadOptions& load) {
  ASSIGN_OR_RETURN(load.too_long, parse_too_long(a.too_long));
  RETURN_IF_ERROR(in_range("--num-requests", static_cast<double>(a.num_requests.value_or(1)), 1,
                           static_cast<double>(kMaxWorkloadRequests)));
  if (!a.trace.empty() && (!a.lengths.empty() || a.qps)) {
    return invalid_argument(
        "--trace has lengths and times of its own; leave out --lengths and --qps (--rate-scale "
        "and --length-scale change them)");
  }
  if (!a.rate_steps.empty() && (!a.trace.empty() || a.qps || a.num_requests)) {
    return invalid_argument(
        "--rate-steps says when requests arrive: leave out --qps, --num-requests and --trace");
  }
  RETURN_IF_ERROR(in_range("--shared-prefix", a.shared_prefix, 0, kMaxContext));
  if (a.shared_prefix > 0 && !a.trace.empty()) {
    return invalid_argument("--shared-prefix is for --lengths; a trace names its own prefixes");
  }
  load.rate_steps = a.rate_steps;
  load.prefix_tokens = a.shared_prefix;
  load.prefixes = a.prefixes;
  load.trace = a.trace;
  load.rate_scale = a.rate_scale;
  load.length_scale = a.length_scale;
  if (!a.lengths.empty()) load.lengths = a.lengths;
  load.num_requests = a.num_requests;
  load.burstiness = a.burstiness;
  load.context = context;
  load.seed = a.seed;
  return {};
}

}  // namespace

Result<SimulateSettings> parse_simulate_settings(const SimulateArguments& a,
                                                 const MachineProfile* profile) {
  SimulateSettings settings;
  SimulationOptions& simulation = settings.machine.simulation;
  ReplicaOptions& replica = simulation.replica;
  if (auto policy = make_policy(a.scheduler); !policy) {
    return with_context("--scheduler", std::move(policy).error());
  }
  replica.scheduler = a.scheduler;
  RETURN_IF_ERROR(parse_budget(a, settings.machine));
  const std::int32_t context = a.lengths == "arxiv" ? kArxivContext : kContext;
  replica.max_num_seqs =
      a.max_num_seqs.value_or(profile != nullptr ? profile->max_num_seqs : kSeqs);
  replica.max_model_len =
      a.max_model_len.value_or(profile != nullptr ? profile->max_model_len : context);
  replica.block_size = a.block_size;
  RETURN_IF_ERROR(in_range("--max-num-seqs", replica.max_num_seqs, 1,
                           profile != nullptr ? profile->max_num_seqs : kMaxSeqs));
  RETURN_IF_ERROR(in_range("--max-model-len", replica.max_model_len, 2,
                           profile != nullptr ? profile->max_model_len : kMaxContext));
  RETURN_IF_ERROR(in_range("--block-size", a.block_size, 1, 1024));
  RETURN_IF_ERROR(in_range("--replicas", a.replicas, 1, 10000));
  RETURN_IF_ERROR(in_range("--predictor-noise", a.predictor_noise, 0, 0.9));
  RETURN_IF_ERROR(in_range("--predictor-scale", a.predictor_scale, 0.1, 10));
  RETURN_IF_ERROR(in_range("--predictor-skew", a.predictor_skew, 0, 9));
  RETURN_IF_ERROR(in_range("--step-jitter", a.step_jitter, 0, 0.9));
  RETURN_IF_ERROR(parse_slo(a, settings.machine));
  if (profile != nullptr && a.lent_traffic != 0) {
    return invalid_argument("--lent-traffic is for --gpu and --model; a profile has no links");
  }
  if (profile != nullptr && (a.predictor_scale != 1 || a.predictor_skew != 0)) {
    return invalid_argument(
        "--predictor-scale and --predictor-skew are for --gpu and --model; with --profile the "
        "predictor is the machine");
  }
  settings.machine.predictor = {.noise = a.predictor_noise,
                                .scale = a.predictor_scale,
                                .skew = a.predictor_skew,
                                .learns = !a.no_predictor_learning,
                                .seed = a.seed};
  settings.machine.kv_tokens = a.kv_tokens;
  settings.machine.tier_link = a.kv_tier;
  settings.machine.stream_link = a.kv_stream;
  settings.machine.tier_tokens = a.kv_tier_tokens;
  settings.machine.tier_eviction =
      a.kv_tier_eviction == "lru" ? TierEviction::kLeastRecent : TierEviction::kSeconds;
  settings.machine.tier_meets = a.kv_tier_loads == "meeting";
  replica.step_jitter = a.step_jitter;
  replica.seed = a.seed;
  simulation.replicas = a.replicas;
  auto dispatch = find_dispatch(a.dispatch);
  if (!dispatch) return with_context("--dispatch", std::move(dispatch).error());
  simulation.dispatch = *dispatch;
  if (!a.autoscale.empty()) {
    auto autoscale = parse_autoscale(a.autoscale);
    if (!autoscale) return with_context("--autoscale", std::move(autoscale).error());
    simulation.autoscale = *autoscale;
  }
  if (!a.instances.empty()) {
    auto instances = parse_instances(a.instances);
    if (!instances) return with_context("--instances", std::move(instances).error());
    if (a.replicas > 1 || simulation.autoscale) {
      return invalid_argument("--instances start by need: give neither --replicas nor --autoscale");
    }
    simulation.instances = *instances;
  }
  RETURN_IF_ERROR(parse_load(a, replica.max_model_len, settings.load));
  ASSIGN_OR_RETURN(settings.percentiles, parse_percentiles(a.metric_percentiles));
  return settings;
}

Result<Deployment> parse_deployment(const SimulateArguments& a) {
  if (a.gpu.empty() || a.model.empty()) {
    return invalid_argument("--gpu and --model are needed, or --profile; --list shows the names");
  }
  Deployment deployment;
  auto gpu = find_gpu(a.gpu);
  if (!gpu) return with_context("--gpu", std::move(gpu).error());
  auto model = find_model_shape(a.model);
  if (!model) return with_context("--model", std::move(model).error());
  auto host = find_host_stack(a.host_stack);
  if (!host) return with_context("--host-stack", std::move(host).error());
  RETURN_IF_ERROR(in_range("--tp", a.tp, 1, kMaxRanks));
  RETURN_IF_ERROR(in_range("--pp", a.pp, 1, kMaxRanks));
  RETURN_IF_ERROR(in_range("--gpus-per-node", a.gpus_per_node, 1, kMaxRanks));
  RETURN_IF_ERROR(in_range("--network-gbps", a.network_gbps, 0.01, 1e5));
  deployment.gpu = *gpu;
  deployment.model = *model;
  deployment.host = *host;
  deployment.tp = a.tp;
  deployment.pp = a.pp;
  deployment.gpus_per_node = a.gpus_per_node;
  deployment.lent_traffic = a.lent_traffic * 1e9;
  deployment.network_bandwidth = a.network_gbps * kBytesPerGbit;
  return deployment;
}

}  // namespace sluice
