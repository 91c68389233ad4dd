#include "gateway/prefill_tracker.h"

#include <algorithm>

#include "base/check.h"

namespace sluice {

void PrefillTracker::add_function(const std::string& tenant, std::int32_t backbone) {
  Function function;
  function.tenant =
      tenants_.try_emplace(tenant, static_cast<std::int32_t>(tenants_.size())).first->second;
  busy_.resize(tenants_.size());
  const std::pair key(function.tenant, backbone);
  function.meter =
      meter_of_.try_emplace(key, static_cast<std::int32_t>(meter_of_.size())).first->second;
  meters_.resize(meter_of_.size());
  functions_.push_back(function);
}

void PrefillTracker::dispatched(const Request& request, TimePoint now) {
  const auto tokens = std::max<std::int64_t>(1, std::ssize(request.prompt));
  Function& function = functions_[static_cast<std::size_t>(request.function)];
  const Prefill prefill{request.function, tokens, function.tokens, request.arrival, now};
  const bool is_new = prefills_.try_emplace(request.id, prefill).second;
  CHECK(is_new);
  function.tokens += tokens;
  if (function.prefills++ == 0) ++busy_[static_cast<std::size_t>(function.tenant)];
}

void PrefillTracker::first_token(RequestId request, TimePoint time) {
  const auto found = prefills_.find(request);
  if (found == prefills_.end()) return;
  const Prefill& prefill = found->second;
  meters_[static_cast<std::size_t>(at(prefill.function).meter)].add(
      prefill.tokens, prefill.ahead, std::max(time - prefill.since, Duration(0)));
  functions_[static_cast<std::size_t>(prefill.function)].ttfts.add(
      std::max(time - prefill.arrival, Duration(0)));
  ended(request);
}

void PrefillTracker::ended(RequestId request) {
  const auto found = prefills_.find(request);
  if (found == prefills_.end()) return;
  Function& function = functions_[static_cast<std::size_t>(found->second.function)];
  function.tokens -= found->second.tokens;
  if (--function.prefills == 0) --busy_[static_cast<std::size_t>(function.tenant)];
  prefills_.erase(found);
}

}  // namespace sluice
