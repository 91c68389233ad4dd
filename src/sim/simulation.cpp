#include "sim/simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

namespace sluice {
namespace {

constexpr std::int64_t kReportEvery = 4096;  // arrivals
constexpr std::int32_t kReferenceBatch = 32;
constexpr std::int32_t kReferenceContext = 4096;

std::size_t choose(const std::vector<std::unique_ptr<Replica>>& replicas, Dispatch dispatch,
                   std::size_t arrival) {
  if (dispatch == Dispatch::kRoundRobin) return arrival % replicas.size();
  const auto least =
      std::min_element(replicas.begin(), replicas.end(),
                       [](const auto& a, const auto& b) { return a->load() < b->load(); });
  return static_cast<std::size_t>(least - replicas.begin());
}

// Whether the run goes on after arrival `i` of `count`.
bool goes_on(const ProgressReport& progress, std::size_t i, std::size_t count) {
  return !progress || i % kReportEvery != 0 ||
         progress(static_cast<double>(i) / static_cast<double>(count));
}

Error interrupted() { return {ErrorCode::kCancelled, "the simulation was interrupted"}; }

Result<SimulationResult> simulate_instances(const Workload& workload,
                                            const SimulationOptions& options, StepCost& cost,
                                            const ProgressReport& progress) {
  ServingRecorder recorder(options.goodput);
  Instances instances(*options.instances, options.replica, cost, recorder);
  const std::size_t count = workload.requests.size();
  for (std::size_t i = 0; i < count; ++i) {
    instances.add(workload.requests[i]);
    if (!goes_on(progress, i, count)) return interrupted();
  }
  instances.finish();
  SimulationResult result;
  result.stats = instances.stats();
  result.starts = instances.starts();
  result.summary = recorder.finish(instances.last_end());
  return result;
}

}  // namespace

Result<Dispatch> find_dispatch(std::string_view name) {
  if (name == "round-robin") return Dispatch::kRoundRobin;
  if (name == "least-loaded") return Dispatch::kLeastLoaded;
  return invalid_argument(
      fmt::format("dispatch '{}' is unknown; known are round-robin, least-loaded", name));
}

Result<SimulationResult> simulate(const Workload& workload, const SimulationOptions& options,
                                  StepCost& cost, const ProgressReport& progress) {
  RETURN_IF_ERROR(check_replica_options(options.replica));
  if (options.replicas < 1) return invalid_argument("replicas must be at least 1");
  if (options.instances) {
    if (options.replicas > 1 || options.autoscale) {
      return invalid_argument("instances start by need: neither replicas nor autoscale go with it");
    }
    return simulate_instances(workload, options, cost, progress);
  }
  ServingRecorder recorder(options.goodput);
  std::vector<std::unique_ptr<Replica>> replicas;
  for (std::int32_t i = 0; i < options.replicas; ++i) {
    ReplicaOptions own = options.replica;
    own.seed += static_cast<std::uint64_t>(i);
    replicas.push_back(std::make_unique<Replica>(own, cost, recorder));
  }
  std::unique_ptr<Replica> added;
  std::optional<Autoscaler> autoscaler;
  if (options.autoscale) {
    ReplicaOptions own = options.replica;
    own.seed += static_cast<std::uint64_t>(options.replicas);
    added = std::make_unique<Replica>(own, cost, recorder);
    autoscaler.emplace(*options.autoscale);
  }
  const std::size_t count = workload.requests.size();
  for (std::size_t i = 0; i < count; ++i) {
    const WorkloadRequest& request = workload.requests[i];
    // The choice depends on how far all replicas are by then.
    if (options.dispatch == Dispatch::kLeastLoaded) {
      for (const auto& replica : replicas) replica->run_until(request.arrival);
    }
    const bool redirected = autoscaler && autoscaler->redirect(request.arrival);
    (redirected ? added : replicas[choose(replicas, options.dispatch, i)])->add(request);
    if (!goes_on(progress, i, count)) return interrupted();
  }
  SimulationResult result;
  if (autoscaler) {
    result.redirected = autoscaler->redirected();
    replicas.push_back(std::move(added));
  }
  Duration end{0};
  for (const auto& replica : replicas) {
    replica->finish();
    end = std::max(end, replica->last_end());
    result.stats += replica->stats();
  }
  result.summary = recorder.finish(end);
  return result;
}

Duration reference_decode(StepCost& cost) {
  return step_latency(cost, sample_step(kReferenceBatch, kReferenceContext, 0, 0));
}

std::optional<std::int32_t> budget_within(StepCost& cost, Duration slo, std::int32_t decodes,
                                          std::int32_t context,
                                          const std::vector<std::int32_t>& candidates) {
  std::optional<std::int32_t> best;
  for (const std::int32_t budget : candidates) {
    const std::int32_t chunk = std::max(1, budget - decodes);
    const std::int32_t chunk_context = std::max(0, context - chunk);
    if (step_latency(cost, sample_step(decodes, context, chunk, chunk_context)) <= slo)
      best = budget;
  }
  return best;
}

}  // namespace sluice
