#include "function_sim/simulated_function.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string>

namespace sluice {
namespace {

std::size_t to_index(std::int32_t i) { return static_cast<std::size_t>(i); }

}  // namespace

Result<std::vector<SimulatedFunction>> simulated_functions(const FunctionsFile& file,
                                                           const ClusterSpec& cluster) {
  std::vector<SimulatedFunction> functions;
  for (const FunctionSpec& spec : file.functions) {
    const std::string& backbone = file.backbones[to_index(spec.backbone)].name;
    const auto found = std::ranges::find(cluster.models, backbone, &ModelTimes::backbone);
    if (found == cluster.models.end()) {
      return invalid_argument(fmt::format(
          "the cluster file has no [[model]] with backbone = \"{}\", which the functions file has; "
          "add one, or give a backbone the name that one has there",
          backbone));
    }
    functions.push_back({static_cast<std::int32_t>(found - cluster.models.begin()),
                         spec.adapter.empty() ? 0 : 1, spec.ttft_slo, spec.idle, spec.tenant});
  }
  if (functions.empty()) return invalid_argument("the functions file has no functions");
  return functions;
}

MergedFunctions merge_functions(std::span<const SimulatedFunction> functions,
                                std::span<const FunctionCall> calls) {
  MergedFunctions merged;
  std::vector<std::int32_t> target;
  for (const SimulatedFunction& function : functions) {
    const auto found =
        std::ranges::find(merged.functions, function.model, &SimulatedFunction::model);
    target.push_back(static_cast<std::int32_t>(found - merged.functions.begin()));
    if (found == merged.functions.end()) {
      merged.functions.push_back(function);
    } else {
      found->adapters += function.adapters;
      found->ttft_slo = std::min(found->ttft_slo, function.ttft_slo);
    }
  }
  merged.calls.assign(calls.begin(), calls.end());
  for (FunctionCall& call : merged.calls) call.function = target[to_index(call.function)];
  return merged;
}

}  // namespace sluice
