#include "apps/simulate_setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include "apps/option_values.h"
#include "profile/token_budget.h"
#include "scheduler/policy.h"
#include "sim/cost_model.h"
#include "sim/profile_cost.h"
#include "sim/simulated_profile.h"
#include "workload/arrivals.h"

namespace sluice {
namespace {

constexpr std::int32_t kContext = 8192;        // as the paper cuts its chats
constexpr std::int32_t kArxivContext = 16384;  // and its papers
constexpr std::int64_t kRequests = 2048;       // as its capacity searches
constexpr std::int32_t kSeqs = 128;            // as it runs at once
constexpr std::int32_t kMaxContext = 1 << 24;
constexpr std::int32_t kMaxTokens = 1 << 24;
constexpr double kMaxKvTokens = 1e9;
constexpr std::int32_t kMaxSeqs = 1 << 16;
constexpr std::int32_t kMaxRanks = 1024;
constexpr double kBytesPerGbit = 1e9 / 8;

// What `--token-budget auto` assumes beside a prompt's last chunk: the paper's reference decodes.
constexpr std::int32_t kBudgetDecodes = 32;
constexpr std::int32_t kBudgetContext = 4096;
constexpr std::int32_t kBudgetStep = 128;  // a tile
constexpr std::int32_t kMaxBudget = 16384;

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

std::vector<std::int32_t> budget_candidates() {
  std::vector<std::int32_t> candidates;
  for (std::int32_t b = kBudgetStep; b <= kMaxBudget; b += kBudgetStep) candidates.push_back(b);
  return candidates;
}

Status choose_token_budget(SimulatedMachine& machine) {
  const auto budget = budget_within(*machine.cost, *machine.tbt_slo, kBudgetDecodes, kBudgetContext,
                                    budget_candidates());
  if (budget) {
    machine.options.replica.token_budget = *budget;
    return {};
  }
  const BatchPlan least = sample_step(kBudgetDecodes, kBudgetContext, kBudgetStep - kBudgetDecodes,
                                      kBudgetContext - kBudgetStep);
  return invalid_argument(fmt::format(
      "--token-budget auto: no budget meets {:.1f} ms; with the smallest, {} tokens, a step of {} "
      "decodes and a chunk takes {:.1f} ms",
      to_milliseconds(*machine.tbt_slo), kBudgetStep, kBudgetDecodes,
      to_milliseconds(step_latency(*machine.cost, least))));
}

// Chunks by time, as the predictor of `profile` has it.
Status plan_by_time(const MachineProfile& profile, bool learn, SimulatedMachine& machine) {
  ReplicaOptions& replica = machine.options.replica;
  const ReferenceLoad load = reference_load(replica.max_num_seqs, replica.max_model_len);
  ASSIGN_OR_RETURN(const TimeBudgetChoice choice,
                   choose_time_budget(profile, load, *machine.tbt_slo));
  replica.token_budget = choice.token_budget;
  replica.time_budget = choice.time;
  replica.time_budget->learn = learn;
  machine.predictor = profile.error;
  return {};
}

// What the simulated machine's profile would be, were it measured; for steps of at most a context.
Result<MachineProfile> measure(SimulatedMachine& machine, const Deployment& deployment,
                               const SimulateSettings& settings) {
  SimulatedProfileOptions options;
  ReplicaOptions replica = machine.options.replica;
  replica.token_budget = std::min(kMaxBudget, replica.max_model_len);
  ASSIGN_OR_RETURN(const MemoryPlan memory, plan_memory(deployment, max_step_tokens(replica),
                                                        replica.max_model_len, replica.block_size));
  replica.num_blocks = memory.num_blocks;
  replica.window = deployment.model.window;
  options.kv = replica_kv_options(replica);
  options.max_tokens = replica.token_budget;
  options.noise = settings.predictor_noise;
  options.scale = settings.predictor_scale;
  options.skew = settings.predictor_skew;
  options.seed = settings.seed;
  return profile_simulated(*machine.cost, options);
}

Status set_slo(const SimulateArguments& a, const SimulateSettings& settings,
               SimulatedMachine& machine) {
  machine.reference_decode = reference_decode(*machine.cost);
  if (a.tbt_slo_ms) {
    machine.tbt_slo = Duration(std::llround(*a.tbt_slo_ms * 1e6));
  } else if (a.tbt_slo_factor) {
    const auto decode = static_cast<double>(machine.reference_decode.count());
    machine.tbt_slo = Duration(std::llround(*a.tbt_slo_factor * decode));
  } else if (settings.budget != SimulateSettings::Budget::kTokens) {
    return invalid_argument(
        fmt::format("--token-budget {} needs --tbt-slo-ms or --tbt-slo-factor", a.token_budget));
  }
  return {};
}

Status parse_budget(const SimulateArguments& a, SimulateSettings& settings) {
  using Budget = SimulateSettings::Budget;
  settings.budget = a.token_budget == "auto"   ? Budget::kAuto
                    : a.token_budget == "time" ? Budget::kTime
                                               : Budget::kTokens;
  if (settings.budget != Budget::kTokens) return {};
  std::int32_t& tokens = settings.simulation.replica.token_budget;
  const char* end = a.token_budget.data() + a.token_budget.size();
  const auto [stop, error] = std::from_chars(a.token_budget.data(), end, tokens);
  if (error == std::errc() && stop == end && tokens >= 1 && tokens <= kMaxTokens) return {};
  return invalid_argument(
      fmt::format("--token-budget must be auto, time or a whole number between 1 and {}, got '{}'",
                  kMaxTokens, a.token_budget));
}

// The numbers are in range; the policy may not suit them.
Status check_replica_policy(ReplicaOptions replica) {
  replica.num_blocks = 2;  // not known yet
  auto checked = check_replica_options(replica);
  if (!checked) return with_context("--token-budget", std::move(checked).error());
  return {};
}

Status check_slo(const SimulateArguments& a) {
  if (a.tbt_slo_ms && a.tbt_slo_factor) {
    return invalid_argument("--tbt-slo-ms and --tbt-slo-factor exclude each other");
  }
  if (a.tbt_slo_ms) RETURN_IF_ERROR(in_range("--tbt-slo-ms", *a.tbt_slo_ms, 1e-3, 1e9));
  if (a.tbt_slo_factor) RETURN_IF_ERROR(in_range("--tbt-slo-factor", *a.tbt_slo_factor, 0.01, 1e6));
  return {};
}

}  // namespace

Result<SimulatedLoad> SimulatedLoad::make(const SimulateArguments& a, std::int32_t context) {
  SimulatedLoad load;
  load.burstiness_ = a.burstiness;
  load.seed_ = a.seed;
  ASSIGN_OR_RETURN(const TooLong too_long, parse_too_long(a.too_long));
  RETURN_IF_ERROR(in_range("--num-requests", static_cast<double>(a.num_requests.value_or(1)), 1,
                           static_cast<double>(kMaxWorkloadRequests)));
  if (!a.trace.empty()) {
    if (!a.lengths.empty() || a.qps) {
      return invalid_argument(
          "--trace has lengths and times of its own; leave out --lengths and --qps (--rate-scale "
          "and --length-scale change them)");
    }
    auto trace = read_trace(a.trace, {.max_requests = a.num_requests.value_or(0),
                                      .max_total = context,
                                      .too_long = too_long,
                                      .rate_scale = a.rate_scale,
                                      .length_scale = a.length_scale});
    if (!trace) return with_context("--trace", std::move(trace).error());
    load.trace_ = *std::move(trace);
    return load;
  }
  load.spec_ = a.lengths.empty() ? "sharegpt" : a.lengths;
  auto lengths = make_lengths(load.spec_, a.num_requests.value_or(kRequests), context, a.seed);
  if (!lengths) return with_context("--lengths", std::move(lengths).error());
  load.lengths_ = *std::move(lengths);
  return load;
}

Result<Workload> SimulatedLoad::at_rate(double rate) const {
  ArrivalOptions options;
  options.rate = rate;
  options.burstiness = burstiness_;
  options.seed = seed_;
  const auto times = make_arrivals(options, static_cast<std::int64_t>(lengths_.size()));
  if (!times) return with_context("--qps, --burstiness", times.error());
  Workload workload;
  workload.source = fmt::format("{} lengths, {:.4g} requests per second", spec_, rate);
  workload.requests = requests_of(lengths_, *times);
  return workload;
}

Result<SimulateSettings> parse_simulate_settings(const SimulateArguments& a,
                                                 const MachineProfile* profile) {
  SimulateSettings settings;
  ReplicaOptions& replica = settings.simulation.replica;
  if (auto policy = make_policy(a.scheduler); !policy) {
    return with_context("--scheduler", std::move(policy).error());
  }
  replica.scheduler = a.scheduler;
  RETURN_IF_ERROR(parse_budget(a, settings));
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
  RETURN_IF_ERROR(check_slo(a));
  settings.predictor_noise = a.predictor_noise;
  settings.predictor_scale = a.predictor_scale;
  settings.predictor_skew = a.predictor_skew;
  settings.predictor_learns = !a.no_predictor_learning;
  settings.seed = a.seed;
  replica.step_jitter = a.step_jitter;
  replica.seed = a.seed;
  settings.simulation.replicas = a.replicas;
  auto dispatch = find_dispatch(a.dispatch);
  if (!dispatch) return with_context("--dispatch", std::move(dispatch).error());
  settings.simulation.dispatch = *dispatch;
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
  deployment.network_bandwidth = a.network_gbps * kBytesPerGbit;
  return deployment;
}

Result<SimulatedMachine> make_machine(const Deployment& deployment,
                                      const SimulateSettings& settings,
                                      const SimulateArguments& a) {
  if (auto splits = check_deployment(deployment); !splits) {
    return with_context("--tp, --pp", std::move(splits).error());
  }
  SimulatedMachine machine;
  machine.gpu = deployment.gpu.name;
  machine.model = deployment.model.name;
  machine.host_stack = deployment.host.name;
  machine.tp = deployment.tp;
  machine.pp = deployment.pp;
  machine.options = settings.simulation;
  machine.cost = std::make_unique<CostModel>(deployment);
  RETURN_IF_ERROR(set_slo(a, settings, machine));
  ReplicaOptions& replica = machine.options.replica;
  replica.window = deployment.model.window;
  if (settings.budget == SimulateSettings::Budget::kAuto) {
    RETURN_IF_ERROR(choose_token_budget(machine));
  } else if (settings.budget == SimulateSettings::Budget::kTime) {
    ASSIGN_OR_RETURN(const MachineProfile profile, measure(machine, deployment, settings));
    RETURN_IF_ERROR(plan_by_time(profile, settings.predictor_learns, machine));
  }
  RETURN_IF_ERROR(check_replica_policy(replica));
  ASSIGN_OR_RETURN(const MemoryPlan memory, plan_memory(deployment, max_step_tokens(replica),
                                                        replica.max_model_len, replica.block_size));
  replica.num_blocks = memory.num_blocks;
  return machine;
}

Result<SimulatedMachine> make_profiled_machine(const MachineProfile& profile,
                                               const SimulateSettings& settings,
                                               const SimulateArguments& a) {
  if (a.predictor_scale != 1 || a.predictor_skew != 0) {
    return invalid_argument(
        "--predictor-scale and --predictor-skew are for --gpu and --model; with --profile the "
        "predictor is the machine");
  }
  SimulatedMachine machine;
  machine.gpu = profile.identity.device;
  machine.model = profile.model_name;
  machine.host_stack = "measured";
  machine.options = settings.simulation;
  machine.cost = std::make_unique<ProfileCost>(profile.predictor);
  RETURN_IF_ERROR(set_slo(a, settings, machine));
  ReplicaOptions& replica = machine.options.replica;
  replica.window = profile.predictor.window;
  if (settings.budget == SimulateSettings::Budget::kAuto) {
    const ReferenceLoad load = reference_load(replica.max_num_seqs, replica.max_model_len);
    ASSIGN_OR_RETURN(replica.token_budget,
                     sluice::choose_token_budget(profile, load, *machine.tbt_slo));
  } else if (settings.budget == SimulateSettings::Budget::kTime) {
    RETURN_IF_ERROR(plan_by_time(profile, settings.predictor_learns, machine));
  }
  RETURN_IF_ERROR(check_replica_policy(replica));
  const std::int64_t all = std::int64_t{replica.max_num_seqs} * replica.max_model_len;
  const std::int64_t tokens = a.kv_tokens.value_or(all);
  RETURN_IF_ERROR(in_range("--kv-tokens", static_cast<double>(tokens), 1, kMaxKvTokens));
  replica.num_blocks = static_cast<std::int32_t>(tokens / replica.block_size + 1);
  if (replica.num_blocks < 2) {
    return invalid_argument(fmt::format("--kv-tokens {} is not one block of {}; give more", tokens,
                                        replica.block_size));
  }
  return machine;
}

}  // namespace sluice
