#include "gateway/tenant_keys.h"

#include <fmt/format.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace sluice {
namespace {

KeyLimits limits_of(const Quotas& quotas) {
  KeyLimits limits;
  limits.requests_per_minute = quotas.requests_per_minute;
  limits.tokens_per_minute = quotas.tokens_per_minute;
  limits.concurrency = quotas.concurrency;
  return limits;
}

}  // namespace

ApiKeys tenant_keys(const FunctionsFile& file) {
  std::vector<ApiKey> keys;
  std::map<std::string, KeyLimits, std::less<>> limits;
  for (const TenantSpec& tenant : file.tenants) {
    for (const Sha256Digest& digest : tenant.keys) keys.push_back({tenant.name, false, digest});
    limits.emplace(tenant.name, limits_of(tenant.quotas));
  }
  // No tenant has this name, so the key calls no function.
  for (const Sha256Digest& digest : file.admin_keys) keys.push_back({"@admin", true, digest});
  return {std::move(keys), std::move(limits)};
}

Status check_same_backbones(const FunctionsFile& before, const FunctionsFile& after) {
  const auto describe = [](const BackboneSpec& spec) {
    return fmt::format("'{}' in {}", spec.name, spec.directory);
  };
  const auto changed = [](const std::string& what) {
    return invalid_argument(fmt::format(
        "the backbones have changed ({}); restart the gateway to use other backbones", what));
  };
  if (before.backbones.size() != after.backbones.size()) {
    return changed(
        fmt::format("{} instead of {}", after.backbones.size(), before.backbones.size()));
  }
  for (std::size_t i = 0; i < before.backbones.size(); ++i) {
    const std::string now = describe(after.backbones[i]);
    if (now != describe(before.backbones[i])) return changed(now);
  }
  return {};
}

}  // namespace sluice
