#include "apps/simulate_setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include "scheduler/policy.h"
#include "sim/cost_model.h"
#include "workload/arrivals.h"

namespace sluice {
namespace {

constexpr std::int32_t kContext = 8192;        // as the paper cuts its chats
constexpr std::int32_t kArxivContext = 16384;  // and its papers
constexpr std::int64_t kRequests = 2048;       // as its capacity searches
constexpr std::int32_t kMaxContext = 1 << 24;
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

Result<double> percentile(std::string_view text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (!text.empty() && error == std::errc() && stop == end && value > 0 && value < 100) {
    return value;
  }
  return invalid_argument(fmt::format(
      "--metric-percentiles: '{}' is not a percentage between 0 and 100; write 50,90,99", text));
}

Result<std::vector<double>> parse_percentiles(std::string_view list) {
  std::vector<double> out;
  while (true) {
    const std::size_t comma = std::min(list.find(','), list.size());
    ASSIGN_OR_RETURN(const double value, percentile(list.substr(0, comma)));
    out.push_back(value);
    if (comma == list.size()) return out;
    list.remove_prefix(comma + 1);
  }
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

Status choose_budget(SimulatedMachine& machine) {
  if (!machine.tbt_slo) {
    return invalid_argument("--token-budget auto needs --tbt-slo-ms or --tbt-slo-factor");
  }
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
    ASSIGN_OR_RETURN(load.trace_, read_trace(a.trace, {.max_requests = a.num_requests.value_or(0),
                                                       .max_total = context,
                                                       .too_long = too_long,
                                                       .rate_scale = a.rate_scale,
                                                       .length_scale = a.length_scale}));
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
  ASSIGN_OR_RETURN(const std::vector<Duration> times,
                   make_arrivals(options, static_cast<std::int64_t>(lengths_.size())));
  Workload workload;
  workload.source = fmt::format("{} lengths, {:.4g} requests per second", spec_, rate);
  workload.requests.reserve(times.size());
  for (std::size_t i = 0; i < times.size(); ++i) {
    workload.requests.push_back(
        {times[i], lengths_[i].prompt_tokens, lengths_[i].output_tokens, {}});
  }
  return workload;
}

Result<std::int32_t> simulated_context(const SimulateArguments& a) {
  const std::int32_t context =
      a.max_model_len.value_or(a.lengths == "arxiv" ? kArxivContext : kContext);
  RETURN_IF_ERROR(in_range("--max-model-len", context, 2, kMaxContext));
  return context;
}

Result<SimulateSettings> parse_simulate_settings(const SimulateArguments& a) {
  SimulateSettings settings;
  ReplicaOptions& replica = settings.simulation.replica;
  if (auto policy = make_policy(a.scheduler); !policy) {
    return with_context("--scheduler", std::move(policy).error());
  }
  replica.scheduler = a.scheduler;
  settings.choose_budget = a.token_budget == "auto";
  if (!settings.choose_budget) {
    const char* end = a.token_budget.data() + a.token_budget.size();
    const auto [stop, error] = std::from_chars(a.token_budget.data(), end, replica.token_budget);
    if (error != std::errc() || stop != end || replica.token_budget < 1) {
      return invalid_argument(fmt::format(
          "--token-budget must be auto or a whole number of at least 1, got '{}'", a.token_budget));
    }
  }
  RETURN_IF_ERROR(in_range("--max-num-seqs", a.max_num_seqs, 1, kMaxSeqs));
  RETURN_IF_ERROR(in_range("--block-size", a.block_size, 1, 1024));
  RETURN_IF_ERROR(in_range("--replicas", a.replicas, 1, 10000));
  RETURN_IF_ERROR(check_slo(a));
  replica.max_num_seqs = a.max_num_seqs;
  replica.block_size = a.block_size;
  ASSIGN_OR_RETURN(replica.max_model_len, simulated_context(a));
  settings.simulation.replicas = a.replicas;
  auto dispatch = find_dispatch(a.dispatch);
  if (!dispatch) return with_context("--dispatch", std::move(dispatch).error());
  settings.simulation.dispatch = *dispatch;
  ASSIGN_OR_RETURN(settings.percentiles, parse_percentiles(a.metric_percentiles));
  return settings;
}

Result<Deployment> parse_deployment(const SimulateArguments& a) {
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
  RETURN_IF_ERROR(check_deployment(deployment));
  SimulatedMachine machine;
  machine.deployment = deployment;
  machine.options = settings.simulation;
  machine.cost = std::make_unique<CostModel>(deployment);
  machine.reference_decode = reference_decode(*machine.cost);
  if (a.tbt_slo_ms) {
    machine.tbt_slo = Duration(std::llround(*a.tbt_slo_ms * 1e6));
  } else if (a.tbt_slo_factor) {
    const auto decode = static_cast<double>(machine.reference_decode.count());
    machine.tbt_slo = Duration(std::llround(*a.tbt_slo_factor * decode));
  }
  if (settings.choose_budget) RETURN_IF_ERROR(choose_budget(machine));
  ReplicaOptions& replica = machine.options.replica;
  ASSIGN_OR_RETURN(machine.memory, plan_memory(deployment, max_step_tokens(replica),
                                               replica.max_model_len, replica.block_size));
  replica.num_blocks = machine.memory.num_blocks;
  replica.window = deployment.model.window;
  return machine;
}

}  // namespace sluice
