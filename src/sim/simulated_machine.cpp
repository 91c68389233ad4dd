#include "sim/simulated_machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/check.h"
#include "profile/token_budget.h"
#include "sim/cost_model.h"
#include "sim/profile_cost.h"
#include "sim/simulated_profile.h"
#include "sim/step_cost.h"
#include "sim/streamed_cost.h"

namespace sluice {
namespace {

using Budget = SimulatedMachineOptions::Budget;

constexpr std::int64_t kMaxKvTokens = 1'000'000'000;

// `--token-budget auto` assumes the paper's reference decodes beside a prompt's last chunk.
constexpr std::int32_t kBudgetDecodes = 32;
constexpr std::int32_t kBudgetContext = 4096;
constexpr std::int32_t kBudgetStep = 128;  // a tile
constexpr std::int32_t kMaxBudget = 16384;

std::vector<std::int32_t> budget_candidates() {
  std::vector<std::int32_t> candidates;
  for (std::int32_t b = kBudgetStep; b <= kMaxBudget; b += kBudgetStep) candidates.push_back(b);
  return candidates;
}

Status fit_token_budget(SimulatedMachine& machine) {
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

// Limits chunks by the time that the predictor of `profile` gives.
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

// The profile that a measurement of the simulated machine would give, for steps of at most one
// context.
Result<MachineProfile> measure(SimulatedMachine& machine, const Deployment& deployment,
                               const PredictorOptions& predictor) {
  SimulatedProfileOptions options;
  ReplicaOptions replica = machine.options.replica;
  replica.token_budget = std::min(kMaxBudget, replica.max_model_len);
  ASSIGN_OR_RETURN(const MemoryPlan memory, plan_memory(deployment, max_step_tokens(replica),
                                                        replica.max_model_len, replica.block_size));
  replica.num_blocks = memory.num_blocks;
  replica.window = deployment.model.window;
  replica.even_context = deployment.model.even_context();
  options.kv = replica_kv_options(replica);
  options.max_tokens = replica.token_budget;
  options.noise = predictor.noise;
  options.scale = predictor.scale;
  options.skew = predictor.skew;
  options.seed = predictor.seed;
  return profile_simulated(*machine.cost, options);
}

void set_slo(const SimulatedMachineOptions& options, SimulatedMachine& machine) {
  machine.reference_decode = reference_decode(*machine.cost);
  if (options.tbt_slo_ms) {
    machine.tbt_slo = Duration(std::llround(*options.tbt_slo_ms * 1e6));
  } else if (options.tbt_slo_factor) {
    const auto decode = static_cast<double>(machine.reference_decode.count());
    machine.tbt_slo = Duration(std::llround(*options.tbt_slo_factor * decode));
  }
  CHECK(machine.tbt_slo || options.budget == Budget::kTokens);
}

constexpr std::int64_t kTierOfMemory = 16;
constexpr std::int64_t kMaxTierPages = 100'000'000;

// REQUIRES: the replica's KV memory is known.
Status add_tier(const SimulatedMachineOptions& options, Result<TierCost> cost,
                ReplicaOptions& replica) {
  if (options.tier_link.empty()) {
    if (!options.tier_tokens || !options.stream_link.empty()) return {};
    return invalid_argument("--kv-tier-tokens is the size of a tier: give --kv-tier too");
  }
  if (!cost) return with_context("--kv-tier", std::move(cost).error());
  const std::int64_t all = kTierOfMemory * replica.num_blocks * replica.block_size;
  const std::int64_t pages = options.tier_tokens.value_or(all) / replica.block_size;
  if (pages < 1 || pages > kMaxTierPages) {
    return invalid_argument(fmt::format("--kv-tier-tokens must be between {} and {}, got {}",
                                        replica.block_size, kMaxTierPages * replica.block_size,
                                        options.tier_tokens.value_or(all)));
  }
  replica.tier = *cost;
  replica.tier_eviction = options.tier_eviction;
  if (!options.tier_meets) replica.meeting_tokens = 0;
  replica.tier_pages = static_cast<std::int32_t>(pages);
  return {};
}

// REQUIRES: the replica's KV memory is known.
Status stream_kv(const SimulatedMachineOptions& options, const Deployment& deployment,
                 const MemoryPlan& memory, SimulatedMachine& machine) {
  if (options.stream_link.empty()) return {};
  if (!options.tier_link.empty() || deployment.pp > 1) {
    return invalid_argument("--kv-stream excludes --kv-tier and --pp: all KV lies below memory");
  }
  auto link = tier_cost(deployment.gpu, options.stream_link, 0);
  if (!link) return with_context("--kv-stream", std::move(link).error());
  if (options.stream_link == "free") link->bytes_per_second = 1e18;
  ReplicaOptions& replica = machine.options.replica;
  const std::int64_t all = kTierOfMemory * replica.num_blocks * replica.block_size;
  const std::int64_t blocks = options.tier_tokens.value_or(all) / replica.block_size;
  if (blocks < 1 || blocks > kMaxTierPages) {
    return invalid_argument(fmt::format("--kv-tier-tokens must be between {} and {}, got {}",
                                        replica.block_size, kMaxTierPages * replica.block_size,
                                        options.tier_tokens.value_or(all)));
  }
  replica.num_blocks = static_cast<std::int32_t>(blocks) + 1;
  machine.cost = std::make_unique<StreamedCost>(std::move(machine.cost), *link, memory.kv_per_token,
                                                deployment.model.layers);
  return {};
}

// Checks the combination of numbers and policy; the numbers themselves are in range.
Status check_replica_policy(ReplicaOptions replica) {
  replica.num_blocks = 2;  // not known yet
  auto checked = check_replica_options(replica);
  if (!checked) return with_context("--token-budget", std::move(checked).error());
  return {};
}

}  // namespace

Result<SimulatedMachine> make_machine(const Deployment& deployment,
                                      const SimulatedMachineOptions& options) {
  if (auto splits = check_deployment(deployment); !splits) {
    return with_context("--tp, --pp", std::move(splits).error());
  }
  SimulatedMachine machine;
  machine.gpu = deployment.gpu.name;
  machine.model = deployment.model.name;
  machine.host_stack = deployment.host.name;
  machine.tp = deployment.tp;
  machine.pp = deployment.pp;
  machine.options = options.simulation;
  machine.cost = std::make_unique<CostModel>(deployment);
  set_slo(options, machine);
  ReplicaOptions& replica = machine.options.replica;
  replica.window = deployment.model.window;
  if (options.budget == Budget::kAuto) {
    RETURN_IF_ERROR(fit_token_budget(machine));
  } else if (options.budget == Budget::kTime) {
    ASSIGN_OR_RETURN(const MachineProfile profile, measure(machine, deployment, options.predictor));
    RETURN_IF_ERROR(plan_by_time(profile, options.predictor.learns, machine));
  }
  RETURN_IF_ERROR(check_replica_policy(replica));
  ASSIGN_OR_RETURN(const MemoryPlan memory, plan_memory(deployment, max_step_tokens(replica),
                                                        replica.max_model_len, replica.block_size));
  replica.num_blocks = memory.num_blocks;
  machine.block_bytes = memory.kv_per_token * replica.block_size;
  RETURN_IF_ERROR(add_tier(
      options, tier_cost(deployment.gpu, options.tier_link, machine.block_bytes), replica));
  RETURN_IF_ERROR(stream_kv(options, deployment, memory, machine));
  return machine;
}

Result<SimulatedMachine> make_profiled_machine(const MachineProfile& profile,
                                               const SimulatedMachineOptions& options) {
  SimulatedMachine machine;
  machine.gpu = profile.identity.device;
  machine.model = profile.model_name;
  machine.host_stack = "measured";
  machine.options = options.simulation;
  machine.cost = std::make_unique<ProfileCost>(profile.predictor);
  set_slo(options, machine);
  ReplicaOptions& replica = machine.options.replica;
  replica.window = profile.predictor.window;
  if (options.budget == Budget::kAuto) {
    const ReferenceLoad load = reference_load(replica.max_num_seqs, replica.max_model_len);
    ASSIGN_OR_RETURN(replica.token_budget, choose_token_budget(profile, load, *machine.tbt_slo));
  } else if (options.budget == Budget::kTime) {
    RETURN_IF_ERROR(plan_by_time(profile, options.predictor.learns, machine));
  }
  RETURN_IF_ERROR(check_replica_policy(replica));
  const std::int64_t all = std::int64_t{replica.max_num_seqs} * replica.max_model_len;
  const std::int64_t tokens = options.kv_tokens.value_or(all);
  if (tokens < 1 || tokens > kMaxKvTokens) {
    return invalid_argument(
        fmt::format("--kv-tokens must be between 1 and {}, got {}", kMaxKvTokens, tokens));
  }
  replica.num_blocks = static_cast<std::int32_t>(tokens / replica.block_size + 1);
  if (replica.num_blocks < 2) {
    return invalid_argument(fmt::format("--kv-tokens {} is not one block of {}; give more", tokens,
                                        replica.block_size));
  }
  if (!options.stream_link.empty()) {
    return invalid_argument("--kv-stream is for --gpu: a profile's KV has no bytes");
  }
  RETURN_IF_ERROR(add_tier(options, free_tier_cost(options.tier_link), replica));
  return machine;
}

}  // namespace sluice
