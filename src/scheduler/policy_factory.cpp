#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/text.h"
#include "scheduler/policy.h"
#include "scheduler/policy_fair.h"
#include "scheduler/policy_vtc.h"
#include "scheduler/scheduler.h"
#include "scheduler/simple_policies.h"

namespace sluice {
namespace {

using MakePolicy = std::unique_ptr<Policy> (*)();

template <class P>
std::unique_ptr<Policy> make() {
  return std::make_unique<P>();
}

template <Reservation kReservation>
std::unique_ptr<Policy> make_hybrid() {
  return std::make_unique<HybridPolicy>(kReservation);
}

struct NamedPolicy {
  std::string_view name;
  MakePolicy make;
};

constexpr std::array kPolicies = {
    NamedPolicy{"stall-free", &make<StallFreePolicy>},
    NamedPolicy{"chunked-only", &make<ChunkedOnlyPolicy>},
    NamedPolicy{"hybrid-only", &make_hybrid<Reservation::kPrompt>},
    NamedPolicy{"prefill-first", &make<PrefillFirstPolicy>},
    NamedPolicy{"hybrid", &make_hybrid<Reservation::kContext>},
    NamedPolicy{"hybrid:max-tokens", &make_hybrid<Reservation::kMaxTokens>},
    NamedPolicy{"request-level", &make<RequestLevelPolicy>},
    NamedPolicy{"unified", &make<UnifiedPolicy>},
    NamedPolicy{"vtc", &make<VtcPolicy>},
    NamedPolicy{"fair", &make<FairPolicy>},
};

}  // namespace

std::int32_t Policy::token_budget(const SchedulerOptions& options) const {
  return options.token_budget;
}

// Most policies have no counters.
void Policy::charge_streamed(PlanPass& /*pass*/) const {}

Reservation Policy::reservation() const { return Reservation::kPrompt; }

std::int32_t budget_beside_decodes(const SchedulerOptions& options) {
  return std::max(options.token_budget, options.max_model_len + options.max_num_seqs);
}

std::vector<std::string_view> policy_names() {
  std::vector<std::string_view> names;
  for (const NamedPolicy& policy : kPolicies) names.push_back(policy.name);
  return names;
}

Result<std::unique_ptr<Policy>> make_policy(std::string_view name) {
  const auto found = std::find_if(kPolicies.begin(), kPolicies.end(),
                                  [&](const NamedPolicy& policy) { return policy.name == name; });
  const std::string known = join(policy_names(), ", ");
  if (found == kPolicies.end()) {
    return invalid_argument(fmt::format("scheduler '{}' is unknown; use one of: {}", name, known));
  }
  return found->make();
}

}  // namespace sluice
